"""The user's counters come back from wherever Spark runs Python, told apart by run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from harness import Harness, at, events

from drivetrain import Application, Task, accumulator

bad = accumulator("bad_lines")
seen = accumulator("seen.length")
in_tasks = accumulator("in_tasks")
with_state = accumulator("with_state")
called = accumulator("tenfold")

SCHEMA = "ts timestamp, key string, line string"
ROWS = [(at(i * 1000), f"k{i % 3}", str(i) if i % 10 else "many") for i in range(200)]


class Tag(Task[Any, tuple[str, int]]):
    """A Task that counts, without state."""

    def on_next(self, message: Any) -> Iterator[tuple[str, int]]:
        in_tasks.add()
        yield "number", message


class Total(Task[Any, tuple[str, int]]):
    """A Task that counts, with state."""

    stateful = True

    def on_start(self, context: Any) -> None:
        self.sum = 0

    def on_next(self, message: Any) -> Iterator[tuple[str, int]]:
        with_state.add(2)
        self.sum += 1
        yield message.key, self.sum


def parse(line: str) -> list[int]:
    seen.add(len(line) / 2)
    try:
        return [int(line)]
    except ValueError:
        bad.add()
        return []


@pytest.mark.nightly("the unit tests of counters; the test of columns that count, below")
def test_counters_of_functions_and_tasks_are_in_the_result(drive: Harness) -> None:
    app = Application("counting")
    stream = events(app, ROWS, SCHEMA)
    numbers = stream.flat_map(lambda message: parse(message.line), returns=int)
    drive.sink(numbers.process(Tag), "numbers")
    drive.sink(stream.process(Total, parallelism=2, returns=tuple[str, int]), "totals")

    result = drive.run(app)

    assert len(drive.rows("numbers")) == 180
    assert result.accumulators == {
        "bad_lines": 20,
        "in_tasks": 180,
        "seen.length": sum(len(line) for _, _, line in ROWS) / 2,
        "with_state": 400,
    }
    assert list(result.accumulators) == sorted(result.accumulators)


def test_a_function_of_columns_that_counts_is_not_lowered_past_its_counter(drive: Harness) -> None:
    def tenfold(n: int) -> int:
        called.add()
        return n * 10

    app = Application("columns")
    stream = events(app, [(at(i), "a", i) for i in range(50)], "ts timestamp, key string, n bigint")
    drive.sink(stream.with_columns(ten=tenfold).select("ten"))

    result = drive.run(app)

    assert sorted(row["ten"] for row in drive.rows()) == [i * 10 for i in range(50)]
    assert result.accumulators == {"tenfold": 50}


def test_outside_of_a_run_counting_does_nothing() -> None:
    assert parse("many") == []

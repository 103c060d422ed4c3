"""Named outputs of Tasks on Spark, beside loops over the same messages, with disorder and crashes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from harness import Harness, at, events

from drivetrain import (
    Application,
    NamedOutput,
    PersistentTask,
    State,
    Stream,
    Task,
    TimestampedValue,
    agg,
    partitioners,
    windows,
)
from drivetrain.crash_points import CrashPoint, armed
from drivetrain.errors import OperatorError

SCHEMA = "ts timestamp, key string, n bigint"
ROWS = [(at(i * 100 + (-350 if i % 3 == 0 else 0) + 1000), f"k{i % 4}", i) for i in range(120)]
"""Out of order by less than a second."""
LARGE = 70


class Sorted(Task[Any, tuple[str, int]]):
    """Small numbers are the main results, large ones and multiples of five go to outputs."""

    outputs = {"large": "number bigint, of string", "fives": int}  # noqa: RUF012 - as users write it

    def on_next(self, message: Any) -> Iterator[tuple[str, int] | NamedOutput]:
        if message.n < LARGE:
            yield message.key, message.n
        else:
            yield NamedOutput("large", (message.n, message.key))
        if message.n % 5 == 0:
            yield NamedOutput("fives", message.n)


class SortedWithState(Sorted):
    stateful = True

    def on_start(self, context: Any) -> None:
        self.seen = 0

    def on_next(self, message: Any) -> Iterator[tuple[str, int] | NamedOutput]:
        self.seen += 1
        yield from super().on_next(message)

    def on_stop(self) -> Iterator[TimestampedValue[NamedOutput]]:
        yield TimestampedValue(0, NamedOutput("fives", -self.seen))


class SortedByKey(PersistentTask[Any, tuple[str, int]]):
    key = "key"
    state = State(agg.count())
    outputs = Sorted.outputs

    def on_next(self, message: Any) -> Iterator[tuple[str, int] | NamedOutput]:
        self.state.update(message)
        yield from Sorted.on_next(self, message)  # type: ignore[arg-type]


class SortedInBatches(Task[Any, Any]):
    output = tuple[str, int]
    outputs = Sorted.outputs

    def on_batch(self, batch: pa.RecordBatch) -> Iterator[Any]:
        table = pa.Table.from_batches([batch])
        of_five = pc.equal(pc.multiply(pc.divide(table["n"], 5), 5), table["n"])
        small = table.filter(pc.less(table["n"], LARGE))
        large = table.filter(pc.greater_equal(table["n"], LARGE))
        fives = table.filter(of_five)
        yield small.select(["key", "n", "__ts"]).rename_columns(["key", "value", "__ts"])
        yield NamedOutput(
            "large", large.select(["n", "key", "__ts"]).rename_columns(["number", "of", "__ts"])
        )
        yield NamedOutput("fives", fives.select(["n", "__ts"]).rename_columns(["value", "__ts"]))


def application(drive: Harness, task: Any, **options: Any) -> Application:
    """Each output in a sink, and a window over the large ones."""
    app = Application("outputs")
    made: Stream[Any] = events(app, ROWS, SCHEMA, "1 s").process(task, name="sorted", **options)
    drive.sink(made, "small")
    large = made.output("large")
    drive.sink(large, "large")
    drive.sink(large.group_by("of").window(windows.tumbling("2 s")).count(name="hourly"), "counts")
    drive.sink(made.output("fives").union(made.select("value", step="values")), "united")
    return app


def check(drive: Harness, *, stopped: bool = False) -> None:
    assert Counter((r["key"], r["value"]) for r in drive.rows("small")) == Counter(
        (key, n) for _, key, n in ROWS if n < LARGE
    )
    assert Counter((r["number"], r["of"]) for r in drive.rows("large")) == Counter(
        (n, key) for _, key, n in ROWS if n >= LARGE
    )
    two_s = {ts: at(int(ts.timestamp() * 1000) // 2000 * 2000) for ts, _, _ in ROWS}
    assert {(r["of"], r["window_start"]): r["count"] for r in drive.rows("counts")} == Counter(
        (key, two_s[ts]) for ts, key, n in ROWS if n >= LARGE
    )
    united = Counter(r["value"] for r in drive.rows("united") if r["value"] >= 0)
    assert united == Counter([n for _, _, n in ROWS if n < LARGE] + [n for _, _, n in ROWS if n % 5 == 0])
    assert sum(-r["value"] for r in drive.rows("united") if r["value"] < 0) == (len(ROWS) if stopped else 0)


OTHERS = pytest.mark.nightly("Tasks of this kind have tests of their own, without outputs")


@pytest.mark.nightly("random applications have tasks with outputs")
@pytest.mark.parametrize(
    "task",
    [
        *(pytest.param(task, marks=OTHERS) for task in (Sorted, SortedInBatches, SortedByKey)),
        SortedWithState,
    ],
)
def test_each_result_goes_to_its_output_with_its_timestamp(drive: Harness, task: Any) -> None:
    options: dict[str, Any] = {}
    if task is not SortedByKey:
        options = {"parallelism": 2, "partitioner": partitioners.hash("key")}
    app = application(drive, task, **options)
    result = drive.run(app)
    check(drive, stopped=task is SortedWithState)
    counts = {p.processor: p for p in result.processors}
    assert counts["sorted-large"].messages_out == len(ROWS) - LARGE
    assert counts["sorted-large"].messages_in == len(ROWS) - LARGE


@pytest.mark.nightly("test_guarantee_delivery, and each output without a death")
def test_outputs_are_exact_when_the_run_dies_between_them(drive: Harness) -> None:
    """It dies after one of the sinks, and before Spark's commit."""
    deaths = [(CrashPoint.AFTER_SINK, 3), (CrashPoint.BEFORE_COMMIT, 2)]
    for point, times in deaths:
        left = [times]

        def die(at_point: CrashPoint, of: CrashPoint = point, left: list[int] = left) -> None:
            if at_point is of:
                left[0] -= 1
                if left[0] == 0:
                    raise RuntimeError(f"died at {of.value}")

        with armed(die), pytest.raises(Exception, match="died at"):
            drive.run(application(drive, SortedWithState, parallelism=1), run__max_batch_bytes="1 KiB")
    drive.run(application(drive, SortedWithState, parallelism=1), run__max_batch_bytes="1 KiB")
    check(drive, stopped=True)


@pytest.mark.nightly("the unit tests of plans")
def test_an_output_may_be_all_that_is_read(drive: Harness) -> None:
    app = Application("only")
    made = events(app, ROWS, SCHEMA, "1 s").process(Sorted)
    drive.sink(made.output("large").window(windows.tumbling("1 h")).count(), "counts")
    drive.run(app)
    assert [r["count"] for r in drive.rows("counts")] == [len(ROWS) - LARGE]


def test_an_output_that_is_not_declared_stops_the_run(drive: Harness) -> None:
    class Wrong(Sorted):
        def on_next(self, message: Any) -> Iterator[NamedOutput]:
            yield NamedOutput("larger", 1)

    app = Application("wrong")
    drive.sink(events(app, ROWS, SCHEMA).process(Wrong, returns=str))
    with pytest.raises(OperatorError, match="no output 'larger': its class declares large, fives"):
        drive.run(app)

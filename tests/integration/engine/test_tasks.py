"""Tasks: their life, their partitioners, their state; and the low-level graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from harness import Harness, at, events

from drivetrain import (
    Application,
    Processor,
    Task,
    TaskContext,
    TimestampedValue,
    partitioners,
    sinks,
    sources,
)
from drivetrain.api.partitioners import Partitioner
from drivetrain.errors import GraphError, OperatorError

SCHEMA = "ts timestamp, key string, n bigint"
ROWS = [(at(i * 1000), f"k{i % 7}", i) for i in range(200)]
BESIDE_OTHERS = pytest.mark.nightly("other partitioners distribute by day; the unit tests of partitioners")


class Tag(Task[Any, tuple[str, int]]):
    def on_start(self, context: TaskContext) -> None:
        self.index = context.index

    def on_next(self, message: Any) -> Iterator[tuple[str, int]]:
        yield message.key, self.index


@pytest.mark.parametrize(
    "partitioner",
    [
        pytest.param(partitioners.hash("key"), marks=BESIDE_OTHERS),
        partitioners.shuffle(),
        partitioners.shuffle_grouping(),
        partitioners.custom(lambda m, n: m.n % n),
        pytest.param(partitioners.broadcast(), marks=BESIDE_OTHERS),
    ],
    ids=str,
)
def test_partitioners_distribute_as_they_say(drive: Harness, partitioner: Partitioner) -> None:
    app = Application("tagged")
    stream = events(app, ROWS, SCHEMA).select("key", "n")
    drive.sink(stream.process(Tag, parallelism=3, partitioner=partitioner))
    drive.run(app)
    found = [(r["key"], r["value"]) for r in drive.rows()]
    tasks = Counter(index for _, index in found)
    if partitioner.kind == "broadcast":
        assert tasks == {0: 200, 1: 200, 2: 200}
        return
    assert len(found) == 200
    if partitioner.kind == "hash":
        assert len({key for key, _ in found}) == len(set(found))
    if partitioner.kind == "custom":
        assert tasks == {0: 67, 1: 67, 2: 66}
    if partitioner.kind in ("shuffle", "shuffle grouping"):
        assert max(tasks.values()) - min(tasks.values()) <= 6


class Doubler(Task[Any, Any]):
    output = "n bigint"

    def on_batch(self, batch: pa.RecordBatch) -> Iterable[pa.Table]:
        table = pa.Table.from_batches([batch])
        yield table.set_column(table.schema.get_field_index("n"), "n", pc.multiply(table["n"], 2))


@pytest.mark.nightly("random applications draw Tasks; test_python_stage")
def test_a_task_may_take_whole_batches(drive: Harness) -> None:
    app = Application("batches")
    drive.sink(events(app, ROWS, SCHEMA).select("n").process(Doubler, parallelism=2))
    drive.run(app)
    assert sorted(r["n"] for r in drive.rows()) == [2 * n for _, _, n in ROWS]


class Total(Task[Any, tuple[str, int]]):
    stateful = True

    def on_start(self, context: TaskContext) -> None:
        self.totals: dict[str, int] = {}
        self.clocks: list[int] = []

    def on_next(self, message: Any) -> None:
        self.totals[message.key] = self.totals.get(message.key, 0) + message.n

    def on_clock(self, clock_ms: int) -> None:
        self.clocks.append(clock_ms)

    def on_stop(self) -> Iterator[tuple[str, int]]:
        assert self.clocks == sorted(self.clocks)
        yield from self.totals.items()


@pytest.mark.nightly("random applications draw Tasks")
def test_a_stateful_task_keeps_its_attributes_and_emits_at_the_end(drive: Harness) -> None:
    app = Application("stateful")
    stream = events(app, ROWS, SCHEMA).select("key", "n")
    made = stream.process(Total, parallelism=2, partitioner=partitioners.hash("key"), returns=tuple[str, int])
    drive.sink(made)
    drive.run(app)
    wanted = Counter[str]()
    for _, key, n in ROWS:
        wanted[key] += n
    assert {r["key"]: r["value"] for r in drive.rows()} == dict(wanted)


class Forgetful(Task[Any, int]):
    def on_start(self, context: TaskContext) -> None:
        self.seen = 0

    def on_next(self, message: Any) -> Iterator[int]:
        self.seen += 1
        yield self.seen


@pytest.mark.nightly("random applications run tasks; the unit tests of compiling refuse them")
def test_a_stateless_task_that_keeps_state_is_refused(drive: Harness) -> None:
    app = Application("forgetful")
    drive.sink(events(app, ROWS, SCHEMA).process(Forgetful))
    with pytest.raises(OperatorError, match=r"changed its attribute 'seen'.*\n?.*stateful = True"):
        drive.run(app)


class Later(Task[Any, int]):
    def on_next(self, message: Any) -> Iterator[Any]:
        yield TimestampedValue(86_400_000, message.n)

    def on_stop(self) -> Iterator[int]:
        yield -1


def test_results_may_have_their_own_timestamp_and_on_stop_is_heard(drive: Harness) -> None:
    app = Application("later")
    made = events(app, ROWS[:5], SCHEMA).process(Later, parallelism=2, returns=int)
    drive.sink(made)
    drive.run(app)
    assert Counter(r["value"] for r in drive.rows()) == Counter([0, 1, 2, 3, 4, -1, -1])


class Split(Task[str, str]):
    def on_next(self, message: str) -> list[str]:
        return message.split()


class Count(Task[str, tuple[str, int]]):
    stateful = True

    def on_start(self, context: TaskContext) -> None:
        self.counts: Counter[str] = Counter()

    def on_next(self, message: str) -> list[tuple[str, int]]:
        self.counts[message] += 1
        return []

    def on_stop(self) -> Iterator[tuple[str, int]]:
        yield from self.counts.items()


@pytest.mark.nightly("test_outputs_of_tasks reaches what it reaches")
def test_the_low_level_graph_runs_what_is_connected(drive: Harness) -> None:
    app = Application("low-level")
    read = Processor(sources.items(["a b a", "b c"], schema="value string"))
    split, count = Processor(Split, parallelism=2), Processor(Count, parallelism=2)
    out = Processor(sinks.parquet(drive.out()))
    app.connect(read, split, partitioners.shuffle())
    app.connect(split, count, partitioners.hash("value"))
    app.connect(count, out)
    drive.run(app)
    assert {r["key"]: r["value"] for r in drive.rows()} == {"a": 2, "b": 2, "c": 1}


def test_a_cycle_is_refused_with_its_path() -> None:
    app = Application("ring")
    a, b = Processor(Split, name="a"), Processor(Split, name="b")
    app.connect(a, b)
    app.connect(b, a)
    with pytest.raises(GraphError, match=r"cycle: .*(a → b → a|b → a → b)"):
        app.graph()


class Closing(Task[Any, str]):
    def on_next(self, message: Any) -> Iterator[str]:
        yield message.key

    def on_stop(self) -> Iterator[str]:
        yield "end"


@pytest.mark.nightly("test_persistent_tasks reaches what it reaches")
def test_a_stateless_task_in_front_of_a_window_hears_the_end(drive: Harness) -> None:
    app = Application("closing")
    keys = events(app, ROWS[:20], SCHEMA).process(Closing, returns=str)
    drive.sink(keys.group_by("value").count())
    drive.run(app)
    found = {r["value"]: r["count"] for r in drive.rows()}
    assert found.pop("end") == 1
    assert sum(found.values()) == 20


def test_a_partitioner_in_front_of_a_sink_moves_the_messages(drive: Harness) -> None:
    app = Application("moved")
    read = Processor(sources.items([(i,) for i in range(30)], schema="n bigint"))
    out = Processor(sinks.parquet(drive.out()), parallelism=3)
    app.connect(read, out, partitioners.broadcast())
    drive.run(app)
    assert Counter(r["n"] for r in drive.rows()) == Counter(dict.fromkeys(range(30), 3))

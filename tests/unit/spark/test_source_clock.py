"""Which sources have partitions, and what a batch's largest timestamps say of their clock."""

from __future__ import annotations

import pyarrow as pa
import pytest

from drivetrain import Application, sinks, sources
from drivetrain.api.graphs.graph import Graph
from drivetrain.errors import GraphError
from drivetrain.spark.compile.python_stage import PythonStage, Step
from drivetrain.spark.connector.newest import Newest
from drivetrain.spark.connector.source import OpenedSource, Position
from drivetrain.spark.prepare.source_clock import PartitionClocks, Partitions, partitions_of, read_newest


class Opened(OpenedSource):
    def position(self, offset: str | None) -> Position:
        return Position(0, None, finished=False)


def opened(partitions: int, *, bounded: bool = False, idle_ms: int | None = 5) -> OpenedSource:
    source = Opened()
    source.bounded, source.partitions, source.idle_ms = bounded, partitions, idle_ms
    return source


def graph(*, watch: bool = True, **partitions: object) -> Graph:
    app = Application("shards")
    read = app.read(sources.json("in/", schema="ts bigint, shard int", watch=watch), name="in")
    read.event_time("ts", name="timed", **partitions).sink(sinks.none())  # type: ignore[arg-type]
    return app.graph()


def test_declared_partitions_are_idle_only_without_an_end() -> None:
    given = {"partition": "shard", "partitions": 3, "idle_timeout": "7 ms"}
    assert partitions_of(graph(**given), "timed", {}) == Partitions(3, 7)
    assert partitions_of(graph(watch=False, **given), "timed", {}) == Partitions(3, None)
    assert partitions_of(graph(partition="shard", partitions=1), "timed", {}) is None


def test_a_source_that_knows_its_partitions_says_them() -> None:
    assert partitions_of(graph(), "timed", {"in": opened(4)}) == Partitions(4, 5)
    assert partitions_of(graph(), "timed", {"in": opened(4, bounded=True)}) == Partitions(4, None)
    assert partitions_of(graph(), "timed", {"in": opened(0)}) is None


def test_partitions_of_two_sources_are_not_told_apart() -> None:
    app = Application("both")
    left = app.read(sources.json("a/", schema="ts bigint", watch=True), name="a")
    right = app.read(sources.json("b/", schema="ts bigint", watch=True), name="b")
    left.union(right).event_time("ts", name="timed").sink(sinks.none())
    assert partitions_of(app.graph(), "timed", {"a": opened(2), "b": opened(2)}) is None


@pytest.mark.parametrize(
    "given",
    [
        {"partitions": 3},
        {"idle_timeout": "1 s"},
        {"partition": "shard"},
        {"partition": "shard", "partitions": 0},
        {"partition": "shard", "partitions": ["a", "a"]},
        {"partition": "shard", "partitions": ["a", 1]},
    ],
)
def test_partitions_that_make_no_sense_are_refused(given: dict[str, object]) -> None:
    with pytest.raises(GraphError):
        graph(**given)


def test_what_spark_observed_is_read_by_name() -> None:
    assert read_newest({"newest": 7}) == Newest(7)
    assert read_newest({}) == Newest(None)
    seen = read_newest({"newest": 7, "newest 0": 7, "newest 1": None, "newest 2": 3, "unknown": 0})
    assert seen == Newest(7, {0: 7, 2: 3}, 0, is_partitioned=True)


def test_a_message_of_an_unknown_partition_stops_the_clock() -> None:
    clocks = PartitionClocks(Partitions(2, 100), 0, 0)
    clocks.observe(Newest(9, {0: 9, 1: 5}, is_partitioned=True), 10, 10)
    assert (clocks.clock_ms, clocks.waiting_for) == (5, "partition 1 of its source")
    clocks.observe(Newest(99, {0: 99, 1: 98}, unknown=1, is_partitioned=True), 20, 20)
    assert clocks.has_outgrown
    assert not clocks.looked(10_000)
    assert clocks.clock_ms == 5


def test_the_number_of_a_partition_passes_python_functions() -> None:
    def doubled(n: int) -> list[int]:
        return [n, n] if n != 2 else []

    schema = pa.schema([("value", pa.int64())])
    app = Application("steps")
    made = app.read(sources.items([(1,)], "n long")).flat_map(doubled, returns=int)
    operation = app._nodes[made.id].operation
    step = Step("flat_map", doubled, "flat_map", operation.function.type, False, None)
    stage = PythonStage((step,), ("n",), schema, False, False, True)
    batch = pa.RecordBatch.from_arrays(
        [pa.array([1, 2, 3], pa.int64()), pa.array([4, 5, 6], pa.int32())], names=["n", "__part"]
    )
    (out,) = stage([batch])
    assert out.to_pydict() == {"value": [1, 1, 3, 3], "__part": [4, 4, 6, 6]}

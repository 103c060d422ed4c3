"""Tables in a real object store, also while requests to it fail: each row once, and what a batch costs."""

from __future__ import annotations

import itertools
import random
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from stored_table import StoredTable

from drivetrain.api import sinks
from drivetrain.connectors.opening import open_sink
from drivetrain.crash_points import CrashPoint, armed
from drivetrain.errors import DrivetrainError, OutputError
from drivetrain.spark.connector.publishing import publish_transaction
from drivetrain.spark.connector.sink import SinkContext
from drivetrain.spark.measure import small_batches
from object_store import S3Server
from store_faults import Fault, FaultyStore

sys.path.insert(0, str(Path(__file__).parents[2] / "unit" / "spark" / "sinks"))
from arrow_frame import ArrowFrame, rows

BATCHES = 6

ONLY_DELTA = pytest.mark.parametrize("table", ["delta"], indirect=True)
"""The proxy does not understand how Arrow's client of S3, which Iceberg's library uses, sends bodies."""


@pytest.fixture(params=["delta", "iceberg"])
def table(
    request: pytest.FixtureRequest, s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> StoredTable:
    monkeypatch.setattr(small_batches, "small_table", ArrowFrame.toArrow)
    return StoredTable(request.param, s3, f"t{abs(hash(request.node.name)):x}"[:40], tmp_path)


def test_a_process_that_slept_is_refused_and_files_of_the_dead_are_deleted(table: StoredTable) -> None:
    sink, zombie = table.open(), table.open()
    sink.validate()
    sink.write(rows(1), 0)
    zombie.prepare(rows(2), 1)

    def overtaken(point: CrashPoint) -> None:
        if point is CrashPoint.IN_TRANSACTION and not woken:
            woken.append(point)
            assert sink.write(rows(2), 1) == 1

    woken: list[CrashPoint] = []
    with armed(overtaken):
        assert publish_transaction({"a": zombie}, 1, {"a": 1}) == {"a": 0}
    assert woken
    again = table.open()
    again.validate()
    assert again.write(rows(2), 1) == 0
    assert again.write(rows(3), 2) == 1
    assert table.ids() == [1, 2, 3]
    if table.kind == "delta":
        above = sinks.delta(again._sink.path.rpartition("/")[0])
        with pytest.raises(OutputError, match="is not a Delta table"):
            open_sink(above, SinkContext("app-2", "x", "unused", again._context.config)).validate()


def test_two_applications_write_to_one_table_at_the_same_time(table: StoredTable) -> None:
    errors: list[BaseException] = []

    def write(app: str, first: int) -> None:
        try:
            sink = table.open(app=app)
            for batch in range(BATCHES):
                sink.write(rows(first + batch), batch)
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            errors.append(error)

    threads = [threading.Thread(target=write, args=one) for one in (("one", 0), ("two", 100))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert errors == []
    assert table.ids() == [*range(BATCHES), *range(100, 100 + BATCHES)]


@pytest.mark.nightly(
    "the unit tests of compaction and of repeated requests; other tests of this module use a store"
)
@ONLY_DELTA
@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(n, marks=pytest.mark.nightly("more seeds")) for n in range(2, 8))]
)
def test_every_row_is_there_once_while_requests_fail(table: StoredTable, s3: S3Server, seed: int) -> None:
    """A process that gives up is followed by another, as when the same command is run again."""
    with FaultyStore(s3.endpoint, silence_s=5.5) as proxy:
        table.endpoint = proxy.endpoint
        proxy.plan = failing(random.Random(seed))
        committed, tries = -1, itertools.count()
        while committed < BATCHES - 1:
            assert next(tries) < 20
            sink = table.open(timeout="20 s")
            try:
                while committed < BATCHES - 1:
                    sink.write(rows(committed + 1), committed + 1)
                    committed += 1
            except DrivetrainError as error:
                print(f"seed {seed}: {error}")
        assert proxy.faults[Fault.LOST_ANSWER] + proxy.faults[Fault.BUSY] > 2
    assert table.ids() == list(range(BATCHES))


def failing(chance: random.Random) -> Callable[[str, str], Fault]:
    faults = [Fault.BUSY, Fault.LOST_ANSWER, Fault.CUT_BODY]

    def plan(method: str, _: str) -> Fault:
        return chance.choice(faults) if chance.random() < 0.08 else Fault.NONE

    return plan


@pytest.fixture
def counting(s3: S3Server) -> Iterator[FaultyStore]:
    with FaultyStore(s3.endpoint) as proxy:
        yield proxy


@pytest.mark.nightly("other tests of this module reach what it reaches")
@ONLY_DELTA
def test_a_batch_costs_as_many_requests_as_the_guide_says(table: StoredTable, counting: FaultyStore) -> None:
    table.endpoint = counting.endpoint
    sink = table.open()
    for batch in range(4):
        sink.write(rows(batch), batch)
    before = dict(counting.requests)
    for batch in range(4, 12):
        sink.write(rows(batch), batch)
    each = {name: (count - before.get(name, 0)) / 8 for name, count in counting.requests.items()}
    assert each["PUT"] == 2
    assert sum(each.values()) < 60


def test_a_table_in_a_store_has_partitions(table: StoredTable) -> None:
    sink = table.open(partition_by="p")
    batch = ArrowFrame(pa.table({"id": pa.array([1, 2], pa.int64()), "p": ["a/b", "c"]}))
    assert sink.write(batch, 0) == 2
    assert table.ids() == [1, 2]

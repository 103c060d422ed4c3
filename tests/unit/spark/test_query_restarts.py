"""When a fragment's query restarts for another trunk, and of which columns a state may be read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from drivetrain.api import agg, col, windows
from drivetrain.api.operations import Aggregate, Deduplicate
from drivetrain.core.change.graph_version import FragmentRecord, GraphVersion, ProcessorRecord
from drivetrain.errors import UserError
from drivetrain.spark.run.trunk_changes import TrunkChanges, _refuse_other_columns

READ = FragmentRecord(("read",), ("read",), (), None)


def version(number: int, code: str) -> Any:
    record = ProcessorRecord("read", "read", "files", code, ())
    return SimpleNamespace(record=GraphVersion("shop", {"read": record}, {"read": READ}, number))


class Driver:
    """Stands in for the driver of a fragment whose query has the trunk of version 1."""

    fragment, is_recovering, is_finished, has_lost_its_query = "read", False, False, False

    def __init__(self) -> None:
        self.is_draining, self.drains, self.restarted = False, 0, 0
        versions = SimpleNamespace(trunk=1)
        self.query: Any = SimpleNamespace(versions=versions, has_failed=False, has_drained=False, batch_id=4)
        self.query.replay_until = -1
        self.query.is_committed = lambda: self.is_committed
        self.is_committed = True

    def drain(self) -> None:
        self.drains += 1

    def restart(self, _ready: object) -> None:
        self.restarted += 1


@pytest.fixture
def driver() -> Driver:
    return Driver()


@pytest.fixture
def trunks(driver: Driver) -> TrunkChanges:
    known = {1: version(1, "a"), 2: version(2, "b"), 3: version(3, "a")}
    versions: Any = SimpleNamespace(of_number=known.__getitem__)
    drivers: Any = {"read": driver}
    return TrunkChanges(versions, drivers)


def test_a_version_with_the_same_trunk_needs_no_restart(trunks: TrunkChanges, driver: Driver) -> None:
    assert not trunks.restarts("read", 1, on_trial=False)
    assert not trunks.restarts("read", 3, on_trial=True)
    assert driver.drains == 0


def test_a_query_restarts_once_its_batch_has_ended_and_is_committed(
    trunks: TrunkChanges, driver: Driver
) -> None:
    driver.is_draining = True
    assert trunks.restarts("read", 2, on_trial=True)
    driver.is_draining, driver.is_committed = False, False
    assert trunks.restarts("read", 2, on_trial=True)
    assert (driver.drains, driver.restarted) == (2, 0)
    driver.is_committed = True
    assert trunks.restarts("read", 2, on_trial=True)
    assert driver.restarted == 1


def test_the_batch_of_an_earlier_query_comes_before_the_restart(trunks: TrunkChanges, driver: Driver) -> None:
    driver.query.replay_until = 5
    assert trunks.restarts("read", 2, on_trial=False)
    assert driver.drains == 0


def test_a_query_that_was_drained_restarts_though_the_change_was_given_up(
    trunks: TrunkChanges, driver: Driver
) -> None:
    driver.is_draining = True
    trunks.restarts("read", 2, on_trial=True)
    driver.is_draining = False
    driver.query.has_failed = driver.query.has_drained = True
    assert trunks.restarts("read", 1, on_trial=False)
    assert driver.restarted == 1


def columns(**of: Any) -> StructType:
    return StructType([StructField(name, kind) for name, kind in of.items()])


def refuses(operation: Any, before: StructType, after: StructType, *, read: bool) -> bool:
    node = SimpleNamespace(id="counted", operation=operation)
    loaded: Any = SimpleNamespace(plan=SimpleNamespace(graph=SimpleNamespace(nodes={"counted": node})))
    fragment: Any = SimpleNamespace(stateful="counted")
    same = columns(n=LongType())

    def trunk(made: StructType) -> Any:
        df = SimpleNamespace(schema=same if read else made)
        return SimpleNamespace(df=df, reads=lambda: (made if read else same,))

    try:
        _refuse_other_columns(loaded, fragment, trunk(before), trunk(after))
    except UserError as error:
        return "made of other columns" in error.what
    return False


def test_an_aggregation_keeps_its_state_if_its_results_have_the_same_types() -> None:
    count = Aggregate((("value", col("value")),), windows.tumbling("1 h"), (("n", agg.count()),))
    number, text = columns(value=LongType()), columns(value=StringType())
    assert refuses(count, number, text, read=False)
    assert not refuses(count, number, number, read=False)
    assert not refuses(count, number, text, read=True), "a column more before it changes nothing"


def test_other_states_keep_theirs_if_they_read_the_same_columns() -> None:
    dedup = Deduplicate(("value",), 1000)
    number, more = columns(value=LongType()), columns(value=LongType(), more=LongType())
    assert refuses(dedup, number, more, read=True)
    assert not refuses(dedup, number, number, read=True)

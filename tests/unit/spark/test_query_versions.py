"""Which version of its branches a batch runs with."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from drivetrain.runtime.batch_versions import BatchVersions
from drivetrain.spark.batch.query_versions import BranchSet, QueryVersions


class Rolling:
    """A sink whose batches may wait until they are shown."""

    guarantee = "exactly once"

    def __init__(self) -> None:
        self.is_finished = False

    def validate(self) -> None:
        """It can be written."""

    check_fresh = fresh = validate

    def write(self, _df: object, _batch_id: int) -> int:
        return 0

    def roll(self, released: int | None = None, *, ends: bool = False) -> None:
        assert released is None
        self.is_finished = ends


def branch_set(number: int, **sinks: Rolling) -> BranchSet:
    anything: Any = SimpleNamespace(sinks=sinks)
    return BranchSet(number, anything, anything, anything)


def test_a_batch_that_a_crash_interrupted_keeps_its_version_and_the_next_one_goes_over(
    tmp_path: Path,
) -> None:
    BatchVersions(tmp_path).note(0, 1)
    one, two = branch_set(1), branch_set(2)
    versions = QueryVersions(BatchVersions(tmp_path), two, replay_until=4)
    versions.running = one  # as a query that finds an earlier version noted begins
    assert versions.before_batch(4) is one
    assert versions.began(2) is None
    assert versions.before_batch(5) is two
    assert versions.began(2) == 5
    noted = BatchVersions(tmp_path)
    assert [noted.version_of(batch) for batch in (4, 5)] == [1, 2]


def test_a_batch_that_failed_runs_with_the_version_that_is_wanted(tmp_path: Path) -> None:
    BatchVersions(tmp_path).note(0, 1)
    BatchVersions(tmp_path).note_free(4)
    two = branch_set(2)
    versions = QueryVersions(BatchVersions(tmp_path), two, replay_until=4)
    versions.running = branch_set(1)
    assert versions.before_batch(4) is two
    assert BatchVersions(tmp_path).version_of(4) == 2


def test_the_version_is_on_disk_before_the_batch_runs_and_a_failure_frees_it(tmp_path: Path) -> None:
    versions = QueryVersions(BatchVersions(tmp_path), branch_set(1), replay_until=-1)
    versions.before_batch(0)
    assert BatchVersions(tmp_path).version_of(0) == 1
    versions.failed(0)
    assert BatchVersions(tmp_path).version_of(0) is None


def test_sinks_that_go_are_finished_and_those_that_stay_are_not(tmp_path: Path) -> None:
    goes, stays, changes = Rolling(), Rolling(), Rolling()
    before, after = (
        branch_set(1, goes=goes, stays=stays, changes=changes),
        branch_set(2, stays=stays, changes=Rolling()),
    )
    versions = QueryVersions(BatchVersions(tmp_path), before, replay_until=-1)
    versions.before_batch(0)
    versions.want(after)
    assert versions.before_batch(1) is after
    assert (goes.is_finished, stays.is_finished, changes.is_finished) == (True, False, True)
    assert versions.began(1) is None, "of a version that is left nothing is remembered"

"""Which version of its branches a batch runs with."""

from __future__ import annotations

import dataclasses
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from drivetrain.runtime.batch_versions import BatchVersions
from drivetrain.spark.batch.fragment_query import BatchFailedError
from drivetrain.spark.batch.micro_batch_query import MicroBatchQuery
from drivetrain.spark.batch.query_versions import BranchSet, QueryVersions
from drivetrain.spark.batch.version_changes import VersionChanges


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
    anything: Any = SimpleNamespace(sinks=sinks, is_released=False)

    def release() -> None:
        anything.is_released = True

    anything.release = release
    return BranchSet(number, anything, anything, anything)


def is_released(branch_set: BranchSet) -> bool:
    of_test: Any = branch_set.branches
    return bool(of_test.is_released)


def test_a_batch_that_a_crash_interrupted_keeps_its_version_and_the_next_one_goes_over(
    tmp_path: Path,
) -> None:
    BatchVersions(tmp_path).note(0, 1)
    one, two = branch_set(1), branch_set(2)
    versions = QueryVersions(BatchVersions(tmp_path), two, replay_until=4)
    versions.running = one  # as a query that finds an earlier version noted begins
    assert versions.before_batch(4) is one
    assert versions.began(2) is None
    assert not is_released(one)
    assert versions.before_batch(5) is two
    assert is_released(one)
    assert not is_released(two)
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


def test_the_set_that_a_trial_goes_back_to_is_at_hand(tmp_path: Path) -> None:
    one, two, three = branch_set(1), branch_set(2), branch_set(3)
    versions = QueryVersions(BatchVersions(tmp_path), one, replay_until=-1)
    versions.before_batch(0)
    versions.want(two)
    assert [versions.at_hand(number) for number in (1, 2)] == [one, two]
    versions.before_batch(1)
    assert [versions.at_hand(number) for number in (1, 2)] == [one, two]
    versions.want(one)
    assert versions.before_batch(2) is one
    versions.want(three)
    versions.before_batch(3)
    assert versions.at_hand(2) is None, "it has no place in a later change"


def test_a_batch_that_is_not_begun_is_free_unless_a_crash_has_interrupted_it(tmp_path: Path) -> None:
    BatchVersions(tmp_path).note(0, 1)
    QueryVersions(BatchVersions(tmp_path), branch_set(2), replay_until=4).not_begun(4)
    assert BatchVersions(tmp_path).version_of(4) == 1, "outputs may have it from the first version"
    QueryVersions(BatchVersions(tmp_path), branch_set(2), replay_until=4).not_begun(5)
    assert BatchVersions(tmp_path).version_of(5) is None


class StopError(Exception):
    """What a batch raises when Spark is told to stop it, or when its own code fails."""


def on_batch(query: MicroBatchQuery, batch_id: int) -> None:
    empty: Any = None
    with pytest.raises(BatchFailedError):
        query._on_batch(empty, batch_id)


@pytest.fixture
def query(tmp_path: Path) -> MicroBatchQuery:
    """A query after a crash in its batch 4, which ran with version 1; what it runs raises."""
    BatchVersions(tmp_path).note(0, 1)
    made: Any = MicroBatchQuery.__new__(MicroBatchQuery)
    made.fragment, made.directory, made.error = SimpleNamespace(id="read"), tmp_path, None
    made._draining, made.turn, made._is_stopping = threading.Event(), threading.Lock(), False
    made.flow, made.is_held = SimpleNamespace(wait_room=lambda _: None), False
    made.versions = QueryVersions(BatchVersions(tmp_path), branch_set(1), replay_until=4)
    made.branches = made.versions.running.branches

    def fails(*_: object) -> None:
        raise StopError

    made._run_batch = fails
    pipeline: Any = None
    made.changes = VersionChanges(made, pipeline)
    found: MicroBatchQuery = made
    return found


def test_a_stop_before_a_batch_does_not_free_the_one_that_a_crash_interrupted(
    query: MicroBatchQuery, tmp_path: Path
) -> None:
    query.drain()
    on_batch(query, 4)
    assert BatchVersions(tmp_path).version_of(4) == 1


def test_a_batch_that_is_stopped_midway_keeps_its_version_and_one_that_fails_does_not(
    query: MicroBatchQuery, tmp_path: Path
) -> None:
    query._is_stopping = True
    on_batch(query, 5)
    assert BatchVersions(tmp_path).version_of(5) == 1
    query._is_stopping = False
    on_batch(query, 4)
    assert BatchVersions(tmp_path).version_of(4) is None, "its own code has failed, which may be corrected"


def test_a_batch_that_has_failed_with_a_version_that_is_not_wanted_may_run_with_the_wanted_one(
    tmp_path: Path,
) -> None:
    BatchVersions(tmp_path).note(0, 1)
    one, two = branch_set(1), branch_set(2)
    versions = QueryVersions(BatchVersions(tmp_path), two, replay_until=4)
    versions.running = one
    assert versions.before_batch(4) is one
    assert not versions.has_left(4), "outputs may have it"
    versions.failed(4)
    assert versions.has_left(4)
    assert versions.before_batch(4) is two
    versions.failed(4)
    assert not versions.has_left(4), "the version in force has failed"


def test_what_runs_in_a_handover_is_noted_with_both_versions(tmp_path: Path) -> None:
    alone = branch_set(2)
    both = dataclasses.replace(branch_set(2), before=1, alone=alone)
    versions = QueryVersions(BatchVersions(tmp_path), branch_set(1), replay_until=-1)
    versions.before_batch(0)
    versions.want(both)
    assert versions.before_batch(1) is both
    assert versions.at_hand(2) is alone, "it follows"
    versions.want(alone)
    versions.note_next(2)
    noted = [BatchVersions(tmp_path).since_of(batch) for batch in (0, 1, 2)]
    assert [(one.version, one.before) for one in noted if one] == [(1, 0), (2, 1), (2, 0)]
    assert versions.began(2) == 1
    assert versions.before_batch(2) is alone
    assert versions.began(2) == 1, "it is the same version"


def test_a_version_that_is_not_wanted_runs_only_the_batch_that_is_bound_to_it(tmp_path: Path) -> None:
    BatchVersions(tmp_path).note(0, 2)
    one, two = branch_set(1), branch_set(2)
    versions = QueryVersions(BatchVersions(tmp_path), two, replay_until=4)
    assert versions.can_still_run(2, 4), "it is wanted"
    versions.want(one)
    assert versions.can_still_run(2, 3), "batch 4 was interrupted"
    assert versions.before_batch(4) is two
    assert not versions.can_still_run(2, 4)


def test_messages_that_reached_a_version_say_nothing_about_the_next_one(tmp_path: Path) -> None:
    one, two = branch_set(1), branch_set(2)
    versions = QueryVersions(BatchVersions(tmp_path), one, replay_until=-1)
    versions.before_batch(0)
    versions.note_reached(0)
    versions.note_reached(1)
    assert (versions.reached(1), versions.reached(2)) == (0, None)
    versions.want(two)
    assert versions.reached(1) == 0
    versions.before_batch(2)
    assert (versions.reached(1), versions.reached(2)) == (None, None)
    versions.note_reached(3)
    assert (versions.reached(2), versions.reached(2, before=1)) == (3, None)

"""What reports of fragments mean for the trial of a version."""

from __future__ import annotations

from drivetrain.cluster.app_master.stream.trial_events import events_of
from drivetrain.cluster.messages.changing import VersionReport
from drivetrain.core.change.change_events import (
    BatchBegan,
    BatchCommitted,
    BatchFailed,
    Change,
    FragmentEnded,
    FragmentWaited,
)

CHANGE = Change(2, 1, frozenset({"new", "old"}), starts=("new",))


def test_a_batch_of_the_version_on_trial_begins_and_is_committed() -> None:
    assert events_of(VersionReport("new", 1, 2, began=0), CHANGE) == [BatchBegan("new", 0)]
    seen = VersionReport("new", 1, 2, began=0, has_committed=True)
    assert events_of(seen, CHANGE) == [BatchBegan("new", 0), BatchCommitted("new")]


def test_a_fragment_that_fails_after_it_has_committed_an_empty_batch_fails_the_trial() -> None:
    seen = VersionReport("new", 1, 2, began=0, has_committed=True, failure="division by zero")
    assert events_of(seen, CHANGE) == [BatchBegan("new", 0), BatchFailed("new", "division by zero")]


def test_the_clock_may_be_at_the_time_of_a_version_before_any_batch_of_it() -> None:
    assert events_of(VersionReport("old", 1, 2, has_committed=True), CHANGE) == [FragmentEnded("old")]


def test_a_fragment_that_has_waited_for_messages_is_not_awaited_any_more() -> None:
    seen = VersionReport("new", 1, 2, began=0, has_waited=True)
    assert events_of(seen, CHANGE) == [BatchBegan("new", 0), FragmentWaited("new")]
    assert events_of(VersionReport("old", 1, 2, has_waited=True), CHANGE) == [FragmentWaited("old")]


def test_other_versions_and_fragments_mean_nothing_for_a_trial() -> None:
    assert events_of(VersionReport("new", 1, 1, failure="x"), CHANGE) == []
    assert events_of(VersionReport("other", 1, 2, failure="x"), CHANGE) == []

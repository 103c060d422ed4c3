"""Statuses of a cluster as the events of a run: each says only what is new."""

from __future__ import annotations

import msgspec
import pytest
from scripted_cluster import world

from drivetrain.cli.clusters.cluster_progress import StatusEvents, fragment_state, result_of
from drivetrain.cluster.messages.following import ErrorView, FragmentView, JobState, OutputView
from drivetrain.core.job.fragment_execution import ExecutionState
from drivetrain.core.job.run_progress import (
    FragmentProgressed,
    FragmentState,
    FragmentStateChanged,
    InputProgressed,
    NoticeGiven,
    OutputResult,
    ProcessorResult,
    RunStarted,
)

ERROR = ErrorView("operator", "it raised")


def status(*fragments: FragmentView, **changes: object) -> object:
    return world.status_of(fragments=fragments, **changes)


def test_the_first_status_begins_and_the_same_again_says_nothing() -> None:
    events = StatusEvents()
    first = status(FragmentView("a", "running", 1, batch_id=0, rows_total=5), fraction=0.5)
    assert events.of(first) == [
        RunStarted("wc-1", ("a",)),
        FragmentStateChanged("a", FragmentState.RUNNING),
        FragmentProgressed("a", 0, 5, 0.0, 0),
        InputProgressed(0.5),
    ]
    assert events.of(first) == []
    assert events.of(msgspec.structs.replace(first, now_ms=99_000)) == []


def test_an_error_is_told_once_with_the_attempt_that_follows_it() -> None:
    events = StatusEvents()
    events.of(status(FragmentView("a", "running", 1)))
    assert events.of(status(FragmentView("a", "scheduled", 2, error=ERROR))) == [
        FragmentStateChanged("a", FragmentState.RESTARTING, "attempt 2: it raised")
    ]
    assert events.of(status(FragmentView("a", "running", 2, error=ERROR))) == [
        FragmentStateChanged("a", FragmentState.RUNNING, "attempt 2")
    ]
    assert events.of(status(FragmentView("a", "created", 3, error=ERROR))) == [
        FragmentStateChanged("a", FragmentState.RESTARTING, "attempt 3")
    ]


def test_what_the_application_waits_for_and_that_it_restarts_are_notices() -> None:
    events = StatusEvents()
    events.of(status())
    waits = status(waiting_for="slots")
    assert events.of(waits) == [NoticeGiven("waiting: slots")]
    restarts = status(state=JobState.RESTARTING, errors=(ERROR,))
    assert events.of(restarts) == [NoticeGiven("the application restarts: it raised")]
    assert events.of(restarts) == []


@pytest.mark.parametrize("state", list(ExecutionState))
def test_every_state_of_an_execution_has_one_that_users_know(state: ExecutionState) -> None:
    first = fragment_state(FragmentView("a", state.value, 1))
    again = fragment_state(FragmentView("a", state.value, 2))
    assert (again is FragmentState.RESTARTING) == (first is FragmentState.STARTING)
    assert fragment_state(FragmentView("a", "of a newer version", 1)) is FragmentState.STARTING


def test_the_result_is_that_of_a_run() -> None:
    last = status(
        FragmentView("a", "finished", 1, batch_id=2),
        FragmentView("b", "finished", 1, batch_id=0),
        state=JobState.FINISHED,
        counts={"lines": (0, 7, 0, 0), "out": (7, 0, 1, 2)},
        outputs=(OutputView("out", "csv x", 7, "exactly once"),),
        accumulators={"n": 7},
        clock_ms=5,
    )
    result = result_of("wc-1", last, {"lines"})
    result.check()
    assert (result.duration_ms, result.batches, result.clock_ms) == (2_500, 4, 5)
    assert result.processors == (
        ProcessorResult("lines", 0, 7, is_source=True),
        ProcessorResult("out", 7, 0, 1, 2),
    )
    assert result.outputs == (OutputResult("out", "csv x", 7, "exactly once"),)
    assert dict(result.accumulators) == {"n": 7}

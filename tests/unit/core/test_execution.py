"""Executions: the table, row by row, against the reference's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain.core.job.fragment_execution import (
    TRANSITIONS,
    Execution,
    ExecutionEvent,
    ExecutionState,
    ExecutorId,
    FragmentId,
)
from drivetrain.errors import InternalError

S = ExecutionState
REFERENCE = {
    S.CREATED: {S.SCHEDULED, S.CANCELED, S.FAILED},
    S.SCHEDULED: {S.DEPLOYING, S.CANCELED, S.FAILED},
    S.DEPLOYING: {S.RUNNING, S.FINISHED, S.CANCELING, S.CANCELED, S.FAILED},
    S.RUNNING: {S.FINISHED, S.CANCELING, S.CANCELED, S.FAILED},
    S.CANCELING: {S.CANCELED},
    S.FINISHED: set(),
    S.CANCELED: set(),
    S.FAILED: set(),
}


def test_the_table_reaches_exactly_the_states_of_the_reference() -> None:
    reached = {state: set() for state in S}
    for (before, _), after in TRANSITIONS.items():
        if after is not before:
            reached[before].add(after)
    assert reached == REFERENCE


@pytest.mark.parametrize("end", [S.FINISHED, S.CANCELED, S.FAILED])
@pytest.mark.parametrize("event", ExecutionEvent)
def test_a_terminal_state_ignores_everything(end: ExecutionState, event: ExecutionEvent) -> None:
    execution = Execution(FragmentId("f"), 1)
    execution.state = end
    assert not execution.step(event)
    assert execution.state is end


@pytest.mark.parametrize("event", [ExecutionEvent.FINISHES, ExecutionEvent.FAILS, ExecutionEvent.IS_CANCELED])
def test_what_is_being_canceled_ends_as_canceled(event: ExecutionEvent) -> None:
    execution = Execution(FragmentId("f"), 1)
    execution.step(ExecutionEvent.SCHEDULE)
    execution.deploy(ExecutorId("e"))
    execution.step(ExecutionEvent.CANCEL)
    assert execution.state is S.CANCELING
    assert not execution.step(ExecutionEvent.RUNS)
    execution.step(event)
    assert execution.state is S.CANCELED


@given(st.lists(st.sampled_from(list(ExecutionEvent)), max_size=12))
def test_an_event_without_a_row_changes_nothing_and_says_how_it_came_to_be(
    events: list[ExecutionEvent],
) -> None:
    execution = Execution(FragmentId("f"), 1)
    for event in events:
        before = execution.state
        try:
            if event is ExecutionEvent.DEPLOY:
                execution.deploy(ExecutorId("e"))
            else:
                execution.step(event)
        except InternalError as error:
            refused = error
        else:
            refused = None
        if refused is not None:
            assert execution.state is before
            assert list(refused.history) == list(execution.history)
        assert execution.state is before or execution.state in REFERENCE[before]
        execution.check()

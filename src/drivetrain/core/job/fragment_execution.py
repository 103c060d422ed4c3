"""An execution: one attempt to run one fragment, from its creation to its end.

Problem: reports about an attempt come from another process, late, twice, or after the attempt was abandoned.
They must move the attempt along at the right moment and change nothing at any other.

Design: a table from (state, event) to the next state, and nothing else. Reports that are merely late (a
"running" after the end, a second "finished") have rows that keep the state; an event without a row is a bug
in the caller.

Invariants, checked by `check()`:
1. The state changes by the rows of `TRANSITIONS` only; an event without a row raises and changes nothing.
2. A terminal state is never left.
3. An attempt that is being canceled ends as canceled, whatever the executor reports.
4. An execution that was deployed knows where.

Called by `core.job.job`. Source: Apache Flink's execution states.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NewType

from drivetrain.errors import InternalError

FragmentId = NewType("FragmentId", str)
ExecutorId = NewType("ExecutorId", str)

_HISTORY: Final = 20


class ExecutionState(StrEnum):
    """The life of an attempt."""

    CREATED = "created"
    SCHEDULED = "scheduled"
    DEPLOYING = "deploying"
    RUNNING = "running"
    FINISHED = "finished"
    CANCELING = "canceling"
    CANCELED = "canceled"
    FAILED = "failed"

    @property
    def is_terminal(self) -> bool:
        """Whether no part of the attempt runs any more."""
        return self in _TERMINAL


_TERMINAL: Final = frozenset({ExecutionState.FINISHED, ExecutionState.CANCELED, ExecutionState.FAILED})


class ExecutionEvent(StrEnum):
    """The events of an attempt: the first three and `CANCEL` are ours, the executor reports the others."""

    SCHEDULE = "schedule"
    DEPLOY = "deploy"
    CANCEL = "cancel"
    RUNS = "runs"
    FINISHES = "finishes"
    FAILS = "fails"
    IS_CANCELED = "is canceled"


def _table() -> Mapping[tuple[ExecutionState, ExecutionEvent], ExecutionState]:
    state, event = ExecutionState, ExecutionEvent
    rows = {
        (state.CREATED, event.SCHEDULE): state.SCHEDULED,
        (state.CREATED, event.CANCEL): state.CANCELED,
        (state.CREATED, event.FAILS): state.FAILED,
        (state.SCHEDULED, event.DEPLOY): state.DEPLOYING,
        (state.SCHEDULED, event.CANCEL): state.CANCELED,
        (state.SCHEDULED, event.FAILS): state.FAILED,
        (state.DEPLOYING, event.RUNS): state.RUNNING,
        (state.DEPLOYING, event.FINISHES): state.FINISHED,  # it finished before it reported that it runs
        (state.DEPLOYING, event.CANCEL): state.CANCELING,
        (state.DEPLOYING, event.IS_CANCELED): state.CANCELED,
        (state.DEPLOYING, event.FAILS): state.FAILED,
        (state.RUNNING, event.RUNS): state.RUNNING,
        (state.RUNNING, event.FINISHES): state.FINISHED,
        (state.RUNNING, event.CANCEL): state.CANCELING,
        (state.RUNNING, event.IS_CANCELED): state.CANCELED,
        (state.RUNNING, event.FAILS): state.FAILED,
        (state.CANCELING, event.CANCEL): state.CANCELING,
        (state.CANCELING, event.RUNS): state.CANCELING,
        (state.CANCELING, event.FINISHES): state.CANCELED,
        (state.CANCELING, event.FAILS): state.CANCELED,
        (state.CANCELING, event.IS_CANCELED): state.CANCELED,
    }
    rows |= {(end, late): end for end in state for late in event if end.is_terminal}
    return MappingProxyType(rows)


TRANSITIONS: Final = _table()
"""The next state by (state, event)."""


class Execution:
    """Attempt number `attempt` (from 1) of `fragment`; `executor` is where it was deployed, else None."""

    __slots__ = ("attempt", "executor", "fragment", "history", "state")

    def __init__(self, fragment: FragmentId, attempt: int) -> None:
        self.fragment: Final = fragment
        self.attempt: Final = attempt
        self.state = ExecutionState.CREATED
        self.executor: ExecutorId | None = None
        self.history: Final[deque[str]] = deque(maxlen=_HISTORY)

    @property
    def is_terminal(self) -> bool:
        """Whether no part of it runs any more."""
        return self.state.is_terminal

    @property
    def is_placed(self) -> bool:
        """Whether an executor may be running it now."""
        return self.executor is not None and not self.is_terminal

    def step(self, event: ExecutionEvent) -> bool:
        """Handle `event`; returns whether the state changed. Raises InternalError without a row for it."""
        after = TRANSITIONS.get((self.state, event))
        if after is None:
            raise InternalError(
                f"an execution that is {self.state.value} cannot take {event.value!r}",
                where=f"{self.fragment} attempt {self.attempt}",
                history=self.history,
            )
        changed = after is not self.state
        if changed:
            self.history.append(f"{self.state.value} --{event.value}--> {after.value}")
            self.state = after
        return changed

    def deploy(self, executor: ExecutorId) -> None:
        """Go to DEPLOYING, on `executor`; raises InternalError unless SCHEDULED."""
        self.step(ExecutionEvent.DEPLOY)
        if self.state is not ExecutionState.DEPLOYING:
            raise InternalError(
                "what has ended cannot be deployed", where=self.fragment, history=self.history
            )
        self.executor = executor

    def check(self) -> None:
        """Raise InternalError when an invariant of the module does not hold."""
        here = f"{self.fragment} attempt {self.attempt}"
        needs = (ExecutionState.DEPLOYING, ExecutionState.RUNNING, ExecutionState.CANCELING)
        if self.state in needs and self.executor is None:
            raise InternalError("execution invariant 4: deployed nowhere", where=here, history=self.history)
        if self.history and not self.history[-1].endswith(f"> {self.state.value}"):
            raise InternalError("execution invariant 1: changed otherwise", where=here, history=self.history)

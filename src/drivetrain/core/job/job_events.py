"""The states, parts and effects of a job: the vocabulary of `core.job.job`.

Invariants:
1. A job's state changes by `TRANSITIONS` only; a terminal one is never left.

Called by `core.job.job`, and by the application master, which performs the effects in order.
Source: the states of Apache Flink's jobs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final, TypeAlias

from drivetrain.core.job.fragment_execution import Execution, ExecutionState, ExecutorId, FragmentId


class JobState(StrEnum):
    """The life of a job."""

    CREATED = "created"
    RUNNING = "running"
    FAILING = "failing"
    RESTARTING = "restarting"
    CANCELLING = "cancelling"
    CANCELED = "canceled"
    FINISHED = "finished"
    FAILED = "failed"

    @property
    def is_terminal(self) -> bool:
        """Whether the job is over."""
        return self in (JobState.CANCELED, JobState.FINISHED, JobState.FAILED)


_S: Final = JobState

TRANSITIONS: Final[Mapping[JobState, frozenset[JobState]]] = MappingProxyType(
    {
        _S.CREATED: frozenset({_S.RUNNING, _S.FAILING, _S.CANCELLING}),
        _S.RUNNING: frozenset({_S.FINISHED, _S.FAILING, _S.CANCELLING}),
        _S.FAILING: frozenset({_S.RESTARTING, _S.FAILED, _S.CANCELLING}),
        _S.RESTARTING: frozenset({_S.CREATED, _S.CANCELED, _S.FAILING}),
        _S.CANCELLING: frozenset({_S.CANCELED, _S.FAILING}),
        _S.CANCELED: frozenset(),
        _S.FINISHED: frozenset(),
        _S.FAILED: frozenset(),
    }
)


@dataclass(frozen=True, slots=True)
class Vertex:
    """A fragment of the job, and the fragments whose channels it reads."""

    fragment: FragmentId
    producers: tuple[FragmentId, ...] = ()


@dataclass(frozen=True, slots=True)
class DeployAttempt:
    """Effect: command the executor to run the attempt."""

    fragment: FragmentId
    attempt: int
    executor: ExecutorId


@dataclass(frozen=True, slots=True)
class CancelAttempt:
    """Effect: command the executor to stop the attempt, at its next batch boundary (`drain`) or now."""

    fragment: FragmentId
    attempt: int
    executor: ExecutorId
    drain: bool


@dataclass(frozen=True, slots=True)
class WakeFragment:
    """Effect: call `fragment_due(fragment, attempt)` after `delay_ms`."""

    fragment: FragmentId
    attempt: int
    delay_ms: int


@dataclass(frozen=True, slots=True)
class WakeJob:
    """Effect: call `job_due(restart)` after `delay_ms`."""

    restart: int
    delay_ms: int


@dataclass(frozen=True, slots=True)
class RecordJobEnd:
    """Effect: all fragments have finished; record that, then call `concluded`."""


@dataclass(frozen=True, slots=True)
class JobChanged:
    """Effect: report to those who follow the job that it is in `state` now."""

    state: JobState


JobEffect: TypeAlias = DeployAttempt | CancelAttempt | WakeFragment | WakeJob | RecordJobEnd | JobChanged


def pending_commands(execution: Execution, drain: bool) -> list[JobEffect]:
    """The commands about an attempt that its executor has not carried out yet."""
    if execution.executor is None:
        return []
    if execution.state is ExecutionState.DEPLOYING:
        return [DeployAttempt(execution.fragment, execution.attempt, execution.executor)]
    if execution.state is ExecutionState.CANCELING:
        return [CancelAttempt(execution.fragment, execution.attempt, execution.executor, drain)]
    return []

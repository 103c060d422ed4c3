"""Answers to the clients that have asked for a change.

Called by `application_changes` and `application_scalings`. Imports neither pyspark nor pyarrow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import msgspec

from drivetrain.cluster.app_master.stream.change_compiler import RefusedChangeError
from drivetrain.cluster.messages.changing import ChangeStatus
from drivetrain.core.change.change_state import underway
from drivetrain.core.job.job_events import JobState
from drivetrain.errors import DrivetrainError, UnavailableError
from drivetrain.runtime.error_views import error_view

if TYPE_CHECKING:
    from drivetrain.actor import Message
    from drivetrain.cluster.app_master.app_master import ApplicationMaster
    from drivetrain.cluster.app_master.stream.running_job import RunningJob
    from drivetrain.core.change.change_state import ChangeState
    from drivetrain.core.change.graph_version import GraphVersion
    from drivetrain.core.change.scaling_state import PlannedScaling


class ChangeRequester(Protocol):
    """A client that has asked for a change, or a part of this application master; it gets the answer."""

    def tell(self, message: Message) -> None:
        """Take the answer."""
        ...


class ChangeAnswers:
    """The clients that wait until every changed fragment has taken up a version, or the change has ended."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, ChangeRequester]] = []  # with the version that each waits for

    def wait(self, number: int, asker: ChangeRequester) -> None:
        """A client waits for a version."""
        self._waiting.append((number, asker))

    def tell(
        self,
        asker: ChangeRequester,
        state: ChangeState,
        error: Exception | None = None,
        made: GraphVersion | None = None,
        planned: PlannedScaling | None = None,
    ) -> None:
        """Answer a client."""
        view = None if error is None else error_view(error)
        view = error.view if isinstance(error, RefusedChangeError) else view
        asker.tell(ChangeStatus(state, view, made, planned))

    def tell_taken(self, state: ChangeState, is_being_taken: Callable[[int], bool]) -> None:
        """Answer those whose version is not being taken up any more."""
        waiting, self._waiting = self._waiting, []
        for number, asker in waiting:
            if is_being_taken(number):
                self._waiting.append((number, asker))
            else:
                self.tell(asker, state)


def cannot_begin(
    owner: ApplicationMaster, running: RunningJob, state: ChangeState | None, is_busy: tuple[bool, bool]
) -> DrivetrainError | None:
    """Why no change can begin; None if one can.

    `state` is None until it is known; `is_busy`: whether another change is being compiled, and whether one
    is recorded.
    """
    is_scaling = state is not None and state.scaling is not None and not state.scaling.is_over
    if owner.end_state is None and state is not None and (is_scaling or any(is_busy)):
        return underway(state if is_busy[1] else msgspec.structs.replace(state, number=0))
    if state is None:
        why = "the application has not begun"
    elif owner.end_state is not None or running.is_concluding():
        why = "the application is stopping"
    elif running.job.state is not JobState.RUNNING:
        why = "the application is starting again"
    else:
        return None
    return UnavailableError(why, where=owner.setup.app_id, remedy="try again")

"""A client's requests to an application master, such as for the status, the history and the threads.

Called by `client`.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from drivetrain.actor import AskError
from drivetrain.cluster.client.attachment import status_of
from drivetrain.cluster.client.refusals import error_of_view
from drivetrain.cluster.messages.applications import ApplicationView
from drivetrain.cluster.messages.checkpoints import MakeSavepoint, SavepointMade
from drivetrain.cluster.messages.following import (
    GetHistory,
    GetStatus,
    GetThreads,
    HistoryReport,
    JobStatus,
    Status,
    ThreadStacks,
)
from drivetrain.core.job.history import History
from drivetrain.errors import UnavailableError
from drivetrain.runtime.clock_actor import ClockReply, WaitForClock

STATUS_MS: Final = 5_000
_STACKS_MS: Final = 30_000
_COPY_MS: Final = 3_600_000
"""How long copying a savepoint may take once the checkpoint is made."""


async def ask_status(view: ApplicationView) -> JobStatus | None:
    """The status: the final one of an application that is over, None while no application master answers."""
    if view.state.is_over or view.app_master is None:
        return status_of(view)
    try:
        return (await view.app_master.ask(GetStatus(), Status, timeout_ms=STATUS_MS)).status
    except AskError:
        return None


async def ask_history(view: ApplicationView) -> History:
    """The last 15 minutes; empty for an application that is over, and when no application master answers."""
    if view.state.is_over or view.app_master is None:
        return History()
    try:
        return (await view.app_master.ask(GetHistory(), HistoryReport, timeout_ms=STATUS_MS)).history
    except AskError:
        return History()


async def ask_threads(view: ApplicationView, executor: str | None) -> ThreadStacks:
    """The stacks of an executor's threads (None: of any); raises UnavailableError when no answer comes."""
    why = "it is over" if view.state.is_over else "it has no application master yet"
    if view.app_master is not None and not view.state.is_over:
        try:
            return await view.app_master.ask(GetThreads(executor), ThreadStacks, timeout_ms=_STACKS_MS)
        except AskError as error:
            why = str(error)
    raise UnavailableError(
        "no executor has reported what its threads do", where=view.app_id, got=why, remedy="try again"
    )


async def ask_clock(view: ApplicationView, wanted_ms: int, timeout_ms: int) -> int | None:
    """The clock once it is at `wanted_ms`; None when it is not within the timeout, or no answer comes."""
    if view.app_master is None:
        return None
    question = WaitForClock(wanted_ms, timeout_ms)
    try:
        seen = await view.app_master.ask(question, ClockReply, timeout_ms=timeout_ms + STATUS_MS)
    except AskError:
        return None  # it has ended or is starting: the registry knows which
    return seen.clock_ms if seen.is_reached else None


async def ask_savepoint(view: ApplicationView, place: str, timeout_ms: int) -> None:
    """Have a savepoint written; raises the error if that failed, and UnavailableError without an answer."""
    made: SavepointMade | None = None
    if view.app_master is not None:
        question = MakeSavepoint(place, timeout_ms)
        with suppress(AskError):
            made = await view.app_master.ask(question, SavepointMade, timeout_ms=timeout_ms + _COPY_MS)
    if made is None:
        raise UnavailableError(
            "no application master has answered",
            where=view.app_id,
            expected=f"a savepoint within {timeout_ms / 1000:g} s",
            remedy=f"try again; `drivetrain show {view.app_id}` shows its progress",
        )
    if made.error is not None:
        raise error_of_view(made.error)

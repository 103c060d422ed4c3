"""What a client asks the application master of one application: how it is, and how it came to this.

Called by `client`.
"""

from __future__ import annotations

from typing import Final

from drivetrain.actor import AskError
from drivetrain.cluster.client.attachment import status_of
from drivetrain.cluster.messages.applications import ApplicationView
from drivetrain.cluster.messages.following import (
    GetHistory,
    GetStatus,
    HistoryReport,
    JobStatus,
    Status,
)
from drivetrain.core.job.history import History

STATUS_MS: Final = 5_000


async def ask_status(view: ApplicationView) -> JobStatus | None:
    """The status: the final one of an application that is over, None while nobody answers."""
    if view.state.is_over or view.app_master is None:
        return status_of(view)
    try:
        return (await view.app_master.ask(GetStatus(), Status, timeout_ms=STATUS_MS)).status
    except AskError:
        return None


async def ask_history(view: ApplicationView) -> History:
    """The last quarter of an hour; empty of an application that is over, and when nobody answers."""
    if view.state.is_over or view.app_master is None:
        return History()
    try:
        return (await view.app_master.ask(GetHistory(), HistoryReport, timeout_ms=STATUS_MS)).history
    except AskError:
        return History()

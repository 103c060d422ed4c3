"""Lists that the leader answers page by page, put together.

What changes between two pages may be missing or be there as it was; nothing is listed twice.

Called by the client.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from drivetrain.actor import Message
from drivetrain.cluster.messages.applications import (
    ApplicationLine,
    Applications,
    GetApplications,
    GetWorkers,
    Workers,
    WorkerView,
)


async def all_applications(
    ask: Callable[[Message, type[Applications]], Awaitable[Applications]],
) -> tuple[ApplicationLine, ...]:
    """All applications, over or not, newest first, in short."""
    lines: list[ApplicationLine] = []
    page = await ask(GetApplications(), Applications)
    lines += page.applications
    while page.before is not None:
        page = await ask(GetApplications(page.before), Applications)
        lines += page.applications
    return tuple(lines)


async def all_workers(ask: Callable[[Message, type[Workers]], Awaitable[Workers]]) -> tuple[WorkerView, ...]:
    """All registered workers, by name."""
    views: list[WorkerView] = []
    page = await ask(GetWorkers(), Workers)
    views += page.workers
    while page.after is not None:
        page = await ask(GetWorkers(page.after), Workers)
        views += page.workers
    return tuple(views)

"""Combines the pages of lists that the leader returns.

An entry that changes between two pages may be missing or outdated; no entry is listed twice.

Called by the client.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

from drivetrain.actor import Message
from drivetrain.cluster.messages.applications import (
    Applications,
    ApplicationSummary,
    GetApplications,
    GetWorkers,
    Workers,
    WorkerView,
)


async def all_applications(
    ask: Callable[[Message, type[Applications]], Awaitable[Applications]],
) -> tuple[ApplicationSummary, ...]:
    """All applications, over or not, newest first, in short form."""
    lines: list[ApplicationSummary] = []
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


def runs_on(worker: WorkerView, app_id: str) -> bool:
    """Whether the worker runs a process of the application: a launch's id begins with the application's."""
    begins = re.compile(rf"{re.escape(app_id)}(?![A-Za-z0-9_])")
    return any(begins.match(launched) for launched in worker.launched)

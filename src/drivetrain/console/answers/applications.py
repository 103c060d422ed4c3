"""Applications: a list of them, and the current state of one.

Called by `console.handlers.applications` and `console.watching.status_answers`.
"""

from __future__ import annotations

import msgspec

from drivetrain.console.answers.diagnosis import Diagnosis
from drivetrain.console.answers.progress import Job


class ApplicationSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A summary of an application; `submitted_ms`, `ended_ms` and `clock_ms` are points in time.

    `state` is pending, active, succeeded, failed or killed. `epoch` counts its application masters; `worker`
    runs the current one. `why` is the reason for its end, or what it waits for.
    """

    app_id: str
    name: str
    state: str
    epoch: int
    submitted_ms: int
    ended_ms: int | None
    worker: str | None
    why: str | None
    clock_ms: int | None
    graph_version: int
    priority: str
    file: str


class ApplicationPage(msgspec.Struct, frozen=True, kw_only=True):
    """Applications, the newest first; `next` is the cursor of the next page, null on the last."""

    applications: tuple[ApplicationSummary, ...]
    next: str | None


class ApplicationSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """All of an application at the moment `now_ms`, on the clock of the console.

    `job` is what its application master reported; null while none answers, and for one that never started.
    `app_master` is the class of the application master of a custom application (module:Class), which has no
    graph, fragments or checkpoints; null for streams.
    """

    now_ms: int
    application: ApplicationSummary
    app_master: str | None
    diagnosis: Diagnosis
    job: Job | None

"""Worker and leading master, application master and leading master: who is there.

Both retry with the reference's backoff (500 ms doubling to 30 s; 10 s after a refusal), watch the leader,
and register again with whoever leads next. The leader watches them.
"""

from __future__ import annotations

import msgspec

from drivetrain.actor import ActorRef, Message
from drivetrain.cluster.messages.applications import ApplicationSpec, ApplicationState
from drivetrain.cluster.messages.numbers import Count, Slots, TimeMs


class WorkerInfo(msgspec.Struct, frozen=True, array_like=True):
    """What a worker offers. `worker_id` is made anew by every worker process; `name` is the user's."""

    worker_id: str
    name: str
    host: str
    slots: Slots
    version: str
    clock_ms: TimeMs


class HeldSlots(msgspec.Struct, frozen=True, array_like=True):
    """Slots that a worker holds for a process it launched, or was told to launch."""

    allocation_id: str
    app_id: str
    slots: Slots
    kind: str


class RegisterWorker(Message, frozen=True, tag="cluster.register-worker"):
    """A worker, with what it holds already: a new leader learns from it. `was_registered` once a leader has
    had it, in this life of the worker."""

    info: WorkerInfo
    worker: ActorRef
    held: tuple[HeldSlots, ...] = ()
    was_registered: bool = False


class WorkerRegistered(Message, frozen=True, tag="cluster.worker-registered"):
    """The worker is known in this term; `already` when it was before."""

    worker_id: str
    term: Count
    already: bool = False


class WorkerRefused(Message, frozen=True, tag="cluster.worker-refused"):
    """The worker is not taken: another version, a clock that is far off, a name in use."""

    code: str
    why: str
    remedy: str


class WorkerReport(Message, frozen=True, tag="cluster.worker-report"):
    """Told by a worker every few seconds, and at once when `held` changes."""

    worker_id: str
    held: tuple[HeldSlots, ...]
    cpu: float
    memory_free: Count


class RegisterAppMaster(Message, frozen=True, tag="cluster.register-app-master"):
    """An application master that was launched for this epoch; answered with `AppMasterRegistered`, or
    `Failure("stale-epoch", …)` upon which it stops itself."""

    app_id: str
    epoch: Count
    app_master: ActorRef


class AppMasterRegistered(Message, frozen=True, tag="cluster.app-master-registered"):
    """Go: what to run, and the clock and graph version to go on from."""

    app_id: str
    epoch: Count
    spec: ApplicationSpec
    clock_ms: int | None
    graph_version: Count
    restarts: bytes | None = None
    """What `AppMasterReport.restarts` last said, so that restart strategies go on counting."""


class AppMasterReport(Message, frozen=True, tag="cluster.app-master-report"):
    """Told by an application master now and then, and when it ends; asked for, so that the end is known to
    be in the registry: answered with `ReportTaken` or a `Failure` (`stale-epoch`, `no-quorum`)."""

    app_id: str
    epoch: Count
    state: ApplicationState
    clock_ms: int | None = None
    graph_version: Count = 0
    why: str | None = None
    result: bytes | None = None
    restarts: bytes | None = None
    prepared: bool = False
    """The application's state has begun: from now on its `spec` in the registry asks for no
    beginning (`fresh`, a replay)."""


class ReportTaken(Message, frozen=True, tag="cluster.report-taken"):
    """The report is in the registry of a majority."""

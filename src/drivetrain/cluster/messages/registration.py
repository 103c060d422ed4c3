"""Worker and leading master, application master and leading master: registration.

Both retry with the reference's backoff (500 ms doubling to 30 s; 10 s after a refusal), watch the leader,
and register again with the next leader. The leader watches them.
"""

from __future__ import annotations

import msgspec

from drivetrain.actor import ActorRef, Message
from drivetrain.cluster.messages.applications import ApplicationSpec, ApplicationState
from drivetrain.cluster.messages.numbers import Count, Slots, TimeMs


class WorkerInfo(msgspec.Struct, frozen=True, array_like=True):
    """The resources of a worker. Every worker process has a new `worker_id`; the user chooses `name`."""

    worker_id: str
    name: str
    host: str
    slots: Slots
    version: str
    clock_ms: TimeMs


class HeldSlots(msgspec.Struct, frozen=True, array_like=True):
    """Slots that a worker holds for a process that it has launched, or is to launch."""

    allocation_id: str
    app_id: str
    slots: Slots
    kind: str


class RegisterWorker(Message, frozen=True, tag="cluster.register-worker"):
    """A worker, with the slots that it holds already, from which a new leader learns. `was_registered` once
    any leader has registered this worker process; `leaves` once it was asked to end."""

    info: WorkerInfo
    worker: ActorRef
    held: tuple[HeldSlots, ...] = ()
    was_registered: bool = False
    leaves: bool = False


class WorkerRegistered(Message, frozen=True, tag="cluster.worker-registered"):
    """The worker is registered in this term; `already` when it was before."""

    worker_id: str
    term: Count
    already: bool = False


class WorkerRefused(Message, frozen=True, tag="cluster.worker-refused"):
    """The worker is refused: another version, a clock that is far off, a name in use."""

    code: str
    why: str
    remedy: str


class WorkerReport(Message, frozen=True, tag="cluster.worker-report"):
    """Sent by a worker every few seconds, and at once when `held` or `leaves` changes.

    A worker that leaves was asked to end: it ends what it holds, and launches nothing more.
    """

    worker_id: str
    held: tuple[HeldSlots, ...]
    cpu: float
    memory_free: Count
    leaves: bool = False


class RegisterAppMaster(Message, frozen=True, tag="cluster.register-app-master"):
    """From an application master launched for this epoch; answered with `AppMasterRegistered`, or with
    `Failure("stale-epoch", …)`, after which it stops."""

    app_id: str
    epoch: Count
    app_master: ActorRef


class AppMasterRegistered(Message, frozen=True, tag="cluster.app-master-registered"):
    """Permission to start: what to run, and the clock and graph version to continue from."""

    app_id: str
    epoch: Count
    spec: ApplicationSpec
    clock_ms: int | None
    graph_version: Count
    restarts: bytes | None = None
    """The last `AppMasterReport.restarts`, so that restart strategies continue counting."""


class AppMasterReport(Message, frozen=True, tag="cluster.app-master-report"):
    """From an application master, regularly and when it ends; asked, so that it knows when the end is in the
    registry: answered with `ReportAccepted` or a `Failure` (`stale-epoch`, `no-quorum`)."""

    app_id: str
    epoch: Count
    state: ApplicationState
    clock_ms: int | None = None
    graph_version: Count = 0
    why: str | None = None
    result: bytes | None = None
    restarts: bytes | None = None
    prepared: bool = False
    """The application's new state exists: the registry drops the request for one (`fresh`, a replay) from
    its `spec`."""


class ReportAccepted(Message, frozen=True, tag="cluster.report-taken"):
    """A majority of masters has the report in the registry."""

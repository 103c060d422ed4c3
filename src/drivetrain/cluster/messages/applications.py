"""Client and leading master: applications.

`Submit` is accepted once the application is in the replicated registry, before anything is scheduled.
"""

from __future__ import annotations

from enum import Enum

import msgspec

from drivetrain.actor import ActorRef, Message
from drivetrain.core.cluster.application_record import ApplicationState as ApplicationState

APPLICATION_NAME = r"[a-zA-Z_][a-zA-Z0-9_-]{0,99}"


class Priority(Enum):
    """The order in which applications' requests for slots are served."""

    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"


class ApplicationSpec(msgspec.Struct, frozen=True, array_like=True):
    """Everything needed to start an application on any machine, any number of times.

    `file` is the application file inside the archive `code`; `target` the `name` of `file.py:name` or None.
    `settings` are the user's `--set`, unparsed; `config` the configuration that differs from the defaults, by
    key, as text. `directory` is the client's current directory, to which relative paths refer where it
    exists. `app_master` is the class of a custom application master, `module:Class`, None for streams.
    `replay_from_ms` requests a new life that processes messages from that timestamp on, `savepoint` one that
    continues from that directory; like `fresh`, each takes effect once.
    """

    name: str
    code: str
    file: str
    target: str | None = None
    settings: dict[str, str] = {}
    config: dict[str, str] = {}
    directory: str = "."
    priority: Priority = Priority.NORMAL
    fresh: bool = False
    app_master: str | None = None
    replay_from_ms: int | None = None
    savepoint: str | None = None

    @property
    def begins_anew(self) -> bool:
        """Whether the application must get a new state before it runs: `fresh`, a replay or a savepoint."""
        return self.fresh or self.replay_from_ms is not None or self.savepoint is not None


class Submit(Message, frozen=True, tag="cluster.submit"):
    """Register and start an application; answered with `Accepted` or a `Failure`.

    Failures: `name-taken`, `bad-name`, `too-large`, `no-code`, `no-quorum`. The client chooses
    `submission_id`: sent again (after a lost answer, to a new leader), the submission gets the same `app_id`.
    """

    submission_id: str
    spec: ApplicationSpec


class Accepted(Message, frozen=True, tag="cluster.accepted"):
    """The application is registered as `app_id` (its name, a dash, a number that is never used again)."""

    app_id: str


class ApplicationView(msgspec.Struct, frozen=True, array_like=True):
    """An application as the leader knows it.

    `epoch` counts its application masters; `app_master` is the one registered now, `worker` where it runs.
    `why` is what ended the application or what it waits for. `clock_ms` is the last clock that it reported.
    Times are ms since the Unix epoch.
    """

    app_id: str
    spec: ApplicationSpec
    state: ApplicationState
    epoch: int
    submitted_ms: int
    ended_ms: int | None = None
    app_master: ActorRef | None = None
    worker: str | None = None
    why: str | None = None
    clock_ms: int | None = None
    graph_version: int = 0
    result: bytes | None = None
    """The final `following.JobStatus` as msgpack, when it is over."""

    @property
    def line(self) -> ApplicationSummary:
        """The application in a list; nothing is cut."""
        return ApplicationSummary(
            self.app_id,
            self.spec.name,
            self.state,
            self.epoch,
            self.submitted_ms,
            self.ended_ms,
            self.worker,
            self.why,
            self.clock_ms,
            self.graph_version,
            self.spec.priority,
            self.spec.file,
            self.spec.code,
        )


class ApplicationSummary(msgspec.Struct, frozen=True, array_like=True):
    """An application in a list: the short fields of `ApplicationView`; `why` and `file` are cut."""

    app_id: str
    name: str
    state: ApplicationState
    epoch: int
    submitted_ms: int
    ended_ms: int | None = None
    worker: str | None = None
    why: str | None = None
    clock_ms: int | None = None
    graph_version: int = 0
    priority: Priority = Priority.NORMAL
    file: str = ""
    code: str = ""


class GetApplications(Message, frozen=True, tag="cluster.get-applications"):
    """Asks for applications, over or not; answered with `Applications`: the newest, or those that follow
    `before`, taken from the previous answer."""

    before: int | None = None


class Applications(Message, frozen=True, tag="cluster.applications"):
    """A page of all applications, newest first; `before` requests the next page, None on the last."""

    applications: tuple[ApplicationSummary, ...]
    before: int | None = None


class GetApplication(Message, frozen=True, tag="cluster.get-application"):
    """Asks for an application by id, or by name: the live one of that name, else the newest.

    Answered with `FoundApplication` or `Failure("unknown-application", …)`.
    """

    app: str


class FoundApplication(Message, frozen=True, tag="cluster.found-application"):
    """The application."""

    application: ApplicationView


class Kill(Message, frozen=True, tag="cluster.kill"):
    """End an application; answered with `FoundApplication` once the registry has the end, while processes may
    still be ending. Failures: `unknown-application`, `already-over`."""

    app: str


class Restart(Message, frozen=True, tag="cluster.restart"):
    """Start an application again under its id, with its state, whether it is over or runs.

    With `replay_from_ms` it starts in a new life, which processes messages from that timestamp on; without, a
    requested replay that has not begun is cancelled. With `epoch`, which its own application master sends, it
    restarts only if it runs in that epoch. Answered with `FoundApplication`; failures: `unknown-application`,
    `name-taken`.
    """

    app: str
    replay_from_ms: int | None = None
    epoch: int | None = None


class GetWorkers(Message, frozen=True, tag="cluster.get-workers"):
    """Asks for the workers; answered with `Workers`: the first, or those that follow the name `after`."""

    after: str | None = None


class WorkerView(msgspec.Struct, frozen=True, array_like=True):
    """A worker as the leader knows it. Memory is in bytes, `cpu` the share of all cores in use, 0 to 1."""

    worker_id: str
    name: str
    host: str
    slots: int
    free: int
    registered_ms: int
    cpu: float = 0.0
    memory_free: int = 0
    worker: ActorRef | None = None
    launched: tuple[str, ...] = ()


class Workers(Message, frozen=True, tag="cluster.workers"):
    """A page of all registered workers, by name; `after` requests the next page, None on the last."""

    workers: tuple[WorkerView, ...]
    after: str | None = None


class GetMasters(Message, frozen=True, tag="cluster.get-masters"):
    """Asks any master for the state of all; answered with `Masters`."""


class MasterView(msgspec.Struct, frozen=True, array_like=True):
    """A master as the answering one knows it; its last message came `silent_ms` ago (None: never)."""

    address: str
    leads: bool
    term: int
    silent_ms: int | None


class Masters(Message, frozen=True, tag="cluster.masters"):
    """All masters on the list."""

    masters: tuple[MasterView, ...]

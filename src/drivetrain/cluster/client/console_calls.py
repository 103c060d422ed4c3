"""The calls that a client makes through a console: a table that both sides share.

Problem: the port of the masters is often out of reach (another network, a laptop), while the console is
behind HTTPS. A client there must work in the same way: with the same commands, and the same records in their
output.

Design: each call is one request (`POST /api/v1/calls/NAME`) with its arguments, and the answer is the record
that the cluster gave, as msgpack. References to actors stay in the console: they mean nothing outside. No
call waits for long, so that proxies do not end it; to wait, the client repeats short calls.

Called by `console_client` and by `console.handlers.calls`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Final, Generic, TypeVar

import msgspec
from msgspec import Meta

from drivetrain.cluster.client.process_logs import Piece
from drivetrain.cluster.client.version_requests import GraphHistory
from drivetrain.cluster.messages.applications import (
    ApplicationSpec,
    ApplicationSummary,
    ApplicationView,
    MasterView,
    WorkerView,
)
from drivetrain.cluster.messages.changing import GraphEdit, ProposedCode
from drivetrain.cluster.messages.code import CHUNK_BYTES, CodeStored
from drivetrain.cluster.messages.following import JobStatus, ThreadStacks
from drivetrain.core.change.change_options import NO_OPTIONS, ChangeOptions
from drivetrain.core.change.change_state import ChangeState
from drivetrain.core.change.graph_version import GraphVersion
from drivetrain.core.change.scaling_state import PlannedScaling, ScalingState
from drivetrain.core.job.history import History
from drivetrain.runtime.running_config import ChangedValue

A = TypeVar("A")

MEDIA: Final = "application/vnd.msgpack"
LARGEST_BYTES: Final = 2 * 1024 * 1024
"""The largest request; code is sent in chunks."""
MOST_CLOCK_MS: Final = 20_000
"""How long a call may wait for a clock."""

App = Annotated[str, Meta(max_length=1_000)]
Number = Annotated[int, Meta(ge=0, lt=2**53)]
Moment = Annotated[int, Meta(gt=-(2**53), lt=2**53)]


class NoArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A call without arguments."""


class ApplicationArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A call about an application, by its id or name."""

    app: App


class ClockArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The clock of an application once it is at `wanted_ms`; null if it is not within `timeout_ms`."""

    app: App
    wanted_ms: Moment
    timeout_ms: Annotated[int, Meta(ge=1, le=MOST_CLOCK_MS)]


class ThreadsArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The stacks of an executor (null: of any)."""

    app: App
    executor: str | None


class LogsArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The ends of the logs, or of one process; with `offset` what follows it."""

    app: App
    process: str | None
    max_bytes: Annotated[int, Meta(ge=1, le=4 * 1024 * 1024)]
    offset: Number | None


class ReplayArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Process messages again from `from_ms` on."""

    app: App
    from_ms: Moment


class SavepointArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Write a savepoint to `place`; null: below the state directory of the application."""

    app: App
    place: str | None
    timeout: Annotated[str, Meta(max_length=32)]


class UploadArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of an archive of `size_bytes`, from `offset` on."""

    sha256: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
    offset: Number
    size_bytes: Number
    data: Annotated[bytes, Meta(max_length=CHUNK_BYTES)]


class SubmitArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Submit an application whose code the masters have; the same `submission_id` is the same submission."""

    submission_id: Annotated[str, Meta(pattern="^[0-9a-f]{32}$")]
    spec: ApplicationSpec


class ChangeArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Change an application to `code`, or back to the version `number`, if `against` is in force (0: any)."""

    app: App
    against: Number
    code: ProposedCode | None
    number: Number
    options: ChangeOptions = NO_OPTIONS
    edit: GraphEdit | None = None


class EditArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The version that an edit of version `against` would make."""

    app: App
    against: Number
    code: ProposedCode | None
    edit: GraphEdit


class GiveUpArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Go back from the version `number`, which is on trial."""

    app: App
    number: Number


class ScaleArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Divide the state of a fragment into so many partitions."""

    app: App
    fragment: Annotated[str, Meta(max_length=1_000)]
    partitions: Number


class ConfigureArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Change configuration keys of an application; `restore` get their earlier values back."""

    app: App
    values: dict[str, str]
    restore: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ClientCall(Generic[A]):
    """A call: its name, its arguments, the type of its answer, and whether it changes something."""

    name: str
    arguments: type[msgspec.Struct]
    answer: Any
    changes: bool = False


APPLICATIONS: Final[ClientCall[tuple[ApplicationSummary, ...]]] = ClientCall(
    "applications", NoArguments, tuple[ApplicationSummary, ...]
)
APPLICATION: Final[ClientCall[ApplicationView]] = ClientCall(
    "application", ApplicationArguments, ApplicationView
)
STATUS: Final[ClientCall[tuple[ApplicationView, JobStatus | None]]] = ClientCall(
    "status", ApplicationArguments, tuple[ApplicationView, JobStatus | None]
)
HISTORY: Final[ClientCall[History]] = ClientCall("history", ApplicationArguments, History)
WORKERS: Final[ClientCall[tuple[WorkerView, ...]]] = ClientCall(
    "workers", NoArguments, tuple[WorkerView, ...]
)
MASTERS: Final[ClientCall[tuple[MasterView, ...]]] = ClientCall(
    "masters", NoArguments, tuple[MasterView, ...]
)
CLOCK: Final[ClientCall[int | None]] = ClientCall("clock", ClockArguments, int | None)
THREADS: Final[ClientCall[ThreadStacks]] = ClientCall("threads", ThreadsArguments, ThreadStacks)
LOGS: Final[ClientCall[list[Piece]]] = ClientCall("logs", LogsArguments, list[Piece])
VERSIONS: Final[ClientCall[GraphHistory]] = ClientCall("versions", ApplicationArguments, GraphHistory)
CHANGE_STATE: Final[ClientCall[ChangeState]] = ClientCall("change-state", ApplicationArguments, ChangeState)
KILL: Final[ClientCall[ApplicationView]] = ClientCall(
    "kill", ApplicationArguments, ApplicationView, changes=True
)
RESTART: Final[ClientCall[ApplicationView]] = ClientCall(
    "restart", ApplicationArguments, ApplicationView, changes=True
)
REPLAY: Final[ClientCall[ApplicationView]] = ClientCall(
    "replay", ReplayArguments, ApplicationView, changes=True
)
SAVEPOINT: Final[ClientCall[str]] = ClientCall("savepoint", SavepointArguments, str, changes=True)
PUT_CODE: Final[ClientCall[CodeStored]] = ClientCall("put-code", UploadArguments, CodeStored)
SUBMIT: Final[ClientCall[str]] = ClientCall("submit", SubmitArguments, str, changes=True)
CHANGE: Final[ClientCall[ChangeState]] = ClientCall("change", ChangeArguments, ChangeState, changes=True)
EDITED: Final[ClientCall[GraphVersion]] = ClientCall("edited", EditArguments, GraphVersion)
GIVE_UP_CHANGE: Final[ClientCall[ChangeState]] = ClientCall(
    "give-up-change", GiveUpArguments, ChangeState, changes=True
)
SCALE: Final[ClientCall[ScalingState]] = ClientCall("scale", ScaleArguments, ScalingState, changes=True)
PLAN_SCALING: Final[ClientCall[PlannedScaling]] = ClientCall("plan-scaling", ScaleArguments, PlannedScaling)
CONFIGURE: Final[ClientCall[tuple[ChangedValue, ...]]] = ClientCall(
    "configure", ConfigureArguments, tuple[ChangedValue, ...], changes=True
)

CALLS: Final[dict[str, ClientCall[Any]]] = {
    call.name: call
    for call in (
        APPLICATIONS,
        APPLICATION,
        STATUS,
        HISTORY,
        WORKERS,
        MASTERS,
        CLOCK,
        THREADS,
        LOGS,
        VERSIONS,
        CHANGE_STATE,
        KILL,
        RESTART,
        REPLAY,
        SAVEPOINT,
        PUT_CODE,
        SUBMIT,
        CHANGE,
        EDITED,
        GIVE_UP_CHANGE,
        SCALE,
        PLAN_SCALING,
        CONFIGURE,
    )
}
"""The calls by name."""


def without_references(answer: Any) -> Any:
    """An answer for another process: views without references to actors."""
    match answer:
        case ApplicationView():
            return msgspec.structs.replace(answer, app_master=None)
        case (ApplicationView() as view, status):
            return without_references(view), status
        case (WorkerView(), *_):
            return tuple(msgspec.structs.replace(worker, worker=None) for worker in answer)
        case _:
            return answer

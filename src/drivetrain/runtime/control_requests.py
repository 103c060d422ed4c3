"""The requests that other processes of its owner send to an application that runs embedded.

Problem: `drivetrain run` is one process, and commands and consoles must show what it does, and change it.
Their processes must need neither Spark nor its code.

Design: this module defines all requests that are sent over the control socket; `spark.run.control_answers`
answers them. To change the application, the asking process writes the new graph with its code as a proposal
into the state directory, where only the application's owner can write; its request names the proposal. The
answer comes when the change is refused, with a reason, or when the new version is in force: a message that is
sent after the answer is processed by the new version. The asking process then polls the state of the change,
so that neither side keeps a connection open.

    {"ask":"status"}                          the state of the application, with the version in force
    {"ask":"history"}, {"ask":"graph"}        its last quarter of an hour; what runs, with coordinates
    {"ask":"threads"}                         the stacks of its threads, as text
    {"ask":"stop"}                            finish the running batches and end, like the first Ctrl-C
    {"ask":"change","proposal":"<32 hexadecimal digits>","against":1,"how":"update"}
    {"ask":"state"}, {"ask":"give-up","number":2}
    {"ask":"subscribe","wanted":{"reader":"report-1a2b3c4d","source":"hourly_in","stream":"hourly"}}
    {"ask":"unsubscribe","reader":"report-1a2b3c4d"}
    {"ask":"scale","fragment":"hourly","partitions":8}
    {"ask":"configure","values":{"run.batch-target":"2 s"},"restored":["checkpoint.interval"]}

What if we die here: a proposal that no application takes is deleted by a later one.

Invariants:

1. No code comes over the socket.

Called by `drivetrain update`, `drivetrain rollback`, the console and the handle of `drivetrain.start`.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from drivetrain.core.change.change_options import NO_OPTIONS, ChangeOptions
from drivetrain.core.change.change_state import ChangeState
from drivetrain.core.change.graph_version import GraphVersion, Made, SubscriptionRecord
from drivetrain.core.change.scaling_state import PlannedScaling, ScalingState
from drivetrain.core.job.history import History
from drivetrain.core.job.job_status import JobStatus
from drivetrain.core.picture.placed_graph import Graph
from drivetrain.errors import InternalError, UnavailableError
from drivetrain.runtime.control_socket import asked
from drivetrain.runtime.error_records import ErrorRecord
from drivetrain.runtime.running_config import ChangedValue

if TYPE_CHECKING:
    from drivetrain.runtime.run_directory import RunDirectory

_COMPILES_S: Final = 600.0
ANSWERS_S: Final = 30.0
_LOOK_S: Final = 0.1


class SubscriptionRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A subscription that the source `source` of the application `reader` asks for; see `Subscription`.

    With `starts_over` the reader has no state: it begins with the next message.
    """

    reader: str
    source: str
    stream: str
    drop_after_ms: int | None = None
    starts_over: bool = False

    def is_same(self, known: SubscriptionRecord) -> bool:
        """Whether a subscription of that source is the requested one."""
        return (self.stream, self.drop_after_ms) == (known.stream, known.drop_after_ms)


class Subscribed(msgspec.Struct, frozen=True):
    """A subscription that is in force: its processor, its key, its channel, and Spark's schema as JSON."""

    id: str
    key: str
    channel: str
    schema: Any


class ControlRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A request; `values` and `restored` belong to "configure", `wanted` to "subscribe", `reader` and
    `source` to "unsubscribe", `fragment`, `partitions` and `dry_run` to "scale", all others but the first to
    changes.
    """

    ask: Literal[
        "change", "state", "give-up", "status", "history", "graph", "threads", "stop", "configure",
        "subscribe", "unsubscribe", "scale",
    ]  # fmt: skip
    proposal: str = ""
    against: int = 0
    how: Made = "update"
    number: int = 0
    options: ChangeOptions = NO_OPTIONS
    values: dict[str, str] = {}
    restored: tuple[str, ...] = ()
    wanted: SubscriptionRequest | None = None
    reader: str = ""
    source: str | None = None
    fragment: str = ""
    partitions: int = 0
    dry_run: bool = False


class ControlAnswer(msgspec.Struct, frozen=True):
    """The answer: the requested data, or the refusal. `number` is that of the requested version."""

    state: ChangeState | None = None
    number: int = 0
    failure: ErrorRecord | None = None
    status: JobStatus | None = None
    history: History | None = None
    graph: Graph | None = None
    threads: dict[str, str] | None = None
    configured: tuple[ChangedValue, ...] = ()
    subscribed: Subscribed | None = None
    planned_scaling: PlannedScaling | None = None


def ask_change(
    rundir: RunDirectory,
    version: GraphVersion,
    code: bytes,
    against: int,
    how: Made = "update",
    options: ChangeOptions = NO_OPTIONS,
) -> int:
    """Ask the application that runs in `rundir` to change; returns the version's number once it is in force.

    `against` is the version that it was compared with. Raises the refusal, and UnavailableError when the
    application does not run embedded here.
    """
    asked_state(rundir)  # before anything is written
    id = uuid.uuid4().hex
    rundir.versions.propose(id, version, code)
    try:
        request = ControlRequest("change", id, against, how, options=options)
        return ask(rundir, request, _COMPILES_S).number
    finally:
        rundir.versions.withdraw(id)


def ask_to_give_up(rundir: RunDirectory, number: int) -> None:
    """Ask the application that runs in `rundir` to go back from a version on trial.

    Raises UserError when it is not on trial, and UnavailableError like `ask_change`.
    """
    ask(rundir, ControlRequest("give-up", number=number), ANSWERS_S)


def ask_to_scale(rundir: RunDirectory, fragment: str, partitions: int) -> ScalingState:
    """Have the application that runs in `rundir` divide the state of a fragment again; returns the state of
    the scaling.

    Raises its refusal, ChangeUnderwayError while it changes, and UnavailableError like `ask_change`.
    """
    return scaling_in(ask(rundir, ControlRequest("scale", fragment=fragment, partitions=partitions)).state)


def ask_planned_scaling(rundir: RunDirectory, fragment: str, partitions: int) -> PlannedScaling:
    """What the application that runs in `rundir` would do to scale a fragment; raises like `ask_to_scale`."""
    request = ControlRequest("scale", fragment=fragment, partitions=partitions, dry_run=True)
    planned = ask(rundir, request).planned_scaling
    if planned is None:
        raise InternalError("the answer of an application lacks the planned scaling", where=rundir.app_id)
    return planned


def wait_scaled(state: Callable[[], ChangeState], timeout_s: float | None = None) -> ScalingState:
    """Wait until the scaling of an application has ended, or for `timeout_s`; returns its state then.

    Raises the errors of `state` when the application has ended.
    """
    deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
    waiting = threading.Event()
    while not (now := scaling_in(state())).is_over:
        if deadline_s is not None and time.monotonic() > deadline_s:
            break
        waiting.wait(_LOOK_S)
    return now


def scaling_in(state: ChangeState | None) -> ScalingState:
    """The scaling that an application reports."""
    if state is None or state.scaling is None:
        raise InternalError("the answer of an application lacks the state of its scaling")
    return state.scaling


def ask_to_subscribe(rundir: RunDirectory, wanted: SubscriptionRequest) -> Subscribed:
    """Have the application that runs in `rundir` keep a stream for another one.

    Raises its refusal, ChangeUnderwayError while it changes, and UnavailableError like `ask_change`.
    """
    subscribed = ask(rundir, ControlRequest("subscribe", wanted=wanted), _COMPILES_S).subscribed
    if subscribed is None:
        raise InternalError("the answer of an application lacks the subscription", where=rundir.app_id)
    return subscribed


def ask_to_unsubscribe(rundir: RunDirectory, reader: str, source: str | None) -> int:
    """Have the application that runs in `rundir` end subscriptions; returns the version without them.

    Raises like `ask_to_subscribe`.
    """
    return ask(rundir, ControlRequest("unsubscribe", reader=reader, source=source), _COMPILES_S).number


def ask_to_configure(
    rundir: RunDirectory, values: Mapping[str, str], restored: Iterable[str]
) -> tuple[ChangedValue, ...]:
    """Have the application that runs in `rundir` use other values of configuration keys; returns the changes.

    Raises like `RunningConfig.change`, and UnavailableError like `ask_change`.
    """
    request = ControlRequest("configure", values=dict(values), restored=tuple(restored))
    return ask(rundir, request, ANSWERS_S).configured


def asked_state(rundir: RunDirectory) -> ChangeState:
    """The state of an application's changes; raises UnavailableError like `ask_change`."""
    state = ask(rundir, ControlRequest("state"), ANSWERS_S).state
    if state is None:
        raise InternalError("the answer of an application lacks its state", where=rundir.app_id)
    return state


def wait_ended(
    state: Callable[[], ChangeState],
    number: int,
    timeout_s: float | None = None,
) -> ChangeState:
    """Wait until the change to version `number` has ended, or for `timeout_s`; returns the last state.

    Raises the errors of `state` when the application has ended, and UnavailableError when another change
    has followed.
    """
    deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
    waiting = threading.Event()
    while True:
        now = state()
        if now.number == number and now.outcome is not None:
            return now
        if now.number > number:
            raise UnavailableError(
                f"the change to version {number} has ended, and another one followed",
                remedy="drivetrain versions shows how it ended",
            )
        if deadline_s is not None and time.monotonic() > deadline_s:
            return now
        waiting.wait(_LOOK_S)


def ask(rundir: RunDirectory, request: ControlRequest, timeout_s: float = ANSWERS_S) -> ControlAnswer:
    """The answer of the application that runs in `rundir`.

    Raises its refusal, and UnavailableError when it does not run embedded here, or does
    not answer within `timeout_s` seconds.
    """
    line = asked(rundir.path, msgspec.json.encode(request), timeout_s)
    try:
        answer = msgspec.json.decode(line, type=ControlAnswer)
    except msgspec.MsgspecError as error:
        raise InternalError(f"the answer of an application cannot be read: {error}") from error
    if answer.failure is not None:
        raise answer.failure.error()
    return answer

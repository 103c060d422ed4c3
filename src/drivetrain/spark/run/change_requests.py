"""Asking an embedded application to change, from any process of its owner.

Design: the asking process loads the new application, compares it with the version in force, and writes it as
a proposal into the state directory, where only the application's owner can write. Its request over the
control socket names the proposal. The answer comes when the change is refused, with a reason, or when the new
version is in force: a message that is sent after the answer is processed by the new version. The asking
process then polls the state of the change, so that neither side keeps a connection open.

    {"ask":"change","proposal":"<32 hexadecimal digits>","against":1,"how":"update"}
    {"ask":"state"}
    {"ask":"give-up","number":2}

What if we die here: a proposal that no application takes is deleted by a later one.

Invariants:

1. No code comes over the socket.

Called by `drivetrain update`, `drivetrain rollback` and the handle of `drivetrain.start`; the application
answers in `embedded`.
"""

from __future__ import annotations

import re
import threading
import time
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from drivetrain.code.fingerprint import fingerprint
from drivetrain.core.change.graph_version import GraphVersion, Made, version_of
from drivetrain.core.change.handover import At
from drivetrain.core.plan.configured import configured_plan
from drivetrain.errors import InternalError, UnavailableError, UserError
from drivetrain.runtime.control_socket import asked
from drivetrain.runtime.error_records import ErrorRecord, error_record
from drivetrain.spark.prepare.code_shipping import ship
from drivetrain.spark.prepare.graph_code import code_if_possible, graph_from_code
from drivetrain.spark.run.change_state import ChangeState

if TYPE_CHECKING:
    from drivetrain.api.application import Application
    from drivetrain.runtime.run_directory import RunDirectory
    from drivetrain.spark.run.live_changes import LiveChanges

_ID: Final = re.compile(r"[0-9a-f]{32}")
_COMPILES_S: Final = 600.0
_ANSWERS_S: Final = 30.0
_LOOK_S: Final = 0.1


class _Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    ask: Literal["change", "state", "give-up"]
    proposal: str = ""
    against: int = 0
    how: Made = "update"
    number: int = 0
    at: At = None


class _Answer(msgspec.Struct, frozen=True):
    state: ChangeState | None = None
    number: int = 0
    failure: ErrorRecord | None = None


class ChangeRequests:
    """Answers what others ask of the application in `rundir`, which this process runs."""

    def __init__(self, rundir: RunDirectory, changes: LiveChanges) -> None:
        self._rundir: Final = rundir
        self._changes: Final = changes

    def answer(self, line: bytes) -> bytes:
        """The answer to a request, both one line of JSON; never raises for what is in the request."""
        try:
            answer = self._answered(msgspec.json.decode(line, type=_Request))
        except msgspec.MsgspecError as error:
            wrong = UserError("the request cannot be read", expected="JSON of a request", got=str(error))
            answer = _Answer(failure=error_record(wrong))
        except Exception as error:  # noqa: BLE001 - sent to the process that asked
            answer = _Answer(failure=error_record(error))
        return msgspec.json.encode(answer)

    def _answered(self, request: _Request) -> _Answer:
        if request.ask == "state":
            return _Answer(self._changes.state)
        if request.ask == "give-up":
            self._changes.give_up(request.number)
            return _Answer(self._changes.state, request.number)
        if not _ID.fullmatch(request.proposal):
            raise UserError("a request names no proposal", expected="32 hexadecimal digits")
        record, code = self._rundir.versions.proposal(request.proposal)
        graph = graph_from_code(code, "a proposed version")
        number = self._changes.propose(record, graph, code, request.how, request.against, request.at)
        self._changes.wait_taken(number)
        return _Answer(self._changes.state, number)


def ask_change(
    rundir: RunDirectory,
    version: GraphVersion,
    code: bytes,
    against: int,
    how: Made = "update",
    at: At = None,
) -> int:
    """Ask the application that runs in `rundir` to change; the number of the version, once it is in force.

    `against` is the version that it was compared with, `at` is when it is to take effect. Raises why it is
    refused, and UnavailableError when
    the application does not run embedded here.
    """
    asked_state(rundir)  # before anything is written
    id = uuid.uuid4().hex
    rundir.versions.propose(id, version, code)
    try:
        return _asked(rundir, _Request("change", id, against, how, at=at), _COMPILES_S).number
    finally:
        rundir.versions.withdraw(id)


def ask_to_give_up(rundir: RunDirectory, number: int) -> None:
    """Ask the application that runs in `rundir` to go back from a version on trial.

    Raises UserError when it is not on trial, and UnavailableError as `ask_change`.
    """
    _asked(rundir, _Request("give-up", number=number), _ANSWERS_S)


def asked_state(rundir: RunDirectory) -> ChangeState:
    """How things stand in the application that runs in `rundir`; raises UnavailableError as `ask_change`."""
    state = _asked(rundir, _Request("state"), _ANSWERS_S).state
    if state is None:
        raise InternalError("an application does not say how things stand", where=rundir.app_id)
    return state


def propose_application(changes: LiveChanges, application: Application, at: At = None) -> int:
    """Propose another graph of the application that this process runs; see `LiveChanges.propose`."""
    versions = changes.versions
    graph, own = application.graph(), versions.in_force.context
    ship(graph)
    record = version_of(configured_plan(graph, own.config), fingerprint)
    if application.naming_settings != own.rundir.settings:
        raise UserError(
            "other settings make it another application",
            expected=str(own.rundir.settings),
            got=str(application.naming_settings),
            remedy="build the application with the settings of the one that runs",
        )
    against = versions.in_force.record.number
    return changes.propose(record, graph, code_if_possible(graph), "update", against, at)


def wait_ended(
    state: Callable[[], ChangeState],
    number: int,
    timeout_s: float | None = None,
) -> ChangeState:
    """Wait until the change to version `number` has ended, or for `timeout_s`; returns the last state.

    Raises what `state` raises when the application has ended, and
    UnavailableError when another change has followed.
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


def _asked(rundir: RunDirectory, request: _Request, timeout_s: float) -> _Answer:
    line = asked(rundir.path, msgspec.json.encode(request), timeout_s)
    try:
        answer = msgspec.json.decode(line, type=_Answer)
    except msgspec.MsgspecError as error:
        raise InternalError(f"the answer of an application cannot be read: {error}") from error
    if answer.failure is not None:
        raise answer.failure.error()
    return answer

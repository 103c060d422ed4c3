"""Calls of clients that reach the cluster through the console: the command line, and programs in Python.

Called by `console.routes.writes`. The requests and answers are defined in `cluster.client.console_calls`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import msgspec
from starlette.responses import Response

from drivetrain.actor import ActorFailedError
from drivetrain.cluster.client import Client
from drivetrain.cluster.client import console_calls as calls
from drivetrain.cluster.client.app_master_requests import ask_clock
from drivetrain.cluster.client.version_requests import ask_change, ask_edited
from drivetrain.cluster.code_transfer import NO_CODE, CodeMissingError
from drivetrain.cluster.messages.changing import ChangeGraph
from drivetrain.cluster.messages.code import CodeStored, PutCode
from drivetrain.config import Config
from drivetrain.config.catalog import console as keys
from drivetrain.console.embedded.runs import EmbeddedRuns
from drivetrain.console.problems import RequestError
from drivetrain.console.route import Call
from drivetrain.core.job.history import History
from drivetrain.errors import InternalError
from drivetrain.runtime.objects.locations import is_in_object_store

_COMMAND: Final = "the commands for runs of this machine, with --state-dir"


async def call(call: Call) -> Response:
    """Ask the cluster on behalf of a client, and return its answer."""
    name = call.path["call"]
    known = calls.CALLS.get(name)
    if known is None:
        raise RequestError(
            "there is no such call",
            code="not-found",
            where=name[:100],
            expected=", ".join(calls.CALLS),
            remedy="use one version of Drivetrain everywhere",
        )
    call.services.require_cluster("be asked by clients of a cluster", f"use {_COMMAND}")
    arguments = await _arguments(call, known.arguments)
    if known.changes:
        about = {"call": name}
        if isinstance(app := getattr(arguments, "app", None), str):
            about["app"] = app
        if isinstance(arguments, calls.SubmitArguments):
            about |= {"file": arguments.spec.file, "name": arguments.spec.name}
        call.services.audit.note(call.caller, "callForClient", about)
    client = call.services.client
    assert not isinstance(client, EmbeddedRuns)
    try:
        answer = await _asked(client, name, arguments, call.services.config)
    except ActorFailedError as error:
        if error.failure_code != NO_CODE:
            raise
        raise CodeMissingError("the masters do not have the application's code", remedy="send it") from error
    content = msgspec.msgpack.encode(calls.without_references(answer))
    return Response(content, 200, {"Cache-Control": "no-store"}, calls.MEDIA)


async def _asked(client: Client, name: str, arguments: Any, config: Config) -> Any:
    match arguments:
        case calls.NoArguments():
            of_cluster = {
                "applications": client.applications,
                "workers": client.workers,
                "masters": client.masters,
            }
            return await of_cluster[name]()
        case calls.ApplicationArguments(app):
            return await _OF_APP[name](client, app)
        case calls.UploadArguments() as part:
            _require_small(part.size_bytes, config)
            request = PutCode(part.sha256, part.offset, part.size_bytes, part.data)
            return await client.line.ask(request, CodeStored)
        case calls.SubmitArguments(submission_id, spec):
            return await client.accept(submission_id, spec)
        case calls.ChangeArguments(app, against, code, number, options, edit):
            view = await client.application(app)
            return await ask_change(view, ChangeGraph(against, code, number, options, edit))
        case calls.EditArguments(app, against, code, edit):
            return await ask_edited(await client.application(app), edit, code, against)
        case calls.GiveUpArguments(app, number):
            return await client.give_up_change(app, number)
        case calls.ScaleArguments(app, fragment, partitions):
            return await (client.scale if name == calls.SCALE.name else client.plan_scaling)(
                app, fragment, partitions
            )
        case calls.ConfigureArguments(app, values, restore):
            return await client.configure(app, values, restore)
        case _:
            return await _asked_with_more(client, arguments)


async def _asked_with_more(client: Client, arguments: Any) -> Any:
    match arguments:
        case calls.ClockArguments(app, wanted_ms, timeout_ms):
            return await ask_clock(await client.application(app), wanted_ms, timeout_ms)
        case calls.ThreadsArguments(app, executor):
            return await client.threads(app, executor)
        case calls.LogsArguments(app, process, max_bytes, offset):
            return await client.logs(app, process, max_bytes=max_bytes, offset=offset)
        case calls.ReplayArguments(app, from_ms):
            return await client.replay(app, from_ms)
        case calls.SavepointArguments(app, place, timeout):
            return await _savepoint(client, app, place, timeout)
        case _:
            raise InternalError("a call without an answer", where=type(arguments).__name__)


async def _history(client: Client, app: str) -> History:
    return await client.history(await client.application(app))


_OF_APP: Final[dict[str, Callable[[Client, str], Awaitable[Any]]]] = {
    "application": Client.application,
    "status": Client.status,
    "history": _history,
    "versions": Client.versions,
    "change-state": Client.change_state,
    "kill": Client.kill,
    "restart": Client.restart,
}


async def _savepoint(client: Client, app: str, place: str | None, timeout: str) -> str:
    view = await client.application(app)
    # A relative place is one in the directory of the application, not of the console.
    if place is not None and not is_in_object_store(place):
        place = str(Path(view.spec.directory, place))
    return str(await client.savepoint(view.app_id, place, timeout))


def _require_small(size_bytes: int, config: Config) -> None:
    most = config[keys.MAX_UPLOAD]
    if size_bytes > most:
        raise RequestError(
            "the application's code is too large for this console",
            code="too-large",
            expected=f"at most {most} bytes",
            got=str(size_bytes),
            remedy=f"send less, or have {keys.MAX_UPLOAD.name} raised",
        )


async def _arguments(call: Call, kind: type[msgspec.Struct]) -> msgspec.Struct:
    try:
        return msgspec.msgpack.decode(await _body(call), type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise RequestError(
            "the arguments of the call cannot be read",
            where=call.path["call"],
            got=str(error),
            remedy="use one version of Drivetrain everywhere",
        ) from error


async def _body(call: Call) -> bytes:
    parts, size = list[bytes](), 0
    async for part in call.request.stream():
        size += len(part)
        if size > calls.LARGEST_BYTES:
            raise RequestError(
                "the body of the request is too large",
                code="too-large",
                expected=f"at most {calls.LARGEST_BYTES} bytes",
                remedy="send less",
            )
        parts.append(part)
    return b"".join(parts)

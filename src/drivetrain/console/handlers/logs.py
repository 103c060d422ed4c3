"""Requests for the logs of an application's processes, and for the stacks of their threads.

Called by `console.routes.table`.
"""

from __future__ import annotations

import codecs
from collections.abc import AsyncIterator
from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.responses import Response

from drivetrain.cluster.client import Piece
from drivetrain.console.answers.events import EndEvent
from drivetrain.console.answers.operations import LogPiece, Logs, Threads
from drivetrain.console.embedded.runs import EmbeddedRuns
from drivetrain.console.event_stream import EventStream, as_event, require_place
from drivetrain.console.problems import RequestError
from drivetrain.console.route import Call
from drivetrain.errors import DrivetrainError

_Process = Annotated[str, Meta(max_length=300)]


class LogsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which log, and which part of it."""

    process: Annotated[_Process | None, Meta(description="Only this process's log.")] = None
    offset: Annotated[
        Annotated[int, Meta(ge=0, le=2**53)] | None,
        Meta(description="Read from this byte on, not the end; needs a process."),
    ] = None
    max_bytes: Annotated[int, Meta(ge=1, le=1024 * 1024, description="Most bytes of each log.")] = 64 * 1024


class FollowQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which log to follow."""

    process: Annotated[_Process | None, Meta(description="Only this process's log.")] = None


async def logs(call: Call) -> Logs:
    """The ends of the logs of an application's processes, or what follows an offset in one of them."""
    query = call.query
    assert isinstance(query, LogsQuery)
    if query.offset is not None and query.process is None:
        raise RequestError(
            "an offset needs a process",
            where="offset",
            remedy="name the process whose log it is an offset in",
        )
    pieces = await call.services.client.logs(
        call.path["app"], query.process, max_bytes=query.max_bytes, offset=query.offset
    )
    return Logs(pieces=tuple(_piece(piece, piece.data.decode(errors="replace")) for piece in pieces))


class ThreadsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of which process."""

    executor: Annotated[
        _Process | None, Meta(description="The executor, in a cluster; by default any that is ready.")
    ] = None


async def threads(call: Call) -> Threads:
    """What the threads of a run, or of an executor, do at this moment."""
    query, client = call.query, call.services.client
    assert isinstance(query, ThreadsQuery)
    if isinstance(client, EmbeddedRuns):
        found = await client.threads(await client.application(call.path["app"]))
        return Threads(executor=None, python=found["python"], java=found["java"])
    stacks = await client.threads(call.path["app"], query.executor)
    return Threads(executor=stacks.executor, python=stacks.python, java=stacks.java)


async def follow(call: Call) -> Response:
    """The ends of the logs, then what is written, until the application is over."""
    query = call.query
    assert isinstance(query, FollowQuery)
    view = await call.services.client.application(call.path["app"])
    require_place(call.services.streams)
    return EventStream(_followed(call, view.app_id, query.process), call.services.streams)


async def _followed(call: Call, app_id: str, process: str | None) -> AsyncIterator[bytes]:
    decoders: dict[tuple[str, str], codecs.IncrementalDecoder] = {}
    access = call.services.access
    try:
        async for piece in call.services.client.follow_logs(app_id, process):
            if not access.still_may(call.caller):
                return
            if piece is None:
                yield b": nothing new\n\n"
                continue
            decoder = decoders.setdefault(
                (piece.worker, piece.process), codecs.getincrementaldecoder("utf-8")("replace")
            )
            yield as_event("log", msgspec.json.encode(_piece(piece, decoder.decode(piece.data))))
    except DrivetrainError as error:
        yield as_event("end", msgspec.json.encode(EndEvent(problem=error.what, remedy=error.remedy)))
    else:
        yield as_event("end", msgspec.json.encode(EndEvent(problem=None, remedy=None)))


def _piece(piece: Piece, text: str) -> LogPiece:
    return LogPiece(process=piece.process, worker=piece.worker, next_offset=piece.next_offset, text=text)

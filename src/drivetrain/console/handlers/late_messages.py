"""Requests for late messages.

Called by `console.routes.table`.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from drivetrain.console import cursors
from drivetrain.console.answers.late_messages import LateMessage, LateMessages
from drivetrain.console.route import Call
from drivetrain.runtime import late_samples
from drivetrain.runtime.late_samples import Position, newest_of, samples_below


class LateMessagesQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which page of the samples."""

    limit: Annotated[int, Meta(ge=1, le=200, description="The length of a page.")] = 50
    cursor: Annotated[
        Annotated[str, Meta(max_length=2_000)] | None, Meta(description="The `next` of the page before.")
    ] = None


async def late_messages(call: Call) -> LateMessages:
    """A page of samples of the messages that came too late, the newest first."""
    query = call.query
    assert isinstance(query, LateMessagesQuery)
    view = await call.services.client.application(call.path["app"])
    kind = f"late-messages {view.app_id}"
    before = None if query.cursor is None else _position(cursors.read(query.cursor, kind))
    rundir = await call.services.state_of(view)
    status = await call.services.client.job_status(view)
    async with call.services.readers:
        found = await asyncio.to_thread(_read, rundir.path, query.limit + 1, before)
    page = found[: query.limit]
    more = cursors.Cursor(kind, msgspec.json.encode(page[-1][0]).decode()) if len(found) > len(page) else None
    return LateMessages(
        samples=tuple(_answered(position[1], sample) for position, sample in page),
        next=None if more is None else cursors.written(more),
        late=None if status is None else {id: late for id, (_, _, late, _) in status.counts.items() if late},
    )


def _read(
    state: Path, limit: int, before: Position | None
) -> list[tuple[Position, late_samples.LateMessage]]:
    return newest_of(samples_below(state), limit, before)


def _position(text: str) -> Position:
    try:
        return msgspec.json.decode(text, type=tuple[int, str, int])
    except (ValueError, msgspec.MsgspecError) as error:
        raise cursors.bad(str(error)) from error


def _answered(fragment: str, sample: late_samples.LateMessage) -> LateMessage:
    return LateMessage(
        fragment=fragment,
        processor=sample.processor,
        message=sample.message,
        is_cut=sample.is_cut,
        timestamp_ms=sample.timestamp_ms,
        clock_ms=sample.clock_ms,
        batch=sample.batch,
        stored_ms=sample.stored_ms,
    )

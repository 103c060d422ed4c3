"""Requests for dead letters.

Called by `console.routes.table`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from drivetrain.console import cursors
from drivetrain.console.answers.dead_letters import DeadLetter, DeadLetters
from drivetrain.console.route import Call
from drivetrain.runtime.dead_letter_pages import LetterPage, page_of, stores_below
from drivetrain.runtime.dead_letter_store import STORED

LONGEST: Final = 4_000
"""Most characters of a message, and of an error, in an answer."""


class DeadLettersQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which page of the dead letters."""

    limit: Annotated[int, Meta(ge=1, le=200, description="The length of a page.")] = 50
    cursor: Annotated[
        Annotated[str, Meta(max_length=30_000)] | None, Meta(description="The `next` of the page before.")
    ] = None


async def dead_letters(call: Call) -> DeadLetters:
    """A page of the messages that an application could not process, the newest first."""
    query = call.query
    assert isinstance(query, DeadLettersQuery)
    view = await call.services.client.application(call.path["app"])
    kind = f"dead-letters {view.app_id}"
    before = None if query.cursor is None else _position(cursors.read(query.cursor, kind))
    rundir = await call.services.state_of(view)
    async with call.services.readers:
        page = await asyncio.to_thread(_read, rundir.path, query.limit, before)
    position = None if page.before is None else msgspec.json.encode(page.before).decode()
    return DeadLetters(
        letters=tuple(map(_letter, page.letters)),
        next=None if position is None else cursors.written(cursors.Cursor(kind, position)),
        count=page.count,
        dropped=page.dropped,
    )


def _read(state: Path, limit: int, before: Mapping[str, int] | None) -> LetterPage:
    return page_of(stores_below(state), limit, before, LONGEST)


def _position(text: str) -> dict[str, int]:
    try:
        return msgspec.json.decode(text, type=dict[str, int])
    except (ValueError, msgspec.MsgspecError) as error:
        raise cursors.bad(str(error)) from error


def _letter(row: Mapping[str, Any]) -> DeadLetter:
    message, error, timestamp = row["message"] or "", row["error"] or "", row["timestamp"]
    return DeadLetter(
        fragment=row["fragment"],
        processor=row["operator"] or "",
        message=message[:LONGEST],
        error=error[-LONGEST:],
        is_cut=len(message) > LONGEST or len(error) > LONGEST,
        file=row["file"],
        line=row["line"],
        timestamp_ms=None if timestamp is None else timestamp // 1_000,
        stored_ms=row[STORED],
    )

"""Pages of messages that an application keeps in its state directory, the newest first.

Problem: dead letters and late messages are requested in the same way, page by page, but have different kinds
of positions.

Design: `page_of` finds the state directory, reads in a thread, and turns the position at which a page ends
into the cursor of the next one, and back. The caller reads the files, and answers.

Called by `console.handlers.dead_letters` and `console.handlers.late_messages`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from drivetrain.cluster.messages.applications import ApplicationView
from drivetrain.console import cursors
from drivetrain.console.route import Call

T = TypeVar("T")


class MessagesQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A page of messages."""

    limit: Annotated[int, Meta(ge=1, le=200, description="The length of a page.")] = 50
    cursor: Annotated[
        Annotated[str, Meta(max_length=30_000)] | None, Meta(description="The `next` of the page before.")
    ] = None


async def page_of(
    call: Call, list_name: str, position: Any, read: Callable[[Path, int, Any], tuple[T, Any]]
) -> tuple[ApplicationView, T, str | None]:
    """The application, a page of its messages, and the cursor of the next one; None on the last.

    `position` is the type of positions in the list. `read` gets the state directory, the length of a page and
    the position before which it begins (None: the newest); it returns the page, and the position before which
    the next one begins (None on the last).
    """
    query = call.query
    assert isinstance(query, MessagesQuery)
    view = await call.services.client.application(call.path["app"])
    kind = f"{list_name} {view.app_id}"
    before = None if query.cursor is None else _position(cursors.read(query.cursor, kind), position)
    rundir = await call.services.state_of(view)
    async with call.services.readers:
        page, following = await asyncio.to_thread(read, rundir.path, query.limit, before)
    if following is None:
        return view, page, None
    return view, page, cursors.written(cursors.Cursor(kind, msgspec.json.encode(following).decode()))


def _position(text: str, position: Any) -> Any:
    try:
        return msgspec.json.decode(text, type=position)
    except (ValueError, msgspec.MsgspecError) as error:
        raise cursors.bad(str(error)) from error

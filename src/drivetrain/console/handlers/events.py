"""The stream of events: server-sent events about changes, as fast as the reader takes them.

    begin         the first: whether it continues an earlier stream        `BeginEvent`
    connection    whether the console reaches a leading master             `ConnectionEvent`
    cluster       the cluster in short                                     `Cluster`
    application   an application of the list                               `ApplicationSummary`
    snapshot      all of an application that was asked for by `app`        `ApplicationSnapshot`
    gone          the cluster has no such application any more             `GoneEvent`
    tick          nothing else happened for `TICK_S` seconds               `TickEvent`
    end           the last: the console ends                               `EndEvent`

Each event but `begin`, `tick` and `end` has an id, which a browser sends back as `Last-Event-ID` when it
connects again: it then gets the changes since that event. Each carries a whole state, so a reader that is
slow, or was away, misses intermediate states but never the last one; and the memory of the console does not
depend on how slow readers are.

Invariants:

1. Ids grow within a stream.
2. A stream holds at most `PAGE` events that were not sent.

Called by `console.routes.table`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Annotated, Final

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from drivetrain.console.answers.events import BeginEvent, EndEvent, TickEvent
from drivetrain.console.event_stream import EventStream, as_event, require_place
from drivetrain.console.route import Call
from drivetrain.console.watching.board import Topic
from drivetrain.console.watching.cluster_watch import SNAPSHOT, Watch

TICK_S: Final = 5.0
MOST_APPLICATIONS: Final = 20
PAGE: Final = 16


class EventsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of which applications snapshots are wanted."""

    app: Annotated[
        tuple[Annotated[str, Meta(max_length=200)], ...],
        Meta(max_length=MOST_APPLICATIONS, description="Send snapshots of this application (id or name)."),
    ] = ()


async def events(call: Call) -> Response:
    """The stream; raises UnknownApplicationError for an unknown application."""
    query = call.query
    assert isinstance(query, EventsQuery)
    client = call.services.client
    views = await asyncio.gather(*(client.application(app) for app in frozenset(query.app)))
    require_place(call.services.streams)
    ids = frozenset(view.app_id for view in views)
    return EventStream(_events(call, ids), call.services.streams)


async def _events(call: Call, ids: frozenset[str]) -> AsyncIterator[bytes]:
    watch = call.services.watch
    number, continues = _begins_after(call.request, watch)
    yield as_event("begin", msgspec.json.encode(BeginEvent(now_ms=_now_ms(), continues=continues)))

    def wanted(topic: Topic) -> bool:
        return topic.event != SNAPSHOT or topic.app_id in ids

    async with watch.listening(ids):
        while call.services.access.still_may(call.caller):
            await watch.wait_after(number, TICK_S)
            newest, notes = watch.board.newest, watch.board.after(number, wanted, PAGE)
            if not notes:
                if watch.is_ending:
                    yield as_event("end", msgspec.json.encode(EndEvent(problem=None, remedy=None)))
                    return
                number = newest
                yield as_event("tick", msgspec.json.encode(TickEvent(now_ms=_now_ms())))
            for note in notes:
                number = note.number
                data = note.data if call.caller.sees_errors else note.for_guests
                yield as_event(note.topic.event, data, f"{watch.boot}-{number}")


def _begins_after(request: Request, watch: Watch) -> tuple[int, bool]:
    """The number after which a stream begins, and whether it continues another one of this console."""
    boot, _, number = request.headers.get("last-event-id", "").rpartition("-")
    if boot != watch.boot or not number.isdecimal() or len(number) > 18:
        return 0, False
    return min(int(number), watch.board.newest), True


def _now_ms() -> int:
    return time.time_ns() // 1_000_000

"""Server-sent events as an answer: the next event is made when the one before has left.

Problem: a reader that is slow, or has stopped reading without closing its connection, must cost little.

Invariants:

1. A stream holds at most one event that was not sent, besides those in the socket's buffer.
2. The stream of a reader that takes nothing for `STUCK_S` is closed; there are at most `MOST_STREAMS`
   streams.
3. When a reader has gone, the generator of its events is closed.

Called by `console.handlers.events` and `console.handlers.logs`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Final

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from drivetrain.console.problems import RequestError
from drivetrain.console.services import OpenCount

STUCK_S: Final = 60.0
MOST_STREAMS: Final = 500
MEDIA_TYPE: Final = "text/event-stream"

log = logging.getLogger("drivetrain.console")


def require_place(streams: OpenCount) -> None:
    """Raise RequestError when no more streams may be open."""
    if streams.count >= MOST_STREAMS:
        raise RequestError(
            "too many pages listen for events",
            code="too-many",
            expected=f"at most {MOST_STREAMS} streams",
            remedy="close some of them, and try again",
        )


def as_event(event: str, data: bytes, id: str | None = None) -> bytes:
    """An event as it is sent; `data` is JSON, which has no line ends."""
    named = f"event: {event}\n" if id is None else f"event: {event}\nid: {id}\n"
    return named.encode() + b"data: " + data + b"\n\n"


class EventStream(Response):
    """Sends events one after the other."""

    def __init__(self, events: AsyncIterator[bytes], streams: OpenCount) -> None:
        super().__init__(media_type=MEDIA_TYPE)
        del self.headers["content-length"]
        self.headers["Cache-Control"] = "no-store"
        self.headers["X-Accel-Buffering"] = "no"
        self._events: Final = events
        self._streams: Final = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the reader has gone, or takes nothing any more."""
        self._streams.count += 1
        sending = asyncio.ensure_future(self._send(send))
        leaving = asyncio.ensure_future(_gone(receive))
        try:
            await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._streams.count -= 1
            for task in (sending, leaving):
                task.cancel()
            ended, _ = await asyncio.gather(sending, leaving, return_exceptions=True)
            if isinstance(ended, Exception) and not isinstance(
                ended, OSError
            ):  # that is a reader who has gone
                log.error("a stream of events met a bug", exc_info=ended)
            if isinstance(self._events, AsyncGenerator):
                await self._events.aclose()

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async for event in self._events:
            async with asyncio.timeout(STUCK_S):
                await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


async def _gone(receive: Receive) -> None:
    message: Message = await receive()
    while message["type"] != "http.disconnect":
        message = await receive()

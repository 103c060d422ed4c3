"""The flow controller of a process: it exchanges flow messages between the ends of channels, and keeps time.

Problem: both ends of a channel may be in this process, or one of them in another.

Design: an actor over the process's `FlowBook`. It receives the flow messages that the book sends and those of
other processes. A message for a fragment in this process goes to the book, any other to `forward`, which in a
cluster passes it to the application master. A message without a receiver is dropped: its sender repeats it.
So is one from another process while the query that it is for has not started: the application master would
relay it here again and again.

Invariants:

1. Flow messages are handled one after the other, in a thread, since looking at a log reads files.
2. A message that breaks the protocol is dropped and logged; this process's end of the channel does not
   change.
3. A message is forwarded once.

Called by `embedded` and by the cluster's executor.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from drivetrain.actor import Actor, Message
from drivetrain.core.flow.flow import FlowMessage
from drivetrain.errors import PeerViolationError
from drivetrain.spark.flow.flow_book import FlowBook

TICK_MS: Final = 100

log = logging.getLogger(__name__)


class FlowMessageReceived(Message, frozen=True, tag="dt.local.flow.message-received"):
    """A flow message, from an end in this process, or relayed from another."""

    flow_message: FlowMessage
    is_relayed: bool = False


class _Tick(Message, frozen=True, tag="dt.local.flow.tick"):
    """Time has passed."""


class FlowController(Actor):
    """Serves `book`; `forward` takes messages for fragments of other processes, on the actor's loop."""

    def __init__(self, book: FlowBook, forward: Callable[[FlowMessage], None]) -> None:
        self._book: Final = book
        self._forward: Final = forward

    def pre_start(self) -> None:
        """Subscribe to the book's messages."""
        system, me = self.context.system, self.context.me
        self._book.send = lambda message: system.tell_threadsafe(me, FlowMessageReceived(message))
        self.context.timers.start_periodic("tick", _Tick(), interval_ms=TICK_MS)

    async def receive(self, message: Message) -> None:
        """Handle one message."""
        match message:
            case FlowMessageReceived(flow_message) if self._book.is_local(flow_message):
                try:
                    await self.context.blocking(self._book.receive, flow_message)
                except PeerViolationError as error:
                    log.warning("channel %s: %s", flow_message.channel, error)
            case FlowMessageReceived(flow_message, is_relayed):
                if not is_relayed:
                    self._forward(flow_message)
            case _Tick():
                self._book.tick()
            case _:
                self.context.unhandled(message)


def drop_message(message: FlowMessage) -> None:
    """The `forward` of a process that runs all fragments: any other fragment has ended."""

"""The flow controller of a process: carries words between the ends of channels, and minds the time.

Problem: both ends of a channel may be in this process, or one of them in another.

Design: an actor over the process's `FlowBook`. Words that the book says come to it as messages, as do those
of other processes; a word for a fragment that runs here goes to the book, any other to `forward`, which in
a cluster hands it to the application master. A word for nobody is dropped: it is said again.

Invariants:

1. Words are taken one after the other, in a thread, since looking at a log reads files.
2. A word that cannot be meant (of a peer that breaks the protocol) is dropped and logged; the channel's own
   end is unchanged.

Called by `embedded` and by the cluster's executor.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from drivetrain.actor import Actor, Message
from drivetrain.core.flow.flow import Word
from drivetrain.errors import PeerViolationError
from drivetrain.spark.flow.flow_book import FlowBook

TICK_MS: Final = 100

log = logging.getLogger(__name__)


class FlowWord(Message, frozen=True, tag="dt.local.flow.word"):
    """A word, of an end here or of one in another process."""

    word: Word


class _Tick(Message, frozen=True, tag="dt.local.flow.tick"):
    """Time has passed."""


class FlowController(Actor):
    """Serves `book`; `forward` takes words for fragments that do not run here, on the actor's loop."""

    def __init__(self, book: FlowBook, forward: Callable[[Word], None]) -> None:
        self._book: Final = book
        self._forward: Final = forward

    def pre_start(self) -> None:
        """Listen to the book."""
        system, me = self.context.system, self.context.me
        self._book.send = lambda word: system.tell_threadsafe(me, FlowWord(word))
        self.context.timers.start_periodic("tick", _Tick(), interval_ms=TICK_MS)

    async def receive(self, message: Message) -> None:
        """Handle one message."""
        match message:
            case FlowWord(word) if self._book.is_here(word):
                try:
                    await self.context.blocking(self._book.hear, word)
                except PeerViolationError as error:
                    log.warning("channel %s: %s", word.channel, error)
            case FlowWord(word):
                self._forward(word)
            case _Tick():
                self._book.tick()
            case _:
                self.context.unhandled(message)


def nobody_else(word: Word) -> None:
    """For a process that runs all fragments: a word for another one is for a fragment that is over."""

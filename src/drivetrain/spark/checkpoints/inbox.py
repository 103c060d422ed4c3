"""A queue of events for a fragment's participation in checkpoints, filled by any thread.

Problem: events arrive while a step runs; the thread that waits for them must leave handling them to the
step.

Design: a queue, and the events that `wait` has taken from it.

Called by `participation`.
"""

from __future__ import annotations

import queue
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeAlias

from drivetrain.core.checkpoint.transaction import Command


@dataclass(frozen=True)
class BatchRan:
    """The query has run a batch."""


@dataclass(frozen=True)
class CheckInputs:
    """There may be a barrier in a channel, or the end was reached."""


@dataclass(frozen=True)
class CommandReceived:
    """A command came as a message."""

    input: str
    command: Command


News: TypeAlias = BatchRan | CheckInputs | CommandReceived


class Inbox:
    """The events of one attempt; `put` from any thread."""

    def __init__(self) -> None:
        self._queue: Final[queue.SimpleQueue[News]] = queue.SimpleQueue()
        self._found: Final[deque[News]] = deque()

    def put(self, news: News) -> None:
        """Queue an event until a step takes it."""
        self._queue.put(news)

    def wait(self, timeout_s: float) -> None:
        """Wait until there is an event to take, at most for the timeout."""
        with suppress(queue.Empty):
            self._found.append(self._queue.get(timeout=timeout_s))

    def take(self) -> News | None:
        """The oldest event, if there is any."""
        if self._found:
            return self._found.popleft()
        try:
            return self._queue.get_nowait()
        except queue.Empty:
            return None

"""What a fragment's part in checkpoints hears, from whatever thread, until it takes it.

Problem: news come while a step is taken; who waits for them in a thread of its own must not take them apart
from the step.

Design: a queue, and what `wait` has found in it.

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
class Ran:
    """The query has run a batch."""


@dataclass(frozen=True)
class Look:
    """There may be a barrier in a channel, or the end has come."""


@dataclass(frozen=True)
class Heard:
    """A command came as a word."""

    input: str
    command: Command


News: TypeAlias = Ran | Look | Heard


class Inbox:
    """The news of one attempt; `put` from any thread."""

    def __init__(self) -> None:
        self._queue: Final[queue.SimpleQueue[News]] = queue.SimpleQueue()
        self._found: Final[deque[News]] = deque()

    def put(self, news: News) -> None:
        """Keep it until it is taken."""
        self._queue.put(news)

    def wait(self, timeout_s: float) -> None:
        """Wait until there is something to take, or for so long."""
        with suppress(queue.Empty):
            self._found.append(self._queue.get(timeout=timeout_s))

    def take(self) -> News | None:
        """The oldest, if there is any."""
        if self._found:
            return self._found.popleft()
        try:
            return self._queue.get_nowait()
        except queue.Empty:
            return None

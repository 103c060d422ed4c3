"""The dispatcher: cells with pending work take turns, one at a time, in the thread of the event loop.

Problem: a task or a queue per actor costs microseconds per message and kilobytes per idle actor, and one
actor with a full mailbox must not block the loop's sockets and timers.

Design: ready cells are in one queue. One callback per loop turn takes cells from the queue; each handles
at most `BATCH` messages and then goes to the end; after about `TURN_BUDGET` messages the rest waits for
the next turn of the loop.

Invariants:
1. A cell is in the queue at most once (the cell's own `scheduled` records it).
2. While the queue is not empty, exactly one callback is armed or running.
3. A failing cell does not stop the others' turns.

Called by cells.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextvars import Context
from typing import Final, Protocol

from drivetrain.errors import InternalError

BATCH: Final = 128
TURN_BUDGET: Final = 1024


class Schedulable(Protocol):
    """An element of the queue: the part of a cell that matters here."""

    scheduled: bool
    """Whether it is in the queue, or takes its turn."""

    def take_turn(self) -> int:
        """Do the pending work, up to a batch of messages; return about how much was done."""


class Dispatcher:
    """The queue of ready cells of one system; callbacks run in `context`."""

    __slots__ = ("_armed", "_context", "_line", "_loop", "_turn_callback")

    def __init__(self, loop: asyncio.AbstractEventLoop, context: Context) -> None:
        self._loop = loop
        self._context = context
        self._line: deque[Schedulable] = deque()
        self._armed = False
        self._turn_callback = self._turn

    @property
    def waiting(self) -> int:
        """How many cells wait for a turn."""
        return len(self._line)

    def enqueue(self, cell: Schedulable) -> None:
        """Let `cell` take a turn soon; the caller ensures that it is not in the queue yet."""
        self._line.append(cell)
        if not self._armed:
            self._armed = True
            self._loop.call_soon(self._turn_callback, context=self._context)

    def _turn(self) -> None:
        line = self._line
        budget = TURN_BUDGET
        try:
            # Cells that become ready meanwhile wait for the next turn, so that the loop can serve its
            # sockets.
            for _ in range(len(line)):
                budget -= line.popleft().take_turn()
                if budget <= 0:
                    break
        finally:
            self._armed = bool(line)
            if line:
                self._loop.call_soon(self._turn_callback, context=self._context)

    def check(self) -> None:
        """Verify the invariants; raises `InternalError`."""
        if self._line and not self._armed:
            raise InternalError("dispatch invariant 2: cells wait and no callback is armed")
        if len({id(cell) for cell in self._line}) != len(self._line):
            raise InternalError("dispatch invariant 1: a cell is in the line twice")
        if not all(cell.scheduled for cell in self._line):
            raise InternalError("dispatch invariant 1: a cell in the line is not marked as scheduled")

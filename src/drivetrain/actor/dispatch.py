"""Who runs next: cells with something to do, one after the other, in the thread of the event loop.

Problem: a task or a queue per actor costs microseconds per message and kilobytes per idle actor, and one
actor with a full mailbox must not keep the loop from its sockets and timers.

Design: ready cells stand in one line. One callback per loop turn takes cells from the line; each handles
at most `BATCH` messages and then goes to the end; after about `TURN_BUDGET` messages the rest waits for
the next turn of the loop.

Invariants:
1. A cell stands in the line at most once (the cell's own `scheduled` says so).
2. While the line is not empty, exactly one callback is armed or running.
3. A cell that fails to take its turn does not keep the others from theirs.

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


class TakesTurns(Protocol):
    """What stands in the line: a cell, of which nothing else matters here."""

    scheduled: bool
    """Whether it stands in the line, or takes its turn."""

    def take_turn(self) -> int:
        """Do what there is to do, up to a batch of messages; return about how much that was."""


class Dispatcher:
    """The line of ready cells of one system; callbacks run in `context`."""

    __slots__ = ("_armed", "_context", "_line", "_loop", "_turn_callback")

    def __init__(self, loop: asyncio.AbstractEventLoop, context: Context) -> None:
        self._loop = loop
        self._context = context
        self._line: deque[TakesTurns] = deque()
        self._armed = False
        self._turn_callback = self._turn

    @property
    def waiting(self) -> int:
        """How many cells wait for a turn."""
        return len(self._line)

    def enqueue(self, cell: TakesTurns) -> None:
        """Let `cell` take a turn soon; the caller sees to it that it does not stand in the line yet."""
        self._line.append(cell)
        if not self._armed:
            self._armed = True
            self._loop.call_soon(self._turn_callback, context=self._context)

    def _turn(self) -> None:
        line = self._line
        budget = TURN_BUDGET
        try:
            # Those that become ready meanwhile wait for the next turn, so that the loop can look around.
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

"""One life of a simulated process: what it started, and whether that may still run.

Problem: killing a process must stop all its work at once, without running any of its clean-up, and
nothing of the dead life may leak into the next one.

Design: a life is stored in a context variable. asyncio copies the context into every task, callback and
timer, so everything that a process starts carries its life automatically. The loop checks the
life before it runs a callback: a dead life's are dropped, a frozen one's are kept until it thaws.

Invariants:
1. A life that is dead stays dead; a restarted process gets a new one.
2. While a life is frozen, none of its callbacks runs and none is lost.

Called by `SimulatedLoop`, `Node` and the simulated network and disks.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextvars import ContextVar
from typing import Final, NamedTuple

CURRENT_LIFE: Final[ContextVar[Life | None]] = ContextVar("drivetrain_simulated_life", default=None)


class Life:
    """One life of the process `name`; `number` counts them from 1.

    `is_alive` and `is_frozen` are for the owner (`Node`) to set.
    """

    __slots__ = ("frozen", "is_alive", "is_frozen", "name", "number")

    def __init__(self, name: str, number: int) -> None:
        self.name: Final = name
        self.number: Final = number
        self.is_alive = True
        self.is_frozen = False
        self.frozen: deque[Ready] = deque()

    def __str__(self) -> str:
        return f"{self.name}#{self.number}"


class Ready(NamedTuple):
    """One callback and the life of the process that it belongs to; `life` is None for the scenario's own."""

    handle: asyncio.Handle
    life: Life | None

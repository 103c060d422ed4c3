"""The callbacks that could run now, and the seeded choice between them.

Problem: a program whose outcome depends on which of two ready callbacks runs first is wrong, but a real
event loop nearly always uses the same order, so that tests never see the other one.

Design: ready callbacks are in *lanes*. One lane is a sequence whose order asyncio guarantees:
the steps of one task; all other callbacks of one process. Between lanes no order is guaranteed (other
processes run in parallel; a task is woken by input and output in any order), so a seeded generator draws the
next lane. Choosing and taking are O(1).

Invariants:
1. Callbacks of one lane leave in the order in which they were added.
2. A lane exists only while it holds a callback.
3. With the same seed and the same calls the same callbacks leave in the same order: no choice depends on
   addresses or hashes.

Called by `SimulatedLoop` only. The idea of shuffling a batch of ready tasks is trio's.
"""

from __future__ import annotations

import asyncio
from collections import deque
from random import Random
from typing import Final

from drivetrain.simulator.process_life import Ready

_Lane = tuple[tuple[int, int], deque[Ready]]
"""What identifies a lane, and its callbacks."""


class Lanes:
    """All ready callbacks; `pop` draws one."""

    def __init__(self, random: Random) -> None:
        self._draw: Final = random.random
        self._lanes: dict[tuple[int, int], deque[Ready]] = {}
        # The same lanes in a list, to draw from: the position is arbitrary but reproducible.
        self._order: list[_Lane] = []

    def __bool__(self) -> bool:
        """Whether any callback is ready."""
        return bool(self._order)

    def push(self, ready: Ready) -> None:
        """Put the callback at the end of its lane."""
        handle, life = ready
        # Addresses only distinguish lanes while their owners are alive; they never decide an order.
        # `Handle` keeps its callback, a bound callback its object: neither address is reused meanwhile.
        owner = getattr(getattr(handle, "_callback", None), "__self__", None)
        key = (0 if life is None else id(life), id(owner) if isinstance(owner, asyncio.Task) else 0)
        waiting = self._lanes.get(key)
        if waiting is None:
            # Nearly every callback is the only one of its lane.
            waiting = self._lanes[key] = deque((ready,))
            self._order.append((key, waiting))
        else:
            waiting.append(ready)

    def pop(self) -> Ready:
        """Take the first callback of a lane drawn at random; raises IndexError when there is none."""
        order = self._order
        at = int(self._draw() * len(order)) if len(order) > 1 else 0
        key, waiting = order[at]
        ready = waiting.popleft()
        if not waiting:
            order[at] = order[-1]
            order.pop()
            del self._lanes[key]
        return ready

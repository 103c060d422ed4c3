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


class _Lane:
    """The callbacks of one lane; `key` identifies it."""

    __slots__ = ("key", "waiting")

    def __init__(self, key: tuple[int, int]) -> None:
        self.key = key
        self.waiting: deque[Ready] = deque()


class Lanes:
    """All ready callbacks; `pop` draws one."""

    def __init__(self, random: Random) -> None:
        self._random: Final = random
        self._lanes: dict[tuple[int, int], _Lane] = {}
        # The same lanes in a list, to draw from: the position is arbitrary but reproducible.
        self._order: list[_Lane] = []
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def push(self, ready: Ready) -> None:
        """Put the callback at the end of its lane."""
        key = _lane_key(ready)
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane(key)
            self._order.append(lane)
        lane.waiting.append(ready)
        self._size += 1

    def pop(self) -> Ready:
        """Take the first callback of a lane drawn at random; raises IndexError when there is none."""
        order = self._order
        at = int(self._random.random() * len(order)) if len(order) > 1 else 0
        lane = order[at]
        ready = lane.waiting.popleft()
        self._size -= 1
        if not lane.waiting:
            order[at] = order[-1]
            order.pop()
            del self._lanes[lane.key]
        return ready


def _lane_key(ready: Ready) -> tuple[int, int]:
    # Addresses only distinguish lanes while their owners are alive; they never decide an order.
    # `Handle` keeps its callback, and a bound callback its object, so neither address is reused meanwhile.
    owner = getattr(getattr(ready.handle, "_callback", None), "__self__", None)
    task = id(owner) if isinstance(owner, asyncio.Task) else 0
    return (0 if ready.life is None else id(ready.life), task)

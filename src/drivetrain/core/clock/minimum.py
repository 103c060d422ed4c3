"""The smallest of many numbers that change one at a time.

Problem: a clock service receives one fragment's report at a time, and after each it must know the smallest
clock of a thousand fragments. A scan would look at all of them, a heap would fill with outdated numbers.

Design: a tournament. Leaves are the numbers in their order; each inner node holds the smaller of its two. A
change replays the matches from its leaf upwards and stops where the winner stays the same.

Invariants, checked by `check`:

1. Every inner node is the smaller of its two children.
2. `first` is the leftmost of the smallest.

A plain data structure. Called by `clock_service`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from drivetrain.errors import InternalError

_NONE: Final = 1 << 63
"""Above every clock: fills unused leaves."""


class Minimum:
    """Numbers by position, from 0; there is at least one."""

    __slots__ = ("_size", "_tree", "count")

    def __init__(self, numbers: Iterable[int]) -> None:
        given = list(numbers)
        if not given:
            raise InternalError("the smallest of no numbers is asked for")
        self.count: Final = len(given)
        self._size = 1 << (len(given) - 1).bit_length()
        self._tree = [_NONE] * self._size + given + [_NONE] * (self._size - len(given))
        for node in range(self._size - 1, 0, -1):
            self._tree[node] = min(self._tree[2 * node], self._tree[2 * node + 1])

    @property
    def smallest(self) -> int:
        """The smallest number."""
        return self._tree[1]

    @property
    def first(self) -> int:
        """The first position that holds the smallest number."""
        node = 1
        while node < self._size:
            node *= 2
            if self._tree[node] != self._tree[1]:
                node += 1
        return node - self._size

    def __getitem__(self, position: int) -> int:
        return self._tree[self._size + position]

    def put(self, position: int, number: int) -> None:
        """Change the number at a position; costs at most the logarithm of the count."""
        tree, node = self._tree, self._size + position
        tree[node] = number
        while node > 1:
            node //= 2
            left, right = tree[2 * node], tree[2 * node + 1]
            smaller = left if left <= right else right
            if tree[node] == smaller:
                return
            tree[node] = smaller

    def check(self) -> None:
        """Raise InternalError when an invariant does not hold."""
        numbers = self._tree[self._size : self._size + self.count]
        for node in range(1, self._size):
            if self._tree[node] != min(self._tree[2 * node], self._tree[2 * node + 1]):
                raise InternalError(f"invariant 1: node {node} is not the smaller of its two")
        if self.first != numbers.index(min(numbers)):
            raise InternalError(f"invariant 2: {self.first} is not the first of the smallest")

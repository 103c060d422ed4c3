"""xoscar's counter for `benchmarks.remote`: a module of its own, as its other process imports it."""

from __future__ import annotations

import xoscar


class Counter(xoscar.Actor):  # type: ignore[misc]
    def __init__(self) -> None:
        self.total = 0

    def add(self, amount: int) -> None:
        self.total += amount

    def get(self, load: bytes) -> int:
        return self.total

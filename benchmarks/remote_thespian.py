"""Thespian's counter for `benchmarks.remote`: a module of its own, as its other process imports it."""

from __future__ import annotations

from typing import Any

from thespian.actors import Actor


class Counter(Actor):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    def receiveMessage(self, message: Any, sender: Any) -> None:  # noqa: N802 - Thespian's name
        if isinstance(message, tuple):
            self.send(sender, self.total)
        elif isinstance(message, int):
            self.total += message

"""Counts the calls from Python into Java, by the place in the program that makes them.

Every call is a command that py4j sends, for which the thread waits. A call belongs to the innermost function
on the stack that is Drivetrain's or the benchmark's, and is told with PySpark's function that makes it.
Messages that only free objects of Java are counted apart: py4j sends them once Python has dropped an object.

Called by `calls`.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import py4j.clientserver

FREES = "m\n"
"""How commands begin that free an object of Java."""
_OURS = ("drivetrain.", "benchmarks.")
_NOT_PLACES = ("benchmarks.java_calls", "drivetrain.spark.measure.batch_times")


class JavaCalls:
    """The calls so far, by place; usable from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_place: Counter[str] = Counter()
        self._freed = 0
        self._here = threading.local()

    def took(self, command: str, place: str) -> None:
        """Count one call of this thread."""
        if getattr(self._here, "is_uncounted", False):
            return
        with self._lock:
            if command.startswith(FREES):
                self._freed += 1
                return
            self._by_place[place] += 1
        self._here.calls = self.of_thread() + 1

    @contextmanager
    def uncounted(self) -> Iterator[None]:
        """Within the block, calls of this thread are not counted."""
        self._here.is_uncounted = True
        try:
            yield
        finally:
            self._here.is_uncounted = False

    def of_thread(self) -> int:
        """The calls of this thread so far."""
        return int(getattr(self._here, "calls", 0))

    def so_far(self) -> tuple[Counter[str], int]:
        """The calls by place, and the messages that freed objects."""
        with self._lock:
            return Counter(self._by_place), self._freed


@contextmanager
def counted_calls() -> Iterator[JavaCalls]:
    """Within the block, calls of all threads are counted."""
    calls, send = JavaCalls(), py4j.clientserver.JavaClient.send_command

    def counting(self: Any, command: str, *args: Any, **options: Any) -> Any:
        calls.took(command, _place())
        return send(self, command, *args, **options)

    py4j.clientserver.JavaClient.send_command = counting
    try:
        yield calls
    finally:
        py4j.clientserver.JavaClient.send_command = send


def _place() -> str:
    """The innermost function that is not a library's, and the function of PySpark that it called."""
    frame: FrameType | None = sys._getframe(2)
    by = ""
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        name = f"{module.rsplit('.', 1)[-1]}.{frame.f_code.co_qualname}"
        if module.startswith(_OURS) and module not in _NOT_PLACES:
            return f"{name} > {by}" if by else name
        if module.startswith("pyspark."):
            by = name
        frame = frame.f_back
    return by or "?"

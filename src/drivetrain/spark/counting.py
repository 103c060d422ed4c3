"""Counting messages per processor without slowing them down.

Python steps count what they emit in the worker and hand it to an accumulator. Native operators whose
output cannot be derived are observed (`DataFrame.observe`, a metric of the plan). The rest follows:
a map emits what it gets, a sink gets what it says it wrote.

A task that Spark retries is counted again: figures of runs with retried tasks are upper bounds.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark import AccumulatorParam, SparkContext


class _Sums(AccumulatorParam[dict[str, int]]):
    """Dictionaries that add up key by key."""

    def zero(self, value: dict[str, int]) -> dict[str, int]:
        """No counts."""
        return {}

    def addInPlace(self, value1: dict[str, int], value2: dict[str, int]) -> dict[str, int]:  # noqa: N802 - Spark's name
        """Both sides' counts."""
        for key, n in value2.items():
            value1[key] = value1.get(key, 0) + n
        return value1


@dataclass
class Counts:
    """Messages that processors emitted (`out`), took (`into`), dropped as late, or dead-lettered.

    All keyed by processor id. The engine adds to them from the threads of its queries.
    """

    out: dict[str, int] = field(default_factory=dict)
    into: dict[str, int] = field(default_factory=dict)
    late: dict[str, int] = field(default_factory=dict)
    dead: dict[str, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, which: dict[str, int], processor: str, n: int) -> None:
        """Add `n` to one of the four."""
        with self._lock:
            which[processor] = which.get(processor, 0) + n

    def merge_out(self, counts: Mapping[str, int]) -> None:
        """Add what an accumulator or an observation collected."""
        for processor, n in counts.items():
            self.add(self.out, processor, n)


def step_counter(context: SparkContext) -> Any:
    """An accumulator of dictionaries for `PythonStage.counter`."""
    return context.accumulator({}, _Sums())

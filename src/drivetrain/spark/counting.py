"""Counting messages per processor without slowing them down.

Filters and flat maps are observed (`DataFrame.observe`, a metric of the plan); sources, sinks and
channels say what they gave or took. The rest follows from these (see `core.counts`).

A task that Spark retries is counted again: figures of runs with retried tasks are upper bounds.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field


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

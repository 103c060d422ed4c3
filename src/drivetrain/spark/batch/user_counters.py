"""The user's accumulators on Spark's: how counts come back from Python on the workers.

Problem: counters of functions that run in Spark's Python workers, told apart by fragment and attempt,
although one process may run several of them on one Spark session.

Design: one Spark accumulator per attempt of a fragment, which adds up pairs (name, amount). While functions
of that attempt are sent to the workers, `active` makes every `drivetrain.accumulator` in them carry it. Spark
gives each task a copy that is empty, and merges the copies of tasks that succeeded into ours before it calls
their job finished.

Invariants:

1. A value is complete once the job that counted is finished.
2. Code that uses no accumulator carries none and pays nothing.

Spark 4.3 merges from every Python function in a query (scalar, Arrow, grouped, stateful) and from the readers
of Python data sources.

Called by `message_counts`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark import SparkContext
from pyspark.accumulators import Accumulator as SparkAccumulator
from pyspark.accumulators import AccumulatorParam

from drivetrain.api.accumulators import counting_at

Number = int | float


class _ByName(AccumulatorParam):
    """Adds (name, amount) on workers, and whole dictionaries when Spark merges."""

    def zero(self, value: Any) -> dict[str, Number]:
        return {}

    def addInPlace(self, value1: dict[str, Number], value2: Any) -> dict[str, Number]:  # noqa: N802 - Spark's
        pairs = value2.items() if isinstance(value2, dict) else (value2,)
        for name, amount in pairs:
            value1[name] = value1.get(name, 0) + amount
        return value1


class UserCounters:
    """The user's counters of one attempt of one fragment."""

    def __init__(self) -> None:
        self._spark: SparkAccumulator[Any] | None = None
        self._lock = threading.Lock()

    @contextmanager
    def active(self) -> Iterator[None]:
        """Have what is sent to the workers in this block, from this thread, count here."""
        with counting_at(self):
            yield

    def add(self, term: tuple[str, Number]) -> None:
        """Count in the driver itself."""
        self._made().add(term)

    def __reduce__(self) -> tuple[object, ...]:
        # What travels is Spark's accumulator alone; it has the same `add`.
        return self._made().__reduce__()

    def values(self) -> dict[str, Number]:
        """What has been counted so far, by name."""
        spark = self._spark
        return {} if spark is None else dict(spark.value)

    def _made(self) -> SparkAccumulator[Any]:
        with self._lock:
            if self._spark is None:
                context = SparkContext._active_spark_context
                assert context is not None, "functions are sent to workers only while Spark runs"
                self._spark = context.accumulator({}, _ByName())
            return self._spark

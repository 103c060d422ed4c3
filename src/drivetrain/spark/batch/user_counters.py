"""The user's accumulators, based on Spark's: they bring counts back from Python on the workers.

Problem: functions that run in Spark's Python workers count, and the counts must be kept apart by fragment and
attempt, although one process may run several of them on one Spark session.

Design: one Spark accumulator per attempt of a fragment, which adds up pairs (name, amount). While functions
of that attempt are sent to the workers, `active` puts it into every `drivetrain.accumulator` in them. Spark
gives each task an empty copy, and merges the copies of tasks that succeeded into the driver's before it
declares their job finished.

How long Python code took (`python_work`) comes back in the same way, under names that users do not see.

Invariants:

1. A value is complete once the job that counted is finished.
2. A plan without Python code carries no accumulator and pays nothing.

Spark 4.3 merges from every Python function in a query (scalar, Arrow, grouped, stateful) and from the readers
of Python data sources.

Called by `message_counts`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyspark import SparkContext
from pyspark.accumulators import Accumulator as SparkAccumulator
from pyspark.accumulators import AccumulatorParam

from drivetrain.api.accumulators import collecting_into
from drivetrain.spark.compile.python_work import HIDDEN, LONGEST_NS, SPENT_NS, TASKS

Number = int | float


class _ByName(AccumulatorParam):
    """Adds (name, amount) on workers, and whole dictionaries when Spark merges."""

    def zero(self, value: Any) -> dict[str, Number]:
        return {}

    def addInPlace(self, value1: dict[str, Number], value2: Any) -> dict[str, Number]:  # noqa: N802 - Spark's
        pairs = value2.items() if isinstance(value2, dict) else (value2,)
        for name, amount in pairs:
            known = value1.get(name, 0)
            value1[name] = max(known, amount) if name == LONGEST_NS else known + amount
        return value1


@dataclass(frozen=True)
class PythonWork:
    """Python code in one batch: all tasks together and the longest one, in ms, and how many they were."""

    total_ms: int = 0
    longest_ms: int = 0
    tasks: int = 0


class UserCounters:
    """The user's counters of one attempt of one fragment."""

    def __init__(self) -> None:
        self._spark: SparkAccumulator[Any] | None = None
        self._lock = threading.Lock()

    @contextmanager
    def active(self) -> Iterator[None]:
        """Have functions that this thread sends to the workers in this block count here."""
        with collecting_into(self):
            yield

    def add(self, term: tuple[str, Number]) -> None:
        """Count in the driver itself."""
        self._made().add(term)

    def __reduce__(self) -> tuple[object, ...]:
        # Only Spark's accumulator is sent; it has the same `add`.
        return self._made().__reduce__()

    def values(self) -> dict[str, Number]:
        """The counts so far, by name."""
        spark = self._spark
        counted = {} if spark is None else dict(spark.value)
        return {name: amount for name, amount in counted.items() if not name.startswith(HIDDEN)}

    def take_work(self) -> PythonWork:
        """How long Python code has taken since the last call; call it after a batch, when no job runs."""
        spark = self._spark
        if spark is None:
            return PythonWork()
        taken = [int(spark.value.pop(name, 0)) for name in (SPENT_NS, LONGEST_NS, TASKS)]
        return PythonWork(taken[0] // 1_000_000, taken[1] // 1_000_000, taken[2])

    def _made(self) -> SparkAccumulator[Any]:
        with self._lock:
            if self._spark is None:
                context = SparkContext._active_spark_context
                assert context is not None, "functions are sent to workers only while Spark runs"
                self._spark = context.accumulator({}, _ByName())
            return self._spark

"""Messages with disorder, and functions that wait for a query's results."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from drivetrain.spark.channel.clocked import event_time
from drivetrain.spark.channel.watermark import SHIFT_MS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

START_MS = 1_700_000_000_000


def messages(seed: int, count: int, disorder_ms: int) -> list[tuple[str, int, int]]:
    """(key, value, ts) in the order in which they arrive: later by at most `disorder_ms`."""
    rng = random.Random(seed)
    made = [(rng.choice("abc"), rng.randrange(100), START_MS + rng.randrange(120_000)) for _ in range(count)]
    return sorted(made, key=lambda m: m[2] + rng.randrange(disorder_ms + 1))


def timed(df: DataFrame, timestamp: str = "__ts") -> DataFrame:
    """`df` with an event time column `at`, on the watermark's scale."""
    return event_time(df, "at", timestamp)


def ours(bound: str) -> Column:
    """A bound of a window over `at`, on the scale of timestamps."""
    return F.timestamp_millis(F.unix_millis(bound) - SHIFT_MS).alias(bound.removeprefix("w."))


def collected(df: DataFrame) -> list[tuple[Any, ...]]:
    """The rows, sorted."""
    return sorted(tuple(row) for row in df.collect())


def eventually(condition: Callable[[], bool], timeout_s: float) -> None:
    """Wait until the condition holds; fails after the timeout."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"still not true after {timeout_s} s")
        time.sleep(0.02)

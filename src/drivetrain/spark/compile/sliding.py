"""Sliding windows: each message once for each of its windows, in a plan that allows aggregating it before.

Problem: a message is in size / slide windows. If it is copied into each of them before it is counted, a
window of an hour that slides by a minute costs sixty times what a tumbling one costs.

Design: which windows a message is in depends only on its *pane*: panes are as long as the greatest common
divisor of size and slide, and every window consists of whole panes. So the ends of its windows are computed
from the pane alone, as an array that is exploded. A rule in Java, where it is on the class path
(`session.local_files`), finds this `explode` below an aggregation: each task then aggregates by key and pane
first, and copies and merges partial results in place of messages (`AggregateBeforeWindows.java`). Without the
rule the plan is executed as it is.

Invariants:

1. The state does not depend on the rule, nor do the results, but for the last digits of floating sums.
2. A message without a timestamp is in no window.

Called by `windowed`.
"""

from __future__ import annotations

import math
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from drivetrain.api.windows import Window

EXPLODED: Final = "__window_end_us"
"""The name by which the rule in Java finds the windows."""
_PANE: Final = "__pane_us"


def pane_ms(window: Window) -> int:
    """The length of the panes of which windows consist.

    >>> from drivetrain.api.windows import sliding
    >>> pane_ms(sliding("10 s", "4 s"))
    2000
    """
    return math.gcd(window.size_ms, window.step_ms)


def with_sliding_ends(df: DataFrame, window: Window, timestamp: str, first_ms: int, end: str) -> DataFrame:
    """`df` once for each window of its timestamps, with the window's end as a timestamp in a column `end`.

    The windows begin at `first_ms` and whole slides before and after it.
    """
    pane_us, step_us, size_us = (ms * 1000 for ms in (pane_ms(window), window.step_ms, window.size_ms))
    first_us, micros = first_ms * 1000, f"unix_micros({timestamp})"
    pane = f"{micros} - pmod({micros} - {first_us}L, {pane_us}L)"
    earliest = f"{_PANE} + {step_us}L - pmod({_PANE} - {first_us + size_us}L, {step_us}L)"
    latest = f"{_PANE} - pmod({_PANE} - {first_us}L, {step_us}L) + {size_us}L"
    in_panes = df.where(F.col(timestamp).isNotNull()).withColumn(_PANE, F.expr(pane))
    each = in_panes.withColumn(EXPLODED, F.expr(f"explode(sequence({earliest}, {latest}, {step_us}L))"))
    return each.withColumn(end, F.timestamp_micros(EXPLODED)).drop(EXPLODED, _PANE)

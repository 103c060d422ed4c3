"""How many results a batch may have of messages before it: the windows that the clock fires in it.

Problem: a batch without messages can have all windows of a state. If an output chose how to write it by what
it takes of its inputs, it would be computed twice, with the state (`measure.small_batches`).

Design: at most all rows of the state are emitted. Their number is in Spark's newest report, which the
figures keep. The thread that polls may not have seen it yet; at the end of the input, where all windows fire,
Spark is asked for it. Whatever is not known counts as 0, and then costs time only.

Called by `micro_batch_query`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivetrain.api.operations import Aggregate, Operation, Top
from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS
from drivetrain.spark.batch.query_figures import state_size
from drivetrain.spark.channel.watermark import clock_of

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery


def held_rows(
    operation: Operation | None,
    mode: str,
    watermark_ms: int,
    newest: int | None,
    query: StreamingQuery | None,
) -> int:
    """The rows of its state that a batch may emit, at that watermark of Spark and in that output mode.

    `operation` is that of the fragment's state, `newest` the rows of the state that are known.
    """
    if not isinstance(operation, Aggregate | Top) or mode == "update":
        return 0
    if clock_of(watermark_ms) != FINAL_CLOCK_MS or query is None:
        return newest or 0
    report = query.lastProgress
    return 0 if report is None else state_size(report.stateOperators)[0]

"""Late messages: those whose windows have all fired before they came, told apart before the window.

Spark drops late rows inside the stateful operator, where nobody can see them. So when an application
asks for them, the fragment before the window splits them off by its own clock, exactly: a message
goes to the window or to the late ones, never to both, never to none.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from drivetrain.api.graph import Aggregate, Fold, Node
from drivetrain.api.windows import Window
from drivetrain.errors import GraphError
from drivetrain.spark.channel.columns import TS
from drivetrain.spark.compile.frame import Frame

BEFORE_ALL_MS = -(2**62)
"""Earlier than every timestamp: the clock before there is one."""


def window_of(node: Node) -> Window:
    """The window of a grouping processor; raises `GraphError` for one that has none."""
    if not isinstance(node.operation, Aggregate | Fold):
        raise GraphError(
            "only the results of a window have late messages", where=str(node), remedy="ask a windowed stream"
        )
    return node.operation.window


def is_late(window: Window, clock_ms: int | None, lateness_ms: int = 0) -> Column:
    """Whether the last window of a message had fired, and its lateness was over, at `clock_ms`."""
    if window.kind == "global":
        return F.col(TS).isNull()  # never; but not a constant, which would let Spark skip the whole input
    ts = F.unix_millis(TS)
    if window.kind == "session":
        end = ts + window.size_ms
    else:
        end = ts - F.pmod(ts, F.lit(window.step_ms)) + window.size_ms
    return end + lateness_ms <= F.lit(BEFORE_ALL_MS if clock_ms is None else clock_ms)


def late_messages(of: Node, frame: Frame, clock_ms: int | None, lateness_ms: int) -> Frame:
    """The messages of `frame` that are too late for the windows of `of`."""
    ready = frame.resolved()
    return Frame(ready.df.where(is_late(window_of(of), clock_ms, lateness_ms)), (), ready.message)

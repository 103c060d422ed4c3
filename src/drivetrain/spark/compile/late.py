"""Late messages: those whose windows have all fired before they came, split off before the window.

Spark drops late rows inside the stateful operator, where they cannot be seen. So when an application
wants them, the fragment before the window splits them off by its own clock, exactly: each message
goes either to the window or to the late ones.
"""

from __future__ import annotations

from collections.abc import Sequence

from drivetrain.api.graphs.graph import Node
from drivetrain.api.operations import LateMessages
from drivetrain.api.windows import Window
from drivetrain.errors import GraphError
from drivetrain.runtime.channel.columns import TS
from drivetrain.spark.compile.frame import Frame
from drivetrain.spark.compile.surroundings import Surroundings
from drivetrain.spark.session.dataframe_calls import filtered

BEFORE_ALL_MS = -(2**50)
"""Earlier than every timestamp, even in microseconds: stands for the clock before there is one."""


def window_of(node: Node) -> Window:
    """The window of a grouping processor; raises `GraphError` for one that has none."""
    window = node.operation.grouping_window
    if window is None:
        raise GraphError(
            "only the results of a window have late messages",
            where=str(node),
            remedy="use a windowed stream",
        )
    return window


def is_late(window: Window, clock_ms: int | None, lateness_ms: int = 0) -> str:
    """Whether, at `clock_ms`, a message's last window had fired and its allowed lateness was over; as SQL."""
    if window.kind == "global":
        return f"{TS} IS NULL"  # false; but not a constant, which would let Spark skip the whole input
    begins = f"unix_micros({TS})"
    if window.kind != "session":
        begins += f" - pmod(unix_micros({TS}), {window.step_ms * 1000}L)"
    before_ms = BEFORE_ALL_MS if clock_ms is None else clock_ms
    return f"{begins} + {window.size_ms * 1000}L + {lateness_ms * 1000}L <= {before_ms * 1000}L"


def late_messages(node: Node, inputs: Sequence[Frame], around: Surroundings) -> Frame:
    """The messages that are too late for the windows of another processor."""
    operation, ready = node.operation, inputs[0].resolved()
    assert isinstance(operation, LateMessages)
    window = window_of(around.graph.nodes[operation.of])
    late = is_late(window, around.clock_ms, operation.lateness_ms)
    return Frame(filtered(ready.df, late), (), ready.message)

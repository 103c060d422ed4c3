"""What the compilation of an operator takes besides its inputs, and gives if the operator keeps state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import DataFrame

from drivetrain.api.graph import Graph
from drivetrain.api.operations import How
from drivetrain.spark.compile.frame import Frame

Expand = Callable[[DataFrame], Frame]
"""Makes messages of the packed results of Python state."""


@dataclass(frozen=True)
class Surroundings:
    """What the compilation of an operator may need besides its inputs."""

    graph: Graph
    table: Callable[[str], DataFrame]
    """The DataFrame of a table by its processor id."""
    report: Callable[[How, str], None]
    """A place to say how the operator runs, and why, when that differs from what the planner assumed."""
    run_id: str
    clock_ms: int | None = None
    """The clock before the batch; None in a trunk, which is compiled for all batches."""
    is_last: bool = False
    """Whether the batch is the one after the end, in which Tasks stop."""
    pictures: str | None = None
    """The directory in which pictures of states are kept, if they are kept."""


@dataclass(frozen=True)
class StatefulPlan:
    """The DataFrame of a stateful operator, Spark's output mode, and how its rows become messages."""

    df: DataFrame
    mode: str = "append"
    expand: Expand | None = None

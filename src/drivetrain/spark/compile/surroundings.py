"""The context of compiling an operator besides its inputs, and the result for a stateful one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import DataFrame

from drivetrain.api.graphs.graph import Graph
from drivetrain.api.operations import How
from drivetrain.spark.compile.frame import Frame

Expand = Callable[[DataFrame], Frame]
"""Turns the packed results of Python state into messages."""


@dataclass(frozen=True)
class Surroundings:
    """The context that compiling an operator may need besides its inputs."""

    graph: Graph
    table: Callable[[str], DataFrame]
    """The DataFrame of a table by its processor id."""
    report: Callable[[How, str], None]
    """Records how the operator runs, and why, when that differs from the planner's assumption."""
    run_id: str
    """The run, and the code of a Task, to which its instances in Python processes belong."""
    clock_ms: int | None = None
    """The clock before the batch; None in a trunk, which is compiled for all batches."""
    is_last: bool = False
    """Whether the batch is the one after the end, in which Tasks stop."""
    quotes_messages: bool = True
    """Whether the error of a message may show all of it: then all of its columns are read."""
    pictures: str | None = None
    """The directory in which pictures of states are kept, if they are kept."""


@dataclass(frozen=True)
class StatefulPlan:
    """The DataFrame of a stateful operator, Spark's output mode, and a function from its rows to messages."""

    df: DataFrame
    mode: str = "append"
    expand: Expand | None = None

"""Drivetrain: streaming applications on Apache Spark, in Python.

Import what an application needs from here. `run` starts Spark; nothing else does.
"""

from drivetrain.api import (
    Application,
    At,
    Column,
    F,
    Monoid,
    PersistentTask,
    Processor,
    State,
    Stream,
    Task,
    TaskContext,
    accumulator,
    agg,
    col,
    expr,
    lit,
    partitioners,
    sinks,
    sources,
    timestamp,
    windows,
)
from drivetrain.core.progress import RunResult
from drivetrain.spark import published_files, run, savepoint, start, state

__version__ = "0.1.0"

__all__ = [
    "Application",
    "At",
    "Column",
    "F",
    "Monoid",
    "PersistentTask",
    "Processor",
    "RunResult",
    "State",
    "Stream",
    "Task",
    "TaskContext",
    "accumulator",
    "agg",
    "col",
    "expr",
    "lit",
    "partitioners",
    "published_files",
    "run",
    "savepoint",
    "sinks",
    "sources",
    "start",
    "state",
    "timestamp",
    "windows",
]

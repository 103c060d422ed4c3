"""Drivetrain: streaming applications on Apache Spark, in Python.

Import what an application needs from here. `run` starts Spark; nothing else does.
"""

from typing import TYPE_CHECKING, Any

from drivetrain.api import (
    Application,
    Column,
    F,
    Grouped,
    KeyedTask,
    ListState,
    MapState,
    Monoid,
    NamedOutput,
    PersistentTask,
    Processor,
    State,
    Stream,
    Table,
    Task,
    TaskContext,
    TimestampedValue,
    ValueState,
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
from drivetrain.api.graphs.views import Views, install
from drivetrain.api.operators import patterns
from drivetrain.api.windows import Window
from drivetrain.core.job.run_progress import RunResult
from drivetrain.spark.entry_points import compact, plan, published_files, run, savepoint, start, state
from drivetrain.version import VERSION

if TYPE_CHECKING:
    from drivetrain.spark.run.running_application import RunningApplication
    from drivetrain.spark.state.state_query import States

__version__ = VERSION

__all__ = [
    "Application",
    "Column",
    "F",
    "Grouped",
    "KeyedTask",
    "ListState",
    "MapState",
    "Monoid",
    "NamedOutput",
    "PersistentTask",
    "Processor",
    "RunResult",
    "RunningApplication",
    "State",
    "States",
    "Stream",
    "Table",
    "Task",
    "TaskContext",
    "TimestampedValue",
    "ValueState",
    "Window",
    "accumulator",
    "agg",
    "col",
    "compact",
    "expr",
    "lit",
    "partitioners",
    "patterns",
    "plan",
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


def _preview(*given: Any, **options: Any) -> Any:
    from drivetrain.testing.preview import preview

    return preview(*given, **options)


def _draw(shown: Any) -> str:
    from drivetrain.cli.views.picture import draw

    return draw(plan(shown) if isinstance(shown, Application) else shown)


install(Views(_preview, _draw))


def __getattr__(name: str) -> Any:
    """The classes that need Spark are imported when they are asked for."""
    if name == "RunningApplication":
        from drivetrain.spark.run.running_application import RunningApplication

        return RunningApplication
    if name == "States":
        from drivetrain.spark.state.state_query import States

        return States
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

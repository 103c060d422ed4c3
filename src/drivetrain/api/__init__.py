"""The names that users import: Application, streams, Task, windows, monoids. Frozen data; executes nothing.

Examples in docstrings use what `drivetrain` exports, an application `app`, and two streams: `lines`, of text,
and `sales`, of `Sale(item: str, price: float, sold: datetime)`.
"""

from drivetrain.api import partitioners, sinks, sources, windows
from drivetrain.api.accumulators import accumulator
from drivetrain.api.application import Application
from drivetrain.api.expressions.columns import Column, col, expr, lit, timestamp
from drivetrain.api.expressions.spark_functions import F
from drivetrain.api.graphs.processor import Processor
from drivetrain.api.operators import patterns
from drivetrain.api.operators.grouped import Grouped
from drivetrain.api.operators.table import Table
from drivetrain.api.states import monoids as agg
from drivetrain.api.states.keyed_task import KeyedTask, ListState, MapState, ValueState
from drivetrain.api.states.monoids import Monoid
from drivetrain.api.states.persistent import PersistentTask, State
from drivetrain.api.stream import Stream
from drivetrain.api.task import NamedOutput, Task, TaskContext, TimestampedValue

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
    "State",
    "Stream",
    "Table",
    "Task",
    "TaskContext",
    "TimestampedValue",
    "ValueState",
    "accumulator",
    "agg",
    "col",
    "expr",
    "lit",
    "partitioners",
    "patterns",
    "sinks",
    "sources",
    "timestamp",
    "windows",
]

"""Operations of processors: one class each, with everything about it that needs no Spark."""

from drivetrain.api.operations.ends import Log, Read, Table, Write, sink_text
from drivetrain.api.operations.operation import EventTime, Function, How, OnError, Operation
from drivetrain.api.operations.stateful import Deduplicate, JoinStream, Process
from drivetrain.api.operations.stateless import (
    AsyncMap,
    Calls,
    Drop,
    Filter,
    FlatMap,
    JoinKind,
    JoinTable,
    Map,
    Output,
    Rename,
    Sample,
    Select,
    Union,
)
from drivetrain.api.operations.windowed import Aggregate, Fold, Late, LatePanes, Refine, Top, on_time_of

__all__ = [
    "Aggregate",
    "AsyncMap",
    "Calls",
    "Deduplicate",
    "Drop",
    "EventTime",
    "Filter",
    "FlatMap",
    "Fold",
    "Function",
    "How",
    "JoinKind",
    "JoinStream",
    "JoinTable",
    "Late",
    "LatePanes",
    "Log",
    "Map",
    "OnError",
    "Operation",
    "Output",
    "Process",
    "Read",
    "Refine",
    "Rename",
    "Sample",
    "Select",
    "Table",
    "Top",
    "Union",
    "Write",
    "on_time_of",
    "sink_text",
]

"""Frames: a DataFrame on its way through a fragment, with the Python functions that are still to run on it.

Consecutive Python functions must run as one Arrow function. So a `Frame` holds the pending steps,
and turns them into one `mapInArrow` when another operator needs the rows.

Columns whose names start with two underscores are Drivetrain's: `__ts` is the event timestamp (only
if the stream has one), `__bad` describes a message that could not be processed.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from drivetrain.api.operations import AsyncCalls, Function
from drivetrain.api.types import MessageType, UnsupportedTypeError, column_type, record_fields
from drivetrain.errors import GraphError, OperatorTypeError
from drivetrain.runtime.channel.columns import BAD, BAD_TYPE, PART, TS
from drivetrain.spark.compile.compiled_parts import mapped, part
from drivetrain.spark.compile.python_stage import PythonStage, Step, StepKind
from drivetrain.spark.compile.python_work import MeasuredStage
from drivetrain.spark.session.dataframe_calls import filtered, parsed_schema, without_columns
from drivetrain.spark.session.spark_errors import translated

_COMPATIBLE = [{"bigint", "int", "smallint", "tinyint"}, {"double", "float", "bigint", "int"}]


def require_column(name: str, columns: Sequence[str], where: str, purpose: str = "") -> None:
    """Raise `OperatorTypeError` unless the operator at `where` gets the column, needed for `purpose`."""
    if name not in columns:
        data = [column for column in columns if not column.startswith("__")]
        raise OperatorTypeError(
            " ".join(filter(None, (f"there is no column {name!r}", purpose))),
            where=where,
            expected=f"one of {', '.join(data)}",
            got=name,
            remedy="correct the name; `drivetrain plan` shows the columns that every operator has",
        )


@dataclass(frozen=True)
class Frame:
    """A DataFrame, the pending Python steps, and the class of its messages if known."""

    df: DataFrame
    steps: tuple[Step, ...] = ()
    message: type | None = None
    with_outputs: DataFrame | None = None
    """The same messages of a Task together with those for its named outputs: see `named_outputs`."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The data columns before the pending steps, in order."""
        return tuple(c for c in self.df.columns if not c.startswith("__"))

    @property
    def timed(self) -> bool:
        """Whether messages have event timestamps."""
        return TS in self.df.columns

    def then(
        self, kind: StepKind, function: Function, operator: str, calls: AsyncCalls | None = None
    ) -> Frame:
        """This frame with one more Python function to run, asynchronous if there are `calls`; raises
        `OperatorTypeError`."""
        step = part((operator, "step"), lambda: self._step(kind, function, operator, calls), self.df.schema)
        message = self.message if kind == "filter" else message_class(function.type)
        return Frame(self.df, (*self.steps, step), message)

    def _step(self, kind: StepKind, function: Function, operator: str, calls: AsyncCalls | None) -> Step:
        wants = _wanted(function.fn)
        record = _record(wants) or (None if _is_column(wants) else self.message)
        names = tuple(parsed_schema(function.type.ddl).names)
        dead_letter = function.on_error == "dead_letter"
        step = Step(kind, function.fn, operator, function.type, dead_letter, record, names, calls)
        self._check_input(step, wants)
        return step

    def resolved(self) -> Frame:
        """The same rows with nothing pending."""
        if not self.steps:
            return self
        typed = next((s for s in reversed(self.steps) if s.kind != "filter"), None)
        if typed is None:
            fields = [f for f in self.df.schema.fields if f.name in self.columns]
            out = StructType(fields)
        else:
            out = parsed_schema(typed.type.ddl)
        bad = BAD in self.df.columns or any(s.dead_letter for s in self.steps)
        parted = PART in self.df.columns
        extra = [f"{TS} timestamp"] if self.timed else []
        extra += ([f"{PART} int"] if parted else []) + ([f"{BAD} {BAD_TYPE}"] if bad else [])
        schema = StructType(out.fields + (parsed_schema(", ".join(extra)).fields if extra else []))
        arrow = to_arrow_schema(out, timezone="UTC")
        stage = PythonStage(self.steps, self.columns, arrow, self.timed, bad, parted)
        df = self.df
        if BAD in df.columns:
            df = without_columns(filtered(df, f"{BAD} IS NULL"), BAD)
        return Frame(shipped(df, MeasuredStage(stage), schema, self.steps[0].operator), (), self.message)

    def _check_input(self, step: Step, wants: object) -> None:
        """Compare the annotation of the function's parameter with its input."""
        if wants is None or wants is Any:
            return
        previous = next((s for s in reversed(self.steps) if s.kind != "filter"), None)
        came = self._came(previous)
        record = _record(wants)
        if record is not None and record is not tuple:
            fields = dict(record_fields(record) or ())
            missing = [n for n in fields if n not in came]
            wrong = [n for n in fields if n in came and not _fits(fields[n], came[n])]
            if not missing and not wrong:
                return
            expected = ", ".join(f"{n} {t}" for n, t in fields.items())
        elif record is tuple:
            return
        else:
            try:
                expected = column_type(wants)
            except UnsupportedTypeError:
                return  # a protocol or a class of the user's own: only a run can show whether it fits
            if len(came) == 1 and _fits(expected, next(iter(came.values()))):
                return
        raise OperatorTypeError(
            "the function does not fit its input",
            where=step.operator,
            expected=f"{expected} (from the annotation of its parameter)",
            got=", ".join(f"{n} {t}" for n, t in came.items()),
        )

    def _came(self, previous: Step | None) -> dict[str, str]:
        if previous is not None and previous.type.fields:
            return dict(previous.type.fields)
        if previous is not None:
            return {f.name: f.dataType.simpleString() for f in parsed_schema(previous.type.ddl)}
        return {f.name: f.dataType.simpleString() for f in self.df.schema.fields if f.name in self.columns}


def message_class(declared: MessageType) -> type | None:
    """The class of a type's messages between functions; None for rows and bare values."""
    return None if declared.python is tuple else declared.python


def shipped(df: DataFrame, stage: Callable[..., Any], schema: StructType, operator: str) -> DataFrame:
    """`df.mapInArrow(stage, schema)`; raises `GraphError` when the stage cannot be sent to workers."""
    try:
        return mapped(df, stage, schema, operator)
    except Exception as error:
        meaning = translated(error, where=operator)
        if isinstance(meaning, GraphError):
            raise meaning from error
        raise


def _wanted(fn: Callable[..., Any]) -> object | None:
    try:
        hints = typing.get_type_hints(fn)
        names = list(inspect.signature(fn).parameters)
    except (TypeError, ValueError, NameError):
        return None
    return hints.get(names[0]) if names else None


def _is_column(wants: object) -> bool:
    """Whether a function takes the bare value of a column."""
    if wants is None or wants is Any:
        return False
    try:
        column_type(wants)
    except UnsupportedTypeError:
        return False
    return True


def _record(wants: object) -> type | None:
    if typing.get_origin(wants) is tuple or wants is tuple:
        return tuple
    return wants if isinstance(wants, type) and record_fields(wants) is not None else None


def _fits(expected: str, came: str) -> bool:
    plain = came.split("(")[0]
    if expected.split("(")[0] == plain or expected.split("<")[0] == plain.split("<")[0]:
        return True
    return any(expected in group and plain in group for group in _COMPATIBLE)

"""Patterns on Spark's keyed state: sequences of messages of a key within a span of event time.

Problem: Spark SQL has no MATCH_RECOGNIZE, and what matches must not depend on batches or disorder.

Design: Spark evaluates the conditions that are columns, as the bits of one number for each message.
Messages are packed by bucket of their keys, as Arrow (see `deduplication`), and wait in the state of the
bucket until the clock has passed them. They are then taken in the order of their times
(`core.state.pattern_matches`), messages of one key and one time in the order of their content. The state
has the messages of partial matches, too; results are columns of these, so Python objects are created only
for conditions that are functions.

Called by `operators`, and through Spark.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.types import ArrayType, StructField, StructType, TimestampType

from drivetrain.api.expressions.columns import Column
from drivetrain.api.graphs.graph import Node
from drivetrain.api.operations import Function, MatchPattern, Without
from drivetrain.api.operators.patterns import MATCH_COLUMNS
from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS, ended_by
from drivetrain.core.state.pattern_matches import Match, PartialMatch, Pattern, PatternMatches, Step
from drivetrain.errors import GraphError
from drivetrain.runtime.channel.columns import TS
from drivetrain.spark.compile.arrow_messages import messages_of
from drivetrain.spark.compile.bucket_function import BucketFunction
from drivetrain.spark.compile.deduplication import RowPack, UnpackRows, as_bytes, as_table, times_of
from drivetrain.spark.compile.frame import Frame
from drivetrain.spark.compile.keyed import PACKED, bucket_row, clock_in, kept_in_buckets, timeout_at, unpacked
from drivetrain.spark.compile.lowering import spark_column
from drivetrain.spark.compile.python_stage import operator_error
from drivetrain.spark.compile.surroundings import StatefulPlan, Surroundings
from drivetrain.spark.compile.windowed import keyed

if TYPE_CHECKING:
    import pandas as pd

FULFILS: Final = "__fulfils"
"""The column with the conditions that a message fulfils: bit n is that of part n."""
_KEY: Final = "__key"
_LAST_US: Final = 2**63 - 1
_MICROSECONDS: Final = pa.timestamp("us", "UTC")
_decode: Final = msgspec.msgpack.Decoder(tuple[bytes, bytes, bytes]).decode


def match_pattern(node: Node, inputs: Sequence[Frame], around: Surroundings) -> StatefulPlan:
    """Compile a pattern; the DataFrame holds packed matches for `expand`."""
    operation, frame, where = node.operation, inputs[0].resolved(), str(node)
    assert isinstance(operation, MatchPattern)
    if not frame.timed:
        raise GraphError(
            "a pattern needs event time, and these messages have none",
            where=where,
            remedy='put .event_time("column", max_disorder="10 s") before it',
        )
    keys = tuple(name for name, _ in operation.keys)
    df = keyed(frame.df, operation, where, around.report).withColumn(FULFILS, _bits(operation, where))
    columns = (*dict.fromkeys((*frame.columns, *keys)), FULFILS, TS)
    rows = df.select(*map(_quoted, columns))
    packed = rows.mapInArrow(RowPack(keys, columns), PACKED)
    out = kept_in_buckets(packed, MatchFunction(operation, frame.columns, frame.message, where))
    message = StructType([rows.schema[name] for name in frame.columns])
    schema = StructType(
        [
            *(rows.schema[name] for name in keys),
            *(StructField(name, TimestampType()) for name in MATCH_COLUMNS),
            *(
                StructField(step.name, message if step.at_least is None else ArrayType(message))
                for step in operation.steps
            ),
            StructField(TS, TimestampType()),
        ]
    )

    def expand(df: DataFrame) -> Frame:
        return Frame(unpacked(df, UnpackRows(tuple(schema.names)), schema, where))

    return StatefulPlan(out, expand=expand)


def _bits(operation: MatchPattern, where: str) -> SparkColumn:
    bits = F.lit(0).cast("bigint")
    for number, part in enumerate(operation.parts):
        if isinstance(part.condition, Column):
            bits += F.when(spark_column(part.condition, where), F.lit(1 << number)).otherwise(F.lit(0))
    return bits


def _quoted(name: str) -> SparkColumn:
    return F.col("`" + name.replace("`", "``") + "`")


def pattern_of(operation: MatchPattern) -> Pattern:
    """The pattern of an operation; the number of a step is that of its condition."""
    steps: list[Step] = []
    without: list[int] = []
    for number, part in enumerate(operation.parts):
        if isinstance(part, Without):
            without.append(number)
        else:
            repeats, at_least = part.at_least is not None, part.at_least or 1
            steps.append(Step(number, at_least, repeats, part.directly, tuple(without)))
            without = []
    return Pattern(tuple(steps), operation.within_ms * 1000, tuple(without), operation.overlapping)


@dataclass(frozen=True)
class MatchFunction(BucketFunction):
    """Called by Spark for a bucket: takes the messages that the clock has passed, keeps the others."""

    operation: MatchPattern
    columns: tuple[str, ...]
    """The columns of a message, as the steps of a match have them."""
    message: type | None
    operator: str

    def _rows(self, _bucket: int, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        clock_ms = clock_in(state)
        partial, taken, held = _decode(state.get[0]) if state.exists else (None, b"", b"")
        matches = PatternMatches(pattern_of(self.operation), self.operation.described, partial)
        tables = [] if state.hasTimedOut else [as_table(p) for frame in frames for p in frame["payload"]]
        came = sum(table.num_rows for table in tables)
        tables = [table.filter(pc.greater_equal(times_of(table), clock_ms * 1000)) for table in tables]
        late = came - sum(table.num_rows for table in tables)
        waiting = _joined([*tables, *([as_table(held)] if held else [])])
        until_us = min(ended_by(clock_ms) * 1000, _LAST_US)
        due = None
        if waiting is not None:
            is_due = pc.less(times_of(waiting), until_us)
            due, waiting = waiting.filter(is_due), waiting.filter(pc.invert(is_due))
        before = as_table(taken) if taken else None
        rows = _joined([table for table in (before, due) if table is not None])
        made: list[Match] = []
        if rows is not None:
            made = self._take(matches, rows, 0 if before is None else before.num_rows)
        made += [match for _, match in matches.pass_time(until_us)]
        _keep(state, matches, rows, waiting, clock_ms)
        if late or made:
            payload = None if rows is None or not made else as_bytes(self._results(rows, made))
            yield bucket_row(payload, late)

    def _take(self, matches: PatternMatches, rows: pa.Table, first: int) -> list[Match]:
        """Give the pattern the messages from row `first` on, in the order of their times."""
        fulfils = _Conditions(self, rows)
        times, keys = times_of(rows).to_pylist(), rows.column(_KEY).to_pylist()
        made: list[Match] = []
        ordered = sorted((times[row], keys[row], row) for row in range(first, rows.num_rows))
        for (time_us, key), alike in groupby(ordered, key=lambda each: each[:2]):
            among = [row for *_, row in alike]
            if len(among) > 1:
                among.sort(key=lambda row: repr(rows.slice(row, 1).to_pylist()))
            for row in among:
                if fulfils.of(row):
                    made += matches.take(key, time_us, row, fulfils)
        return made

    def _results(self, rows: pa.Table, made: list[Match]) -> pa.Table:
        first = pa.array([match.messages[0][0] for match in made], pa.int64())
        results = {name: rows.column(name).take(first) for name, _ in self.operation.keys}
        started = pa.array([match.began_us for match in made], _MICROSECONDS)
        ended = pa.array([match.ended_us for match in made], _MICROSECONDS)
        results.update(zip(MATCH_COLUMNS, (started, ended), strict=True))
        for at, step in enumerate(self.operation.steps):
            each = [match.messages[at] for match in made]
            results[step.name] = self._messages(rows, [number for numbers in each for number in numbers])
            if step.at_least is not None:
                offsets = [0]
                for numbers in each:
                    offsets.append(offsets[-1] + len(numbers))
                kind = pa.list_(pa.field("element", results[step.name].type))
                results[step.name] = pa.ListArray.from_arrays(
                    pa.array(offsets, pa.int32()), results[step.name], type=kind
                )
        return pa.table({**results, TS: ended})

    def _messages(self, rows: pa.Table, numbers: list[int]) -> pa.StructArray:
        taken = rows.select(self.columns).take(pa.array(numbers, pa.int64())).combine_chunks()
        arrays = [pa.concat_arrays(taken.column(name).chunks) for name in self.columns]
        return pa.StructArray.from_arrays(arrays, fields=[taken.schema.field(name) for name in self.columns])


class _Conditions:
    """Whether a message fulfils a condition; `of` selects the message."""

    def __init__(self, function: MatchFunction, rows: pa.Table) -> None:
        operation = function.operation
        self._bits: Final = rows.column(FULFILS).to_pylist()
        self._conditions: Final = [part.condition for part in operation.parts]
        self._names: Final = [step.name for step in operation.steps]
        self._repeats: Final = [step.at_least is not None for step in operation.steps]
        self._operator: Final = function.operator
        functions = any(isinstance(condition, Function) for condition in self._conditions)
        self._all_matter: Final = functions or any(step.directly for step in operation.steps)
        batches = rows.combine_chunks().to_batches() if functions else []
        self._messages: Final = messages_of(batches[0], function.columns, function.message) if batches else []
        self._row = 0

    def of(self, row: int) -> bool:
        """Select the message to judge; returns whether the pattern must see it."""
        self._row = row
        return self._all_matter or bool(self._bits[row])

    def __call__(self, number: int, partial: PartialMatch | None) -> bool:
        """Whether the message fulfils a condition."""
        condition = self._conditions[number]
        if isinstance(condition, Column):
            return bool(self._bits[self._row] >> number & 1)
        message = self._messages[self._row]
        given = [message] if len(condition.parameters) == 1 else [message, self._so_far(partial)]
        try:
            return bool(condition.fn(*given))
        except Exception as error:
            raise operator_error(self._operator, message, error) from error

    def _so_far(self, partial: PartialMatch | None) -> SimpleNamespace:
        found: dict[str, Any] = {}
        for at, numbers in enumerate([] if partial is None else partial.messages):
            messages = [self._messages[number] for number in numbers]
            found[self._names[at]] = messages if self._repeats[at] else messages[0]
        return SimpleNamespace(**found)


def _joined(tables: list[pa.Table]) -> pa.Table | None:
    return pa.concat_tables(tables) if tables else None


def _keep(
    state: Any, matches: PatternMatches, rows: pa.Table | None, waiting: pa.Table | None, clock_ms: int
) -> None:
    """Store the state for the next call, and set its timeout to when the clock changes something."""
    numbers = matches.messages()
    is_waiting = waiting is not None and waiting.num_rows > 0
    if clock_ms >= FINAL_CLOCK_MS or not (numbers or is_waiting):
        if state.exists:
            state.remove()
        return
    matches.renumber({number: new for new, number in enumerate(numbers)})
    taken = b"" if rows is None or not numbers else as_bytes(rows.take(pa.array(numbers, pa.int64())))
    held = as_bytes(waiting) if is_waiting else b""
    state.update((msgspec.msgpack.encode((matches.saved(), taken, held)),))
    ends = [] if matches.next_us is None else [matches.next_us]
    arrives = [pc.min(times_of(waiting)).as_py()] if is_waiting else []
    timeout_at(state, min(ends + arrives) // 1000 + 1, clock_ms)

"""Brings small batches to the driver as Arrow, but not large ones; the size is not known in advance.

The problem: a job that writes a small batch from Spark's tasks costs a Python worker's call for each
partition, several times the cost of the rows. But Java and Python hold rows that come to the driver in
memory. A batch of a backlog that does not fit kills the JVM, and its size is known only after it was
computed.

The design: the size of a batch is estimated from what it takes of its inputs, and from the size of the output
of the batch before. Where windows fire, it can be as large as the state, however little the batch takes. A
batch that seems small is computed, and its rows are counted on the way, by the generated code that makes
them. A partition stops delivering rows at the row at which all rows before it, if they were as large as this
one, would be too many bytes. With rows of about the same size that is when so many bytes have passed, so
hardly more than the limit is ever held. If a row was left out, the batch is large, and the caller computes it
again. The job does not fail then: it runs to its end, so that observations on the way (`DataFrame.observe`
reports those of the first job) are of the whole batch.

Invariants:

1. A table has all rows of the batch, in order, or there is none.
2. No partition delivers more than the limit, unless rows shrink by orders of magnitude on the way.
3. With a table or without, observations are of all rows of the batch.

Called by sinks that write from the driver, and by the writer of channels; `pipeline` sets the input's size.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.sql import Column, Observation
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StringType, StructType

from drivetrain.runtime.state.state_partitions import SHUFFLE_PARTITIONS
from drivetrain.spark.measure.batch_times import computing
from drivetrain.spark.session.dataframe_calls import (
    answer,
    expression,
    filtered,
    observing,
    record_batches,
    selected,
)
from drivetrain.spark.session.spark_text import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LIMIT_BYTES: Final = 64 << 20
"""The limit for all partitions together."""
_LEAST_BYTES: Final = 1 << 20
"""An input smaller than this does not predict the size of the output."""
_REFUSED: Final = "maxResultSize"
_FIELD_BYTES: Final = 8
_NESTED_BYTES: Final = 32
"""The assumed size of a text or binary value that is nested, where measuring each would cost too much, or
that is not computed yet."""
_ROWS_BITS: Final = 33
"""This many low bits of Spark's `monotonically_increasing_id` are the number of a row in its partition."""
_ROW_NUMBER: Final = f"(monotonically_increasing_id() & {(1 << _ROWS_BITS) - 1}L)"
_MUCH: Final = "__much"


@dataclass(frozen=True)
class _Taking:
    """What is known of a batch before it is computed; see `taking`."""

    size_bytes: int = 0
    partitions: int | None = None
    held_rows: int = 0


_NOTHING_KNOWN: Final = _Taking()
_batch: ContextVar[_Taking] = ContextVar("batch", default=_NOTHING_KNOWN)


@contextmanager
def taking(size_bytes: int, partitions: int | None = None, held_rows: int = 0) -> Iterator[None]:
    """Mark the work within as part of a batch that takes about so many bytes of its inputs.

    `partitions` is how many partitions Spark's shuffles have in it, if that is known; `held_rows` is how many
    results of earlier messages it may have.
    """
    token = _batch.set(_Taking(size_bytes, partitions, held_rows))
    try:
        yield
    finally:
        _batch.reset(token)


class SmallBatches:
    """Brings those batches of one output to the driver that seem to have at most `most_bytes`."""

    def __init__(self, most_bytes: int = LIMIT_BYTES) -> None:
        self._most_bytes: Final = most_bytes
        self._ratio = 1.0

    def table(self, df: DataFrame) -> pa.Table | None:
        """The rows of a batch; None if they seem, or turn out to be, too many."""
        held_bytes = _batch.get().held_rows * sum(_typical(field.dataType) for field in df.schema.fields)
        if max(self._input() * self._ratio, held_bytes) > self._most_bytes:
            return None
        return small_table(df)

    def record_output(self, size_bytes: int) -> None:
        """Record the size of a batch, however it was written."""
        self._ratio = size_bytes / self._input()

    def _input(self) -> int:
        return max(_batch.get().size_bytes, _LEAST_BYTES)


def small_table(df: DataFrame) -> pa.Table | None:
    """The rows of a batch as one table; None if they are more than about `LIMIT_BYTES`."""
    partitions = _batch.get().partitions
    if partitions is None:
        partitions = int(df.sparkSession.conf.get(SHUFFLE_PARTITIONS, "1") or 1)
    sizes = [f"coalesce({_size(quoted(field.name), field.dataType)}, 0)" for field in df.schema.fields]
    counted = Observation()
    much = f"{_ROW_NUMBER} * ({' + '.join(['0', *sizes])}) > {LIMIT_BYTES // max(1, partitions)}"
    marked = observing(selected(df, "*", f"{much} AS {_MUCH}"), counted, f"count_if({_MUCH}) AS left_out")
    try:
        # Arrow drops the column more cheaply than Spark, which would analyze one more plan.
        collected = _collected(filtered(marked, f"not {_MUCH}")).drop_columns([_MUCH])
    except Exception as error:
        if _REFUSED in str(error):  # large values within arrays or maps
            return None
        raise
    return None if observed(counted).get("left_out") else _conform_to(collected, df)


def row_number() -> Column:
    """The number of a row in its partition, from 0; Spark computes all rows, whatever is done with it."""
    return expression(_ROW_NUMBER)


def arrow_table(df: DataFrame) -> pa.Table:
    """All rows of a batch. (`toArrow` fails at a null struct whose fields cannot be null.)"""
    return _conform_to(_collected(df), df)


def _collected(df: DataFrame) -> pa.Table:
    with computing():
        batches = record_batches(df)
    return pa.Table.from_batches(batches, None if batches else to_arrow_schema(df.schema, timezone="UTC"))


def _conform_to(table: pa.Table, df: DataFrame) -> Any:
    return conform(table, to_arrow_schema(df.schema, timezone="UTC"))


def conform(rows: Any, schema: pa.Schema) -> Any:
    """A table or record batch with exactly that schema: Spark's own time zone and nullability differ."""
    if rows.schema.equals(schema):
        return rows
    columns = [
        column if column.type.equals(field.type) else column.cast(field.type)
        for column, field in zip(rows.columns, schema, strict=True)
    ]
    return type(rows).from_arrays(columns, schema=schema)


def observed(observation: Observation) -> dict[str, int | None]:
    """The observations of an action; empty if Spark skipped the rows because they were not needed."""
    try:
        return answer(observation)
    except Py4JJavaError:
        return {}


def _size(value: str, of: DataType) -> str:
    """The approximate size of a value in bytes, as SQL; null for some values that are null."""
    match of:
        case StringType() | BinaryType():
            return f"octet_length({value}) + {_FIELD_BYTES}"
        case StructType():
            sizes = [f"coalesce({_size(f'{value}.{quoted(f.name)}', f.dataType)}, 0)" for f in of.fields]
            return " + ".join([str(_FIELD_BYTES), *sizes])
        case ArrayType() | MapType():
            return f"size({value}) * {_typical(of)} + {_FIELD_BYTES}"
        case _:
            return str(_FIELD_BYTES)


def _typical(of: DataType) -> int:
    """The typical size in bytes of a value that is not measured, by its type."""
    match of:
        case StringType() | BinaryType():
            return _NESTED_BYTES
        case StructType():
            return sum(_typical(field.dataType) for field in of.fields)
        case ArrayType():
            return _typical(of.elementType)
        case MapType():
            return _typical(of.keyType) + _typical(of.valueType)
        case _:
            return _FIELD_BYTES

"""Rows as Redis stores them: columns as text, keys made of columns, chunks for the script.

The problem: Redis has only bytes. A value must be readable by any client, and the key of a row must follow
from its columns without two rows sharing one by accident.

The design: Spark turns nested columns, and for `json` whole rows, into JSON. Arrow turns all others into
text: numbers in decimal, booleans as `true` and `false`, times in ISO 8601 and UTC; binary values stay as
they are. Rows are packed in chunks of a few thousand, which the script unpacks. Redis's MessagePack predates
the type for bytes, so values are packed as what it calls raw.

Called by `redis_writer`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T  # noqa: N812 - PySpark's convention

from drivetrain.api.connectors.redis_sink import RedisSink
from drivetrain.connectors.files.file_formats import json_of
from drivetrain.connectors.named_columns import require_columns
from drivetrain.connectors.row_order import oldest_first
from drivetrain.errors import OutputError
from drivetrain.spark.session.spark_text import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

JSON = "__json"
"""The column with a whole row, for values in JSON."""
_CHUNK_ROWS = 2_000
_FIELDS = 3_000
"""Lua passes at most 8,000 values to a command: names and values of so many columns."""
_NESTED = (T.ArrayType, T.MapType, T.StructType)
_PLAIN = (
    T.NumericType, T.StringType, T.BinaryType, T.BooleanType, T.DateType, T.TimestampType, T.TimestampNTZType,
)  # fmt: skip


def redis_columns(df: DataFrame, sink: RedisSink) -> DataFrame:
    """The batch with the columns that are written; raises `OutputError` if the declaration names others."""
    named = (*sink.key, *([sink.newest] if sink.newest else []))
    require_columns(df.columns, named, sink.name, "key= or newest=")
    if len(df.columns) > _FIELDS:
        raise OutputError(
            "there are too many columns for one value of Redis",
            where=sink.name,
            expected=f"at most {_FIELDS}",
            got=str(len(df.columns)),
            remedy='select fewer before the sink, or write value="json"',
        )
    if sink.value == "json":
        names = ", ".join(quoted(name) for name in df.columns)
        kept = list(dict.fromkeys(named))
        return df.selectExpr(*map(_plain, _fields(df, kept)), f"{json_of(f'struct({names})')} AS {JSON}")
    return df.selectExpr(*map(_plain, df.schema.fields))


def require_redis_keys(messages: pa.RecordBatch, sink: RedisSink) -> None:
    """Raise `OutputError` for rows without a key, or without any value."""
    for name in sink.key:
        if messages.column(name).null_count:
            raise OutputError(
                "rows are replaced by key, but some rows have no key",
                where=sink.name,
                expected=f"a value in each of {', '.join(sink.key)}",
                got=f"{messages.column(name).null_count} of {messages.num_rows} rows have null in {name}",
                remedy="filter such rows out before the sink, or choose another key",
            )
    if sink.stream is not None:
        empty = [all(value is None for value in row) for row in zip(*_values(messages), strict=True)]
        if any(empty):
            raise OutputError(
                "an entry of a stream needs a value, and some rows have only nulls",
                where=sink.name,
                got=f"{sum(empty)} of {messages.num_rows} rows",
                remedy="filter such rows out before the sink, or fill a column with coalesce",
            )


def packed_chunks(batches: Iterable[pa.RecordBatch], sink: RedisSink) -> Iterator[bytes]:
    """The rows of a batch in the form of the script, in the order in which they replace each other."""
    for batch in oldest_first(batches, sink.newest):
        for start in range(0, batch.num_rows, _CHUNK_ROWS):
            yield _array(list(_rows(batch.slice(start, _CHUNK_ROWS), sink)))


def _rows(batch: pa.RecordBatch, sink: RedisSink) -> Iterator[bytes]:
    """Each row, packed."""
    names = [_raw(name.encode()) for name in batch.schema.names]
    values = _values(batch)
    rows = zip(*values, strict=True)
    if sink.stream is not None:
        for row in rows:
            yield _array(_pairs(names, row))
        return
    places = [batch.schema.names.index(name) for name in sink.key]
    keys = (
        _raw(_key(sink.prefix, parts)) for parts in zip(*(values[place] for place in places), strict=True)
    )
    if sink.value == "json":
        texts = values[batch.schema.names.index(JSON)]
        for key, text in zip(keys, texts, strict=True):
            yield _array((key, _raw(text or b"")))
        return
    for key, row in zip(keys, rows, strict=True):
        nulls = [name for name, value in zip(names, row, strict=True) if value is None]
        yield _array((key, _array(_pairs(names, row)), _array(nulls)))


def _pairs(names: Sequence[bytes], row: Sequence[bytes | None]) -> list[bytes]:
    """Names and values in turn, without nulls; the names are packed."""
    found: list[bytes] = []
    for name, value in zip(names, row, strict=True):
        if value is not None:
            found += (name, _raw(value))
    return found


def _raw(value: bytes) -> bytes:
    """A value in MessagePack."""
    return b"\xdb%b%b" % (len(value).to_bytes(4, "big"), value)


def _array(parts: Sequence[bytes]) -> bytes:
    """An array of packed values in MessagePack."""
    return b"\xdd%b%b" % (len(parts).to_bytes(4, "big"), b"".join(parts))


def _key(prefix: str, parts: Sequence[bytes]) -> bytes:
    if len(parts) > 1:
        parts = [part.replace(b"%", b"%25").replace(b":", b"%3A") for part in parts]
    return prefix.encode() + b":".join(parts)


def _values(batch: pa.RecordBatch) -> list[list[bytes | None]]:
    return [_text(batch.column(name)).cast(pa.large_binary()).to_pylist() for name in batch.schema.names]


def _text(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return column
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pc.strftime(column.cast(pa.timestamp("us", "UTC")), "%Y-%m-%dT%H:%M:%SZ")
    if pa.types.is_timestamp(kind):
        return pc.strftime(column.cast(pa.timestamp("us")), "%Y-%m-%dT%H:%M:%S")
    return column.cast(pa.large_string())


def _fields(df: DataFrame, names: Sequence[str]) -> list[T.StructField]:
    return [df.schema[name] for name in names]


def _plain(field: T.StructField) -> str:
    """A column as a plain value, in Spark's SQL."""
    name = quoted(field.name)
    if isinstance(field.dataType, _NESTED):
        return f"{json_of(name)} AS {name}"
    return name if isinstance(field.dataType, _PLAIN) else f"CAST({name} AS STRING) AS {name}"

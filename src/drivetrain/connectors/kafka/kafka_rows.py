"""Rows in Kafka's form: key, value, headers, topic and partition, made by Spark's own generated code.

The problem: the two ways to send (Spark's connector, the transactional producer) must send the same bytes to
the same partitions. So everything that depends on the declaration is computed before that choice, as columns:

    key binary, value binary, headers array<struct<key: string, value: binary>>, topic string, partition int

of which headers, topic and partition exist only if they are declared.

Rows that Kafka would refuse are detected here too: a missing topic, a partition that the topic does not
have, a message above the size limit. Such a row fails the batch before any of its messages is sent, with
an error that names topic, key and limit; never the value, which may be large or confidential.

Invariants:

1. The result has one row for each row, in the same order.
2. An error contains no part of a message except its key, truncated.

Called by the Kafka sink.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - PySpark's convention
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegralType,
    MapType,
    StringType,
    StructType,
    VariantType,
)

from drivetrain.api.connectors.kafka_sink import KafkaSink
from drivetrain.api.expressions.columns import Column, col
from drivetrain.connectors.kafka.value_encoder import encoded
from drivetrain.errors import DrivetrainError, OutputError
from drivetrain.spark.compile.lowering import spark_column
from drivetrain.spark.session.dataframe_calls import java_columns, with_columns_only, with_schema
from drivetrain.spark.session.spark_errors import analysis_error
from drivetrain.spark.session.spark_text import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

_JSON = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "dateFormat": "yyyy-MM-dd",
    "timeZone": "UTC",
    "ignoreNullFields": "false",
}
_HEADERS = "array<struct<key: string, value: binary>>"
_REFUSED = re.compile(r"⟦kafka:([A-Za-z0-9+/=|\s-]+)⟧")
_KEY_BYTES = 64
"""How much of a key an error shows, each byte as a character: keys need not be text."""


@dataclass(frozen=True)
class Limits:
    """The target's limits: the bytes of a message, and the partitions of its topic if it has only one."""

    message_bytes: int
    partitions: int | None


class KafkaRows:
    """Makes the batches of one sink; its columns are reused as long as schema and limits stay the same.

    Each column takes dozens of calls into Java, and each query for a type is a plan that Spark analyses: more
    than everything else in a small batch costs.
    """

    def __init__(self, sink: KafkaSink) -> None:
        self._sink = sink
        self._known: tuple[StructType, Limits] | None = None
        self._made: _Columns | None = None

    def made(self, df: DataFrame, limits: Limits, batch_id: int) -> DataFrame:
        """The batch as columns for Kafka; raises `OutputError` or `OperatorTypeError` if they do not fit."""
        try:
            if self._made is None or self._known != (df.schema, limits):
                self._made, self._known = _Columns(df, self._sink, limits), (df.schema, limits)
            return self._made.of(df, batch_id)
        except DrivetrainError:
            raise
        except Exception as error:
            if type(error).__module__.startswith("pyspark"):
                raise analysis_error(error, self._sink.name) from error
            raise


def refused(text: str, sink: KafkaSink) -> OutputError | None:
    """The error for a row that was refused here, extracted from Spark's report."""
    found = _REFUSED.search(text)
    if found is None:
        return None
    same, got, *others = "".join(found[1].split()).split("|")
    refusal = json.loads(base64.b64decode(same))
    named = {name: base64.b64decode(value) for name, _, value in (part.partition("=") for part in others)}
    key = repr(named["key"].decode("latin-1")) if "key" in named else "none"
    topic = named["topic"].decode() if "topic" in named else refusal["topic"]
    where = f"{topic or sink.name} at {sink.bootstrap}"
    what, limit = refusal["what"], refusal["limit"]
    if what == "topic":
        return OutputError(
            "a message has no topic",
            where=sink.name,
            expected=f"a name in the column {sink.topic_column}",
            got=f"null, in the message with key {key}",
            remedy="filter such messages out before the sink, or name the topic for them with topic=",
        )
    if what == "partition":
        return OutputError(
            "a message names a partition that the topic does not have",
            where=where,
            expected=f"0 to {limit - 1}, or null for Kafka's own choice",
            got=f"{got}, in the message with key {key}",
            remedy="correct the column, or add partitions to the topic",
        )
    return OutputError(
        "a message is too large for the topic",
        where=where,
        expected=f"at most {limit:,} bytes (max.message.bytes of the topic, or max.request.size in options)",
        got=f"{int(got):,} bytes, in the message with key {key}",
        remedy="raise max.message.bytes of the topic, or make the messages smaller; if they are compressed, "
        "max.request.size in options limits their size before that",
    )


class _Columns:
    """The columns of batches like `df`."""

    def __init__(self, df: DataFrame, sink: KafkaSink, limits: Limits) -> None:
        self.df, self.sink, self.limits = df, sink, limits
        columns = {"key": self._key(), "value": self._value()}
        if sink.headers is not None:
            columns["headers"] = self._headers()
        if sink.topic_column is not None:
            named = self._column(sink.topic_column).cast("string")
            columns["topic"] = named if sink.topic is None else F.coalesce(named, F.lit(sink.topic))
        partition = self._partition()
        if partition is not None:
            columns["partition"] = partition
        self._first = [column.alias(name) for name, column in columns.items()]
        self._by_turns = sink.partitioner == "round robin"
        if self._is_plain():
            passes = [self._with_checks(columns)]
        else:
            names = [*columns, *(["partition"] if self._by_turns else [])]
            passes = [self._first, self._with_checks({name: F.col(name) for name in names})]
        self._passes = [java_columns(made) for made in passes]
        self._schema: StructType | None = None

    def of(self, df: DataFrame, batch_id: int) -> DataFrame:
        """The batch; one pass makes the columns, another checks them, so nothing is computed twice.

        Each is a plan that Spark analyses, so columns that take nothing to compute are checked where they are
        made.
        """
        rows, passes = df, self._passes
        if self._by_turns:
            passes = [java_columns([*self._first, self._turn(batch_id)]), *passes[1:]]
        for made in passes:
            rows = with_columns_only(rows, made)
        if self._schema is None:
            self._schema = rows.schema
        return with_schema(rows, self._schema)

    def _is_plain(self) -> bool:
        """Whether there are only a key and a value, which are columns of a single value."""
        sink = self.sink
        others = (sink.headers, sink.topic_column, sink.partition)
        if (
            self._by_turns
            or any(other is not None for other in others)
            or sink.format in ("avro", "protobuf")
        ):
            return False
        given = (sink.value, *([] if sink.key is None else [sink.key]))
        return all(isinstance(c, str) and not _nested(self._type(self._column(c))) for c in given)

    # -- columns -----------------------------------------------------------------------------------

    def _column(self, given: str | Column) -> SparkColumn:
        return spark_column(col(quoted(given)) if isinstance(given, str) else given, self.sink.name)

    def _type(self, column: SparkColumn) -> DataType:
        return self.df.select(column.alias("c")).schema["c"].dataType

    def _key(self) -> SparkColumn:
        if self.sink.key is None:
            return F.lit(None).cast("binary")
        return self._bytes(self._column(self.sink.key))

    def _value(self) -> SparkColumn:
        sink = self.sink
        if sink.value is None:
            apart = {c for c in (sink.topic_column, sink.partition, sink.headers) if isinstance(c, str)}
            names = [name for name in self.df.columns if name not in apart]
            record = F.struct(*[F.col(quoted(name)).alias(name) for name in names])
            if sink.format in ("avro", "protobuf"):
                return self._encoded(record)
            if sink.format in (None, "json"):
                return F.to_json(record, _JSON).cast("binary")
            if len(names) != 1:
                raise self._wrong(f"value= for format={sink.format!r}", f"{len(names)} columns: {names}")
            column = self._column(names[0])
        else:
            column = self._column(sink.value)
            if sink.format in ("avro", "protobuf"):
                return self._encoded(column)
        kind = self._type(column)
        if sink.format == "json" and not _nested(kind):
            raise self._wrong("a struct, a map or an array for json", kind.simpleString())
        if sink.format == "text" and (_nested(kind) or isinstance(kind, BinaryType)):
            raise self._wrong("a single value that is not binary for text", kind.simpleString())
        if sink.format == "raw" and not isinstance(kind, BinaryType):
            raise self._wrong("a binary column for raw", kind.simpleString())
        return self._bytes(column, kind)

    def _encoded(self, record: SparkColumn) -> SparkColumn:
        kind = self._type(record)
        if not isinstance(kind, StructType):
            raise self._wrong(f"a struct for {self.sink.format}", kind.simpleString())
        return encoded(record, kind, self.sink)

    def _bytes(self, column: SparkColumn, kind: DataType | None = None) -> SparkColumn:
        kind = kind or self._type(column)  # each query for a type is a plan that Spark analyses
        if isinstance(kind, BinaryType):
            return column
        if _nested(kind):
            return F.to_json(column, _JSON).cast("binary")
        text = column if isinstance(kind, StringType) else column.cast("string")
        return text.cast("binary")

    def _headers(self) -> SparkColumn:
        given = self.sink.headers
        if isinstance(given, tuple):
            made = [
                F.struct(F.lit(name).alias("key"), self._bytes(self._column(column)).alias("value"))
                for name, column in given
            ]
            return F.array(*made).cast(_HEADERS)
        column = self._column(given or "")
        kind = self._type(column)
        if isinstance(kind, MapType):
            pairs = F.transform(
                F.map_entries(column),
                lambda pair: F.struct(
                    pair["key"].cast("string").alias("key"),
                    pair["value"].cast("string").cast("binary").alias("value")
                    if not isinstance(kind.valueType, BinaryType)
                    else pair["value"].alias("value"),
                ),
            )
            return pairs.cast(_HEADERS)
        if not isinstance(kind, ArrayType):
            raise self._wrong("a map, or an array of key and value, for headers", kind.simpleString())
        return column.cast(_HEADERS)

    def _partition(self) -> SparkColumn | None:
        if self.sink.partition is None:
            return None
        column = self._column(self.sink.partition)
        kind = self._type(column)
        if not isinstance(kind, IntegralType):
            raise self._wrong("a whole number for partition=", kind.simpleString())
        return column.cast("int")

    def _turn(self, batch_id: int) -> SparkColumn:
        """The partition by turns: the row's number within Spark's partition, with a new start per batch."""
        count = self.limits.partitions
        if count is None:
            raise self._wrong("one topic for round robin", f"topic_column={self.sink.topic_column!r}")
        turn = F.pmod(F.monotonically_increasing_id() + F.lit(batch_id), F.lit(count))
        return turn.cast("int").alias("partition")

    # -- rows that Kafka would refuse --------------------------------------------------------------

    def _with_checks(self, columns: Mapping[str, SparkColumn]) -> list[SparkColumn]:
        """The columns, of which the value raises what is wrong with its row."""
        return [
            (self._checked(columns) if name == "value" else column).alias(name)
            for name, column in columns.items()
        ]

    def _checked(self, columns: Mapping[str, SparkColumn]) -> SparkColumn:
        limit, count = self.limits.message_bytes, self.limits.partitions
        sized = [columns["value"], *([] if self.sink.key is None else [columns["key"]])]
        first, *others = [F.coalesce(F.octet_length(column), F.lit(0)) for column in sized]
        size = sum(others, first)
        value = F.when(size > limit, self._refusal(columns, "size", size, limit)).otherwise(columns["value"])
        if "partition" in columns and count is not None and self.sink.partition is not None:
            partition = columns["partition"]
            outside = (partition < 0) | (partition >= count)
            value = F.when(outside, self._refusal(columns, "partition", partition, count)).otherwise(value)
        if "topic" in columns and self.sink.topic is None:
            nowhere = columns["topic"].isNull()
            value = F.when(nowhere, self._refusal(columns, "topic", F.lit(0), 0)).otherwise(value)
        return value

    def _refusal(
        self, columns: Mapping[str, SparkColumn], what: str, got: SparkColumn, limit: int
    ) -> SparkColumn:
        """An expression that raises the text that `refused` reads.

        What is the same for all messages is a part of the text: Spark plans the expression for each batch.
        """
        same = json.dumps({"what": what, "limit": limit, "topic": self.sink.topic})
        parts = [F.lit(f"⟦kafka:{base64.b64encode(same.encode()).decode()}|"), got.cast("string")]
        if self.sink.key is not None:
            parts.append(F.concat(F.lit("|key="), F.base64(F.substring(columns["key"], 1, _KEY_BYTES))))
        if "topic" in columns:
            parts.append(F.concat(F.lit("|topic="), F.base64(columns["topic"].cast("binary"))))
        # Parts that are null are left out.
        return F.raise_error(F.concat_ws("", *parts, F.lit("⟧"))).cast("binary")

    def _wrong(self, expected: str, got: str) -> OutputError:
        return OutputError(
            "the columns cannot be sent to Kafka like this",
            where=self.sink.name,
            expected=expected,
            got=got,
            remedy="correct the sink's arguments, or make the column with select(...) before it",
        )


def _nested(kind: DataType) -> bool:
    return isinstance(kind, StructType | MapType | ArrayType | VariantType)

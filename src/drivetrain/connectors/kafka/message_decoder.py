"""Decodes the bytes of Kafka messages with Spark expressions; Avro and Protobuf in one Arrow function.

The problem: a value that does not parse must not become a null without notice, and an error must name
the message: its topic, partition and offset.

The design: the connector's columns get hidden names (they begin with `__k_`), so that the schema may use any.
A format has its columns, and a reason, which is null for a valid message. Text and JSON are Spark's own
expressions; its JSON parser marks messages that do not fit the schema in the column for corrupt records.
Under the policy `fail` each column raises the reason, marked, in place of a value; `bad_message` finds the
mark in Spark's report. Under `dead_letter` the reason goes to `BAD_COLUMN`, and the columns are null.

Invariants:

1. A message whose value, key or event time cannot be read has a reason.
2. No column of such a message has a value.

Called by the Kafka source's adapter.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.types import StructType

from drivetrain.api.connectors.kafka import Kafka
from drivetrain.connectors.kafka.binary_values import decode_binary
from drivetrain.connectors.kafka.confluent_header import HEADER_BYTES, NO_HEADER
from drivetrain.connectors.schema import to_struct
from drivetrain.errors import InputError
from drivetrain.spark.connector.source import BAD_COLUMN

HIDDEN = "__k_"
_MARK = "drivetrain: a Kafka message cannot be read: "
_FOUND = re.compile(re.escape(_MARK) + r"(\{.*?\"end\":0\})", re.DOTALL)
_PARSED, _RAW, _REASON = "__parsed", "__raw", "__reason"


@dataclass(frozen=True)
class Decoded:
    """Messages under hidden names, the user's columns by name, the reason if bad, and the event time."""

    df: DataFrame
    columns: dict[str, Column]
    reason: Column
    time: Column

    def where(self, condition: Column) -> Decoded:
        """The messages for which `condition`, on the hidden names, holds."""
        return replace(self, df=self.df.where(condition))

    def rows(self, source: Kafka, *more: Column) -> DataFrame:
        """The user's columns, `BAD_COLUMN` under `dead_letter`, and `more`."""
        well = self.reason.isNull()
        if source.on_bad_record == "dead_letter":
            checked = [F.when(well, column).alias(name) for name, column in self.columns.items()]
            return self.df.select(*checked, F.when(~well, self._bad()).alias(BAD_COLUMN), *more)
        failure = F.to_json(
            F.struct(
                *(F.col(HIDDEN + name).alias(name) for name in ("topic", "partition", "offset")),
                self.reason.alias("reason"),
                F.lit(0).alias("end"),
            )
        )
        error = F.raise_error(F.concat(F.lit(_MARK), failure))
        kinds = self.df.select(*(c.alias(n) for n, c in self.columns.items())).schema
        checked = [
            F.when(well, column).otherwise(error.cast(kinds[name].dataType)).alias(name)
            for name, column in self.columns.items()
        ]
        return self.df.select(*checked, *more)

    def _bad(self) -> Column:
        value = F.col(f"{HIDDEN}value")
        text = value.cast("string")
        place = F.concat(F.col(f"{HIDDEN}topic"), F.lit("/"), F.col(f"{HIDDEN}partition"))
        return F.struct(
            F.when(F.is_valid_utf8(text), text).otherwise(F.concat(F.lit("0x"), F.hex(value))).alias("raw"),
            place.alias("file"),
            F.col(f"{HIDDEN}offset").alias("line"),
            self.reason.alias("error"),
        )


def decoded(df: DataFrame, source: Kafka) -> Decoded:
    """The connector's rows `df`, decoded as `source` declares; raises `InputError` for an invalid schema."""
    df = df.select(*(F.col(name).alias(HIDDEN + name) for name in df.columns))
    value = F.col(f"{HIDDEN}value")
    if source.format in ("text", "raw"):
        text = value.cast("string")
        columns = {"value": text if source.format == "text" else value}
        reason = _not_utf8(text, "the value") if source.format == "text" else F.lit(None).cast("string")
    elif source.format == "json":
        struct = to_struct(source.schema, source.name)  # type: ignore[arg-type]  # not None: checked when built
        body, headless = (value, None) if source.wire == "plain" else _without_header(value)
        df, columns, reason = _json(df, body, struct)
        reason = reason if headless is None else F.coalesce(headless, reason)
    else:
        df, names = decode_binary(df, source, f"{HIDDEN}value", _REASON)
        columns, reason = {name: F.col(name) for name in names}, F.col(_REASON)
    for name in source.columns:
        if name in columns:
            raise InputError(
                f"there are two columns called {name}",
                where=source.name,
                got=f"{name} in the schema, and in columns=",
                remedy="read it without columns= and rename it, or leave it out of the schema",
            )
        columns[name] = F.col(HIDDEN + name)
    if "key" in source.columns and source.key_format == "text":
        columns["key"] = columns["key"].cast("string")
        reason = F.coalesce(reason, _not_utf8(columns["key"], "the key"))
    time = F.col(f"{HIDDEN}timestamp")
    if source.event_time is not None and source.event_time in columns:
        time = columns[source.event_time]
        reason = F.coalesce(reason, F.when(time.isNull(), F.lit("it has no event time")))
        if df.select(time.alias("t")).schema["t"].dataType.simpleString() == "bigint":
            time = F.timestamp_millis(time)
    return Decoded(df, columns, reason, time.cast("timestamp"))


def bad_message(text: str, where: str) -> InputError | None:
    """The error of a message that could not be read, if Spark's report of a failed batch contains one."""
    found = _FOUND.search(text)
    if found is None:
        return None
    failure = json.loads(found[1])
    return InputError(
        f"a message cannot be read: {failure['reason']}",
        where=f"{where}, topic {failure['topic']}, partition {failure['partition']}, "
        f"offset {failure['offset']}",
        remedy="correct the format or the schema, or put such messages into the dead letters: "
        'on_bad_record="dead_letter"',
    )


def _not_utf8(text: Column, what: str) -> Column:
    return F.when(text.isNotNull() & ~F.is_valid_utf8(text), F.lit(f"{what} is not UTF-8"))


def _without_header(value: Column) -> tuple[Column, Column]:
    """The bytes after Confluent's header (see `confluent_header`), and the reason if there is none."""
    has_one = F.startswith(value, F.lit(b"\x00")) & (F.octet_length(value) >= HEADER_BYTES)
    reason = F.when(value.isNotNull() & ~has_one, F.lit(NO_HEADER))
    return F.substring(value, HEADER_BYTES + 1, 2**31 - 1), reason


def _json(df: DataFrame, value: Column, struct: StructType) -> tuple[DataFrame, dict[str, Column], Column]:
    text = value.cast("string")
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _RAW}
    parsed = F.from_json(text, StructType(list(struct.fields)).add(_RAW, "string"), options)
    df = df.withColumn(_PARSED, parsed)
    refused = F.col(_PARSED).isNull() | F.col(_PARSED)[_RAW].isNotNull()
    reason = F.when(value.isNotNull() & refused, F.lit("the value is not JSON of the schema"))
    columns = {name: F.col(_PARSED)[name] for name in struct.names}
    return df, columns, F.coalesce(_not_utf8(text, "the value"), reason)

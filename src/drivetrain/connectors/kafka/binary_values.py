"""Avro and Protobuf messages in one Arrow function.

The problem: PySpark has neither format without a Java package, and the packages cannot report single messages
that do not parse.

The design: a format is a plain object that is sent to Spark's workers. It names the columns, and makes a
function from bytes to a mapping by column, which raises ValueError with the reason. One Arrow
function around it passes on the other columns unchanged, and adds those of the message and the reason.

Invariants:

1. A message that does not parse, or has bytes left over, has a reason, and nulls in its columns.
2. A null value has nulls and no reason.

Called by `message_decoder`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from drivetrain.api.connectors.kafka import Kafka
from drivetrain.connectors.kafka.avro import AvroFormat
from drivetrain.connectors.kafka.protobuf_values import ProtobufFormat
from drivetrain.connectors.schema import from_arrow, to_arrow
from drivetrain.errors import InputError

Decode = Callable[[bytes], Mapping[str, Any]]


class Format(Protocol):
    """A binary format; frozen, of plain values, so that it can be sent."""

    def schema(self) -> pa.Schema:
        """The columns of a message; raises ValueError when the format's own schema is invalid."""
        ...

    def decoder(self) -> Decode:
        """A function from a message's bytes to a mapping by column; called where it is used."""
        ...


def decode_binary(df: DataFrame, source: Kafka, value: str, reason: str) -> tuple[DataFrame, list[str]]:
    """`df` with the columns of the messages in its column `value`, and one called `reason`; their names.

    Raises `InputError` for a schema that cannot be read.
    """
    made: Format
    try:
        if source.format == "avro":
            made = AvroFormat(str(source.schema), confluent=source.wire == "confluent")
        else:
            descriptors = Path(str(source.descriptors)).expanduser().read_bytes()
            made = ProtobufFormat(str(source.schema), descriptors, confluent=source.wire == "confluent")
        arrow = made.schema()
    except (ValueError, OSError) as error:
        raise InputError(
            f"the {source.format} schema cannot be read", where=source.name, got=str(error)
        ) from error
    struct = StructType([*df.schema.fields, *from_arrow(arrow, source.name).fields]).add(reason, "string")
    # Spark's instants are in UTC, and every column may be null.
    target = to_arrow(struct)
    return df.mapInArrow(_Decoding(made, value, target), struct), arrow.names


@dataclass(frozen=True)
class _Decoding:
    """The Arrow function."""

    format: Format
    value: str
    target: pa.Schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        decode = self.format.decoder()
        for batch in batches:
            yield self._decoded(decode, batch)

    def _decoded(self, decode: Decode, batch: pa.RecordBatch) -> pa.RecordBatch:
        kept = batch.num_columns
        own = pa.struct(list(self.target)[kept:-1])
        rows: list[Mapping[str, Any] | None] = []
        reasons: list[str | None] = []
        for value in batch.column(self.value).to_pylist():
            row, why = None, None
            if value is not None:
                try:
                    row = decode(value)
                except ValueError as error:
                    why = f"the value cannot be decoded: {error}"
            rows.append(row)
            reasons.append(why)
        found = pa.array(rows, own)
        # After flattening, a null struct has null fields.
        columns = [*batch.columns, *found.flatten(), pa.array(reasons, pa.string())]
        taken = [column.cast(field.type) for column, field in zip(columns, self.target, strict=True)]
        return pa.RecordBatch.from_arrays(taken, schema=self.target)

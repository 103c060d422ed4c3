"""Encodes values of Kafka messages as Avro or Protobuf: a record as bytes, in one Arrow function.

The problem: PySpark has neither format without a Java package. The source decodes both in Python, with
the same formats; a reader must get back the values that were written.

The design: the format's schema determines the columns of a value. Spark casts each to the type in the
schema, so type errors are reported when the query is compiled; the function only turns rows into bytes.

Invariants:

1. Every column of the record is a field of the schema, and every field a column.
2. A null record is a null value. An error names the field, never a value.

Called by `kafka_rows`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - PySpark's convention
from pyspark.sql.types import ArrayType, BinaryType, MapType, StructType

from drivetrain.api.connectors.kafka_sink import KafkaSink
from drivetrain.connectors.kafka.avro import AvroFormat
from drivetrain.connectors.kafka.protobuf_values import ProtobufFormat
from drivetrain.connectors.schema import from_arrow
from drivetrain.errors import OutputError
from drivetrain.spark.session.spark_errors import embedded

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import Column


class _Format(Protocol):
    def schema(self) -> pa.Schema: ...

    def encoder(self) -> Callable[[Mapping[str, Any]], bytes]: ...


def encoded(record: Column, kind: StructType, sink: KafkaSink) -> Column:
    """The struct `record`, of type `kind`, as bytes in the sink's format.

    Raises `OutputError` for a schema that cannot be read, and for columns that are not its fields.
    """
    made: _Format
    try:
        if sink.format == "avro":
            made = AvroFormat(str(sink.schema))
        else:
            descriptors = Path(str(sink.descriptors)).expanduser().read_bytes()
            made = ProtobufFormat(str(sink.schema), descriptors)
        wanted = from_arrow(made.schema(), sink.name)
    except (ValueError, OSError) as error:
        raise OutputError(
            f"the {sink.format} schema cannot be read", where=sink.name, got=str(error)
        ) from error
    if set(kind.names) != set(wanted.names):
        raise _unlike(sink, ", ".join(wanted.names), ", ".join(kind.names))
    for field in wanted:
        got = kind[field.name].dataType
        if isinstance(field.dataType, ArrayType | MapType | StructType) and (
            got.simpleString() != field.dataType.simpleString()
        ):
            expected = f"{field.name}: {field.dataType.simpleString()}"
            raise _unlike(sink, expected, f"{field.name}: {got.simpleString()}")
    typed = F.struct(*[record[field.name].cast(field.dataType).alias(field.name) for field in wanted])
    function = F.arrow_udf(_encoding(made, sink.format or "", sink.name), BinaryType())
    return function(F.when(record.isNotNull(), typed))


def _encoding(made: _Format, name: str, where: str) -> Callable[[pa.Array], pa.Array]:
    def encode(records: pa.Array) -> pa.Array:
        encoder = made.encoder()
        values: list[bytes | None] = []
        for row in records.to_pylist():
            try:
                values.append(None if row is None else encoder(row))
            except ValueError as error:
                raise embedded(
                    OutputError(
                        f"a message cannot be written as {name}",
                        where=where,
                        got=str(error),
                        remedy="correct the column, or filter such messages out before the sink",
                    )
                ) from None
        return pa.array(values, pa.binary())

    return encode


def _unlike(sink: KafkaSink, expected: str, got: str) -> OutputError:
    return OutputError(
        f"the value of a message does not fit the {sink.format} schema",
        where=sink.name,
        expected=expected,
        got=got,
        remedy="give value= a struct of just the fields of the schema, or select them before the sink",
    )

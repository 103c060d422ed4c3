"""The columns that a source declares, without opening it.

Called by `drivetrain.testing.scripted_run`, which replaces sources by a test's messages.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from drivetrain.api.connectors.kafka import Kafka
from drivetrain.api.sources import (
    CsvFiles,
    FileSource,
    Generator,
    Items,
    JsonLines,
    ParquetFiles,
    PushSource,
    Socket,
    TextFiles,
)
from drivetrain.api.types import schema_of
from drivetrain.connectors.in_process.generator import generate_rows

_OF_KAFKA = {
    "headers": "array<struct<key:string,value:binary>>",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
}


def declared_columns(source: Any, id: str, spark: SparkSession) -> str | None:
    """The columns of a source as DDL; None where only its data or a foreign schema has them."""
    match source:
        case TextFiles():
            return _with_folders("value string", source)
        case Socket() | Items() | PushSource():
            return source.columns
        case CsvFiles() | JsonLines():
            return _with_folders(schema_of(source.schema), source)
        case ParquetFiles(schema=schema):
            return None if schema is None else _with_folders(schema_of(schema), source)
        case Generator():
            made = generate_rows(spark.range(0), source, id).schema
            return ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in made)
        case Kafka():
            return _kafka_columns(source)
    schema = getattr(source, "schema", None)
    return schema_of(schema) if isinstance(schema, str | type) else None


def _with_folders(columns: str, source: FileSource) -> str:
    return columns if source.partition_columns is None else f"{columns}, {source.partition_columns}"


def _kafka_columns(source: Kafka) -> str | None:
    value = {"text": "value string", "raw": "value binary"}.get(source.format)
    if source.format == "json":
        value = schema_of(source.schema)
    if value is None:
        return None
    key = "string" if source.key_format == "text" else "binary"
    return ", ".join([value, *(f"`{name}` {_OF_KAFKA.get(name, key)}" for name in source.columns)])

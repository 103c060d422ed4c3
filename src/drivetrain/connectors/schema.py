"""Schemas: what the user declared, as Spark's type and as the Arrow schema that Spark accepts.

Called by `opened_files` and by the readers.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.errors import ParseException
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from drivetrain.api.sources import Schema
from drivetrain.api.types import schema_of
from drivetrain.errors import InputError


def to_struct(schema: Schema, where: str) -> StructType:
    """The Spark type of a declared schema; needs a running session. Raises InputError for a wrong DDL."""
    ddl = schema_of(schema)
    try:
        return StructType.fromDDL(ddl)
    except ParseException as error:
        raise InputError(
            "the schema cannot be read",
            where=where,
            expected='Spark DDL such as "carrier string, delay double"',
            got=ddl,
            remedy="check the type names and the commas",
        ) from error


def to_arrow(struct: StructType) -> pa.Schema:
    """The Arrow schema in which Spark takes rows of `struct`: instants in UTC, nullable columns."""
    return to_arrow_schema(struct, timezone="UTC")


def from_arrow(schema: pa.Schema, where: str) -> StructType:
    """The Spark type of a file's Arrow schema; raises InputError for types that Spark does not have."""
    try:
        return from_arrow_schema(schema)
    except Exception as error:  # PySpark raises several unrelated classes here; all mean this
        raise InputError(
            "a column has a type that Spark does not have",
            where=where,
            got=str(error),
            remedy="declare a schema with the columns to read and their types",
        ) from error


def ddl_types(struct: StructType) -> dict[str, str]:
    """The DDL type of every column, keyed by name, in order."""
    return {field.name: field.dataType.simpleString() for field in struct.fields}

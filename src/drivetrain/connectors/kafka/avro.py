"""Avro messages: converts the user's schema to Arrow's, and bytes to values, by `fastavro`.

A message is the bare binary of one record, written with exactly the given schema: Avro's bytes do not
name their schema. Unions are those with null. Names of enumerations are text, fixed bytes are binary.

Called by `binary_values` and the sink's `value_encoder`, on Spark's workers.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from drivetrain.connectors.kafka.confluent_header import without_header
from drivetrain.errors import MissingDependencyError

_SIMPLE = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "fixed": pa.binary(),
    "enum": pa.string(),
}
_LOGICAL = {
    "date": pa.date32(),
    "timestamp-millis": pa.timestamp("us", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "uuid": pa.string(),
}
_REFUSED = ("time-millis", "time-micros", "duration", "local-timestamp-millis", "local-timestamp-micros")


@dataclass(frozen=True)
class AvroFormat:
    """An Avro schema, as JSON text."""

    text: str
    confluent: bool = False

    def schema(self) -> pa.Schema:
        """The record's fields as columns; raises ValueError for schemas without a counterpart."""
        record = self._parsed()
        if not isinstance(record, dict) or record.get("type") != "record":
            raise ValueError("it is not the schema of a record")
        known: dict[str, pa.DataType] = {}
        inside = (str(record["name"]),)
        return pa.schema([(f["name"], _arrow(f["type"], known, inside)) for f in record["fields"]])

    def decoder(self) -> Callable[[bytes], Mapping[str, Any]]:
        """A function from a message to its fields; it raises ValueError."""
        from fastavro import schemaless_reader

        parsed: Any = self._parsed()
        types = {field.name: field.type for field in self.schema()}

        def decode(value: bytes) -> Mapping[str, Any]:
            stream = io.BytesIO(without_header(value) if self.confluent else value)
            try:
                row: Any = schemaless_reader(stream, parsed, None)
            except Exception as error:  # fastavro raises many classes of errors for bytes that do not fit
                raise ValueError(
                    f"{type(error).__name__}: {error}" if str(error) else "it ends too early"
                ) from error
            if stream.read(1):
                raise ValueError("extra bytes after the record")
            return {name: shaped(row[name], kind) for name, kind in types.items()}

        return decode

    def encoder(self) -> Callable[[Mapping[str, Any]], bytes]:
        """A function from the fields, as Arrow values, to a message; its ValueError has no values in it."""
        from fastavro import schemaless_writer

        parsed: Any = self._parsed()
        fields = [(f.name, f.type) for f in self.schema()]
        optional = {f["name"] for f in parsed["fields"] if "null" in f["type"]}

        def encode(row: Mapping[str, Any]) -> bytes:
            stream = io.BytesIO()
            try:
                schemaless_writer(stream, parsed, {name: unshaped(row[name], kind) for name, kind in fields})
            except Exception as error:  # noqa: BLE001 - fastavro raises many classes for values that do not fit
                nulls = [name for name, _ in fields if row[name] is None and name not in optional]
                why = f"null in {', '.join(nulls)}, which the schema does not allow" if nulls else None
                raise ValueError(why or f"a field does not fit its type ({type(error).__name__})") from None
            return stream.getvalue()

        return encode

    def _parsed(self) -> Any:
        try:
            from fastavro import parse_schema
            from fastavro.schema import SchemaParseException, UnknownType
        except ImportError as error:
            raise MissingDependencyError(
                "Avro messages need the package fastavro", remedy="pip install 'drivetrain[kafka]'"
            ) from error
        try:
            return parse_schema(json.loads(self.text))
        except (SchemaParseException, UnknownType) as error:
            raise ValueError(f"{type(error).__name__}: {error}") from error


def shaped(value: Any, kind: pa.DataType) -> Any:
    """A value in Arrow's form: mappings as pairs, identifiers as text, through all levels."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        return [(key, shaped(item, kind.item_type)) for key, item in value.items()]
    if pa.types.is_list(kind):
        return [shaped(item, kind.value_type) for item in value]
    if pa.types.is_struct(kind):
        return {field.name: shaped(value[field.name], field.type) for field in kind}
    return str(value) if pa.types.is_string(kind) else value


def unshaped(value: Any, kind: pa.DataType) -> Any:
    """A value from Arrow with mappings restored, through all levels; the opposite of `shaped`."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        return {key: unshaped(item, kind.item_type) for key, item in value}
    if pa.types.is_list(kind):
        return [unshaped(item, kind.value_type) for item in value]
    if pa.types.is_struct(kind):
        return {field.name: unshaped(value[field.name], field.type) for field in kind}
    return value


def _arrow(kind: Any, known: dict[str, pa.DataType], inside: tuple[str, ...]) -> pa.DataType:
    if isinstance(kind, list):
        some = [one for one in kind if one != "null"]
        if len(some) != 1:
            raise ValueError(f"a union of several types has no counterpart: {kind}")
        return _arrow(some[0], known, inside)
    if isinstance(kind, str):
        if kind in inside:
            raise ValueError(f"the record {kind} holds itself, which has no counterpart")
        if kind not in known and kind not in _SIMPLE:
            raise ValueError(f"the type {kind} has no counterpart")
        return known.get(kind) or _SIMPLE[kind]
    return _complex(kind, known, inside)


def _complex(kind: dict[str, Any], known: dict[str, pa.DataType], inside: tuple[str, ...]) -> pa.DataType:
    logical, base = kind.get("logicalType"), kind["type"]
    if logical in _REFUSED:
        raise ValueError(f"the logical type {logical} has no counterpart")
    if logical == "decimal":
        found: pa.DataType = pa.decimal128(kind["precision"], kind.get("scale", 0))
    elif logical in _LOGICAL:
        found = _LOGICAL[logical]
    elif base in ("record", "error"):
        within = (*inside, kind["name"])
        found = pa.struct([(f["name"], _arrow(f["type"], known, within)) for f in kind["fields"]])
    elif base == "array":
        found = pa.list_(_arrow(kind["items"], known, inside))
    elif base == "map":
        found = pa.map_(pa.string(), _arrow(kind["values"], known, inside))
    else:
        found = _arrow(base, known, inside)
    if "name" in kind:
        known[kind["name"]] = found
    return found

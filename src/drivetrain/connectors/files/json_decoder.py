"""JSON lines: one object per line, parsed by Arrow.

Of the measured readers that produce Arrow batches, Arrow's is the fastest (see the decision record), but
it is lenient where a stream must not be: it accepts several objects on one line, or one over several
lines, does not check the encoding, and crashes the process on a top-level `null` (pyarrow 18 to 26). So
a block is accepted only if all its bytes are UTF-8, every line that is not blank starts with `{`, and
there is exactly one row per such line.

Temporal columns are read as text and converted by `to_temporal`, which is faster and accepts more forms.
Temporal fields inside structs and arrays are converted by Arrow, which requires a zone for instants.

Called by the file reader.
"""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.json as pajson

from drivetrain.connectors.files.blocks import Ends
from drivetrain.connectors.files.text_records import (
    Explanation,
    UndecodableError,
    explain_encoding,
    record_starts,
    require_utf8,
)
from drivetrain.connectors.files.timestamps import is_temporal, to_temporal
from drivetrain.errors import InputError

_OPENING_BRACE = ord("{")


class JsonDecoder:
    """Decodes JSON objects into the columns of `target`; `ddl_types` is keyed by column name."""

    def __init__(self, target: pa.Schema, ddl_types: dict[str, str], timestamp_format: str | None) -> None:
        self._target = target
        self._ddl_types = ddl_types
        self._timestamp_format = timestamp_format
        self._read = pa.schema(
            [pa.field(field.name, pa.string() if is_temporal(field.type) else field.type) for field in target]
        )

    def decode(self, data: bytes, ends: Ends) -> pa.RecordBatch:
        """One row per line that is not blank; see `Decoder`."""
        return self._decode(data, ends, self._read, self._target)

    def explain(self, record: bytes) -> Explanation:
        """The syntax error, or the first column that does not fit; see `Decoder`."""
        encoding = explain_encoding(record)
        if encoding is not None:
            return encoding
        try:
            value = json.loads(record)
        except (ValueError, RecursionError) as error:
            return Explanation(f"not valid JSON ({error})", expected="one JSON object per line")
        if not isinstance(value, dict):
            return Explanation(
                "not a JSON object", expected="one JSON object per line", got=type(value).__name__
            )
        for field, read in zip(self._target, self._read, strict=True):
            try:
                self._decode(record, np.array([len(record)]), pa.schema([read]), pa.schema([field]))
            except (UndecodableError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                return Explanation(
                    _problem(error, field.type),
                    column=field.name,
                    expected=self._ddl_types[field.name],
                    got=json.dumps(value.get(field.name), ensure_ascii=False),
                )
        return Explanation("the line cannot be read", expected="one JSON object per line")

    def _decode(self, data: bytes, ends: Ends, read: pa.Schema, target: pa.Schema) -> pa.RecordBatch:
        require_utf8(data)
        expected = _count_objects(data, ends)
        if expected == 0:
            return pa.RecordBatch.from_pylist([], schema=target)
        table = pajson.read_json(
            pa.BufferReader(data),
            read_options=pajson.ReadOptions(use_threads=False, block_size=len(data) + 1),
            parse_options=pajson.ParseOptions(explicit_schema=read, unexpected_field_behavior="ignore"),
        )
        if table.num_rows != expected:
            raise UndecodableError(f"{expected} lines hold {table.num_rows} objects")
        columns = []
        for field in target:
            column = table.column(field.name).combine_chunks()
            if is_temporal(field.type):
                column = to_temporal(column, field.type, self._timestamp_format)
            columns.append(column if column.type == field.type else column.cast(field.type))
        return pa.RecordBatch.from_arrays(columns, schema=target)


def check_json_schema(target: pa.Schema, where: str) -> None:
    """Raise InputError when a column's type cannot be read from JSON."""
    for field in target:
        for kind, remedy in (
            (pa.types.is_map, "declare a struct with the keys that are needed, or read the column as string"),
            (pa.types.is_binary, "read the column as string and decode it with unbase64"),
        ):
            if _holds(field.type, kind):
                raise InputError(
                    f"column {field.name} has a type that cannot be read from JSON",
                    where=where,
                    expected="strings, numbers, booleans, timestamps, dates, decimals, arrays and structs",
                    got=str(field.type),
                    remedy=remedy,
                )


def _holds(data_type: pa.DataType, kind: object) -> bool:
    if kind(data_type):  # type: ignore[operator]
        return True
    return any(_holds(data_type.field(index).type, kind) for index in range(data_type.num_fields))


def _count_objects(data: bytes, ends: Ends) -> int:
    """How many lines are not blank; raises UndecodableError when one of them is not an object."""
    starts = record_starts(ends)
    buffer = np.frombuffer(data, dtype=np.uint8)
    if int(starts[-1]) == len(data):
        starts, ends = starts[:-1], ends[:-1]
    odd = np.flatnonzero(buffer[starts] != _OPENING_BRACE)
    blank = 0
    for index in odd:
        line = data[int(starts[index]) : int(ends[index])].strip()
        if not line:
            blank += 1
        elif line[0] != _OPENING_BRACE:
            raise UndecodableError("a line does not start with {")
    return len(starts) - blank


def _problem(error: Exception, target: pa.DataType) -> str:
    if is_temporal(target):
        return "does not parse as a date or time"
    return "has the wrong type" if "changed from" in str(error) else "does not fit the type"

"""The statistics of a file's columns, with which readers of a table skip files.

The problem: a reader that looks for some rows skips a file whose smallest and largest values exclude them.
Statistics that are wrong lose rows, in any reader, without an error. Missing ones only cost time.

The design: values are compared while the file is written, by Arrow. Where readers disagree about the order of
values, or the log has no exact form for them, there are none: NaN and infinite numbers, decimals, binary
and nested values. Long text is cut at its beginning for the smallest, and left out for the largest.

Invariants:

1. No value of a column is below its `minValues` or above its `maxValues`.

Called by `data_files` and `library_files`. Source: "Per-file Statistics" in Delta's protocol.
"""

from __future__ import annotations

import datetime as dt
import json
import math
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

MOST_COLUMNS = 32
"""Statistics are kept of so many columns, the first ones; readers expect no more by default."""
MOST_CHARACTERS = 32


class Statistics:
    """The statistics of one file, batch by batch."""

    def __init__(self, schema: pa.Schema) -> None:
        self._columns = [f for f in list(schema)[:MOST_COLUMNS] if not pa.types.is_nested(f.type)]
        self._rows = 0
        self._nulls = {field.name: 0 for field in self._columns}
        self._unordered = {field.name for field in self._columns if not is_ordered(field.type)}
        self._least: dict[str, Any] = {}
        self._largest: dict[str, Any] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """Take the rows of a batch into account."""
        self._rows += batch.num_rows
        for field in self._columns:
            column = batch.column(field.name)
            self._nulls[field.name] += column.null_count
            if field.name not in self._unordered and column.null_count < len(column):
                self._compare(field, column)

    def to_json(self) -> str:
        """The statistics as the log of a table has them."""
        least = {name: text for name, v in self._least.items() if (text := _least_text(v)) is not None}
        largest = {name: text for name, v in self._largest.items() if (text := _largest_text(v)) is not None}
        content = {"numRecords": self._rows, "minValues": least, "maxValues": largest}
        return json.dumps({**content, "nullCount": self._nulls}, separators=(",", ":"))

    def _compare(self, field: pa.Field, column: pa.Array) -> None:
        name = field.name
        if pa.types.is_floating(field.type) and not pc.all(pc.is_finite(column)).as_py():
            self._unordered.add(name)
            self._least.pop(name, None)
            self._largest.pop(name, None)
            return
        found = pc.min_max(column)
        least, largest = found["min"].as_py(), found["max"].as_py()
        self._least[name] = min(self._least.get(name, least), least)
        self._largest[name] = max(self._largest.get(name, largest), largest)


def is_ordered(kind: pa.DataType) -> bool:
    """Whether all readers order values of this type alike; floating-point numbers, if they are finite."""
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_string(kind)
        or pa.types.is_date(kind)
        or pa.types.is_timestamp(kind)
    )


def _least_text(value: Any) -> Any:
    if isinstance(value, str):
        return value[:MOST_CHARACTERS]
    return _instant(value) if isinstance(value, dt.datetime) else _plain(value)


def _largest_text(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= MOST_CHARACTERS else None
    if isinstance(value, dt.datetime):
        cut = dt.timedelta(microseconds=value.microsecond % 1000)
        try:
            return _instant(value - cut + dt.timedelta(milliseconds=1) if cut else value)
        except OverflowError:
            return None
    return _plain(value)


def _instant(value: dt.datetime) -> str:
    """A moment in milliseconds, rounded down."""
    text = value.replace(tzinfo=None).isoformat(timespec="milliseconds")
    return f"{text}Z" if value.tzinfo else text


def _plain(value: Any) -> Any:
    if isinstance(value, dt.date):
        return value.isoformat()
    return None if isinstance(value, float) and not math.isfinite(value) else value

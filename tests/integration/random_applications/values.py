"""Keys and times as Python, SQL and text. Arrays are tuples, structs tuples of pairs: they can be hashed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NAN = ("nan",)
"""A NaN that equals itself, as it does for Spark."""


def instant(us: int) -> str:
    """µs since the epoch as ISO 8601."""
    return (EPOCH + timedelta(microseconds=us)).isoformat(timespec="microseconds").replace("+00:00", "Z")


def plain(value: Any) -> str:
    """A key as the text of a Python value."""
    if value == NAN:
        return 'float("nan")'
    if isinstance(value, float) and math.isinf(value):
        return f'float("{value}")'
    if isinstance(value, tuple):
        return repr(dict(value)) if value and isinstance(value[0], tuple) else repr(list(value))
    return repr(value)


def same(value: Any) -> Any:
    """A value from a file or a table, converted so that it can be hashed, and equal values are equal."""
    if isinstance(value, float):
        return NAN if math.isnan(value) else value + 0.0
    if isinstance(value, Mapping):
        return tuple((name, same(part)) for name, part in value.items())
    if isinstance(value, list):
        return tuple(same(part) for part in value)
    if isinstance(value, datetime):
        return round((value - EPOCH) / timedelta(microseconds=1))
    return value


def as_sql(key_type: str, number: str) -> str:
    """A key of the type, computed from a number in SQL."""
    return {
        "string": f"concat('k', {number})",
        "bigint": f"{number}",
        "double": f"cast({number} as double)",
        "array<string>": f"array(concat('k', {number}))",
        "struct<a:bigint,b:string>": f"named_struct('a', {number}, 'b', 'x')",
    }[key_type]

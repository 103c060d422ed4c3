"""Converts records to plain data for `--json`, every field by its name, and prints it.

Why: messages are encoded as arrays, and some records are dataclasses, but readers of JSON need names. A
command prints one document, and ends its line.

Called by the commands that print JSON.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, TextIO

import msgspec


def as_data(value: Any) -> Any:
    """Convert `value` to dicts, lists and plain values; enumerations to their values."""
    if isinstance(value, msgspec.Struct):
        return {name: as_data(getattr(value, name)) for name in value.__struct_fields__}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: as_data(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: as_data(one) for key, one in value.items()}
    if isinstance(value, tuple | list):
        return [as_data(one) for one in value]
    return value.value if isinstance(value, Enum) else value


def print_json(data: Any, output: TextIO, default: Callable[[Any], Any] | None = None) -> None:
    """Write `data` as one line of JSON; `default` converts values that JSON has no type for."""
    json.dump(data, output, default=default)
    output.write("\n")

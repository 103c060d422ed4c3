"""Parsers of configuration values: durations, sizes, numbers, names.

Problem: the same value comes as a TOML string or number, as an environment variable, or as the right
side of `--set`; it must mean the same everywhere, and a wrong one must say what was expected.

Design: a `Parser` is a pair of functions, from text to the value that the program uses and back, with a
sentence that describes what it accepts. Durations are whole milliseconds and sizes are whole
bytes inside the program; outside they always have a unit: a bare number would leave the reader
guessing between seconds and milliseconds.

Invariants:
1. `read(show(value)) == value` for every value that `read` can return.
2. `read` raises ValueError, and nothing else, for what it does not accept.

Called by `drivetrain.config.key` and the key catalog. Units as in Flink's and Spark's configuration.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from types import MappingProxyType
from typing import Final, Generic, NoReturn, TypeVar

T = TypeVar("T")

_DURATION_UNITS_MS: Final[Mapping[str, int]] = MappingProxyType(
    {"ms": 1, "s": 1_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
)
_DURATION_UNITS_US: Final[Mapping[str, int]] = MappingProxyType(
    {"us": 1, **{unit: 1_000 * ms for unit, ms in _DURATION_UNITS_MS.items()}}
)
_DURATION_WORDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "micros": "us",
        "microsecond": "us",
        "microseconds": "us",
        "millis": "ms",
        "millisecond": "ms",
        "milliseconds": "ms",
        "sec": "s",
        "second": "s",
        "seconds": "s",
        "m": "min",
        "minute": "min",
        "minutes": "min",
        "hour": "h",
        "hours": "h",
        "day": "d",
        "days": "d",
    }
)
_SIZE_UNITS_BYTES: Final[Mapping[str, int]] = MappingProxyType(
    {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
)
_SIZE_WORDS: Final[Mapping[str, tuple[str, int]]] = MappingProxyType(
    {
        "b": ("B", 1),
        "byte": ("B", 1),
        "bytes": ("B", 1),
        "kib": ("KiB", 2**10),
        "mib": ("MiB", 2**20),
        "gib": ("GiB", 2**30),
        "tib": ("TiB", 2**40),
        "kb": ("kB", 10**3),
        "mb": ("MB", 10**6),
        "gb": ("GB", 10**9),
        "tb": ("TB", 10**12),
    }
)
_NUMBER_AND_UNIT: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*")


@dataclass(frozen=True, slots=True)
class Parser(Generic[T]):
    """Reads a value from text, and shows it as text.

    `expected` completes the sentence "expected …". `read` takes a string (environment, `--set`, TOML)
    or a TOML value, and raises ValueError for anything else.
    """

    expected: str
    read: Callable[[object], T]
    show: Callable[[T], str]


def duration_ms(minimum_ms: int = 0) -> Parser[int]:
    """Accept a duration with a unit ("100 s", "200 ms", "2 h") as whole milliseconds.

    Raises ValueError from `read` for a bare number, a fraction of a millisecond, or less than `minimum_ms`.
    """

    def read(raw: object) -> int:
        amount, unit = _split_unit(raw)
        known = _DURATION_WORDS.get(unit.lower(), unit.lower())
        return (
            _whole(amount * _DURATION_UNITS_MS[known], minimum_ms)
            if known in _DURATION_UNITS_MS
            else _refuse()
        )

    least = f", at least {show_duration_ms(minimum_ms)}" if minimum_ms else ""
    return Parser(
        f'a duration with a unit such as "200 ms", "10 s", "5 min" or "2 h"{least}', read, show_duration_ms
    )


def duration_us() -> Parser[int]:
    """Accept a duration with a unit ("100 us", "1 ms", "2 h") as whole microseconds.

    Raises ValueError from `read` for a bare number and for a fraction of a microsecond.
    """

    def read(raw: object) -> int:
        amount, unit = _split_unit(raw)
        known = _DURATION_WORDS.get(unit.lower(), unit.lower())
        return _whole(amount * _DURATION_UNITS_US[known], 0) if known in _DURATION_UNITS_US else _refuse()

    expected = 'a duration with a unit such as "100 us", "1 ms" or "10 s"'
    return Parser(expected, read, lambda value: _show_in(value, _DURATION_UNITS_US, "us"))


def size_bytes(minimum_bytes: int = 0) -> Parser[int]:
    """Accept a size with a unit ("10 MiB", "512 kB") as whole bytes; KiB is 1024 bytes and kB is 1000.

    Raises ValueError from `read` for a bare number, a fraction of a byte, or less than `minimum_bytes`.
    """

    def read(raw: object) -> int:
        amount, unit = _split_unit(raw)
        known = _SIZE_WORDS.get(unit.lower())
        return _whole(amount * known[1], minimum_bytes) if known is not None else _refuse()

    least = f", at least {show_size_bytes(minimum_bytes)}" if minimum_bytes else ""
    return Parser(f'a size with a unit such as "64 KiB", "10 MiB" or "2 GiB"{least}', read, show_size_bytes)


def integer(minimum: int | None = None, maximum: int | None = None) -> Parser[int]:
    """Accept a whole number between `minimum` and `maximum`, both included; `1_000` is allowed."""

    def read(raw: object) -> int:
        if isinstance(raw, bool) or not isinstance(raw, int | str):
            _refuse()
        value = int(raw)
        if (minimum is not None and value < minimum) or (maximum is not None and value > maximum):
            _refuse()
        return value

    return Parser(f"a whole number{_bounds(minimum, maximum)}", read, str)


def number(minimum: float | None = None, maximum: float | None = None) -> Parser[float]:
    """Accept a finite number between `minimum` and `maximum`, both included."""

    def read(raw: object) -> float:
        if isinstance(raw, bool) or not isinstance(raw, int | float | str):
            _refuse()
        value = float(raw)
        if not math.isfinite(value):
            _refuse()
        if (minimum is not None and value < minimum) or (maximum is not None and value > maximum):
            _refuse()
        return value

    return Parser(f"a number{_bounds(minimum, maximum)}", read, repr)


def boolean() -> Parser[bool]:
    """Accept true or false; in text also yes, no, on, off, 1, 0."""
    words = {
        "true": True,
        "yes": True,
        "on": True,
        "1": True,
        "false": False,
        "no": False,
        "off": False,
        "0": False,
    }

    def read(raw: object) -> bool:
        if isinstance(raw, bool):
            return raw
        if isinstance(raw, str) and raw.strip().lower() in words:
            return words[raw.strip().lower()]
        return _refuse()

    return Parser("true or false", read, lambda value: "true" if value else "false")


def text(*, empty_allowed: bool = False) -> Parser[str]:
    """Accept any text as it is, not empty unless allowed."""

    def read(raw: object) -> str:
        return raw if isinstance(raw, str) and (empty_allowed or raw.strip()) else _refuse()

    return Parser("a text" if empty_allowed else "a text that is not empty", read, str)


def local_path() -> Parser[str]:
    """Accept the path of a file or directory in this machine's file system; a URL is refused."""

    def read(raw: object) -> str:
        return raw if isinstance(raw, str) and raw.strip() and "://" not in raw else _refuse()

    return Parser("a path on this machine, mounted file systems included", read, str)


STORES: Final = ("s3://", "s3a://", "gs://", "abfs://", "abfss://", "az://", "hdfs://")
"""What a place in an object store, or in HDFS, begins with."""


def path_or_store() -> Parser[str]:
    """Accept the path of a directory of this machine, or a place in an object store or in HDFS."""

    def read(raw: object) -> str:
        is_text = isinstance(raw, str) and bool(raw.strip())
        return str(raw) if is_text and ("://" not in str(raw) or str(raw).startswith(STORES)) else _refuse()

    return Parser(
        "a path on this machine, or a place like s3://bucket/name, gs://bucket/name, "
        "abfs://container/name or hdfs://host:port/name",
        read,
        str,
    )


def choice(*allowed: str) -> Parser[str]:
    """Accept one of the given words."""

    def read(raw: object) -> str:
        return raw if isinstance(raw, str) and raw in allowed else _refuse()

    return Parser("one of " + ", ".join(f'"{word}"' for word in allowed), read, str)


def table() -> Parser[Mapping[str, str]]:
    """Accept a TOML table, or a JSON object as text; keyed by name, every value shown as text.

    Booleans become "true" and "false", as Spark writes them. Nested TOML tables become dotted names, so that
    `[spark.conf]` may hold `spark.sql.ansi.enabled = true` with or without quotes around the name.
    """

    def read(raw: object) -> Mapping[str, str]:
        if isinstance(raw, str):
            raw = json.loads(raw)
        if not isinstance(raw, Mapping):
            _refuse()
        return MappingProxyType(dict(_entries(raw, "")))

    def show(value: Mapping[str, str]) -> str:
        return json.dumps(dict(value), sort_keys=True)

    return Parser("a table of texts, numbers and booleans (in the environment a JSON object)", read, show)


def show_duration_ms(value_ms: int) -> str:
    """Show milliseconds in the largest unit that keeps them whole: 90000 is "90 s"."""
    return _show_in(value_ms, _DURATION_UNITS_MS, "ms")


def show_size_bytes(value_bytes: int) -> str:
    """Show bytes in the largest binary unit that keeps them whole: 10485760 is "10 MiB"."""
    return _show_in(value_bytes, _SIZE_UNITS_BYTES, "B")


def _show_in(value: int, units: Mapping[str, int], smallest: str) -> str:
    fitting = [unit for unit, factor in units.items() if value and value % factor == 0]
    unit = fitting[-1] if fitting else smallest
    return f"{value // units[unit]} {unit}"


def _split_unit(raw: object) -> tuple[Decimal, str]:
    match = _NUMBER_AND_UNIT.fullmatch(raw) if isinstance(raw, str) else None
    return (Decimal(match[1]), match[2]) if match is not None else _refuse()


def _whole(value: Decimal, minimum: int) -> int:
    if value != value.to_integral_value() or value < minimum:
        _refuse()
    return int(value)


def _bounds(minimum: float | None, maximum: float | None) -> str:
    if minimum is not None and maximum is not None:
        return f" from {minimum} to {maximum}"
    if minimum is not None:
        return f", at least {minimum}"
    return "" if maximum is None else f", at most {maximum}"


def _entries(raw: Mapping[object, object], prefix: str) -> list[tuple[str, str]]:
    entries: list[tuple[str, str]] = []
    for name, value in raw.items():
        dotted = f"{prefix}{name}"
        if isinstance(value, Mapping):
            entries.extend(_entries(value, f"{dotted}."))
        elif isinstance(value, bool):
            entries.append((dotted, "true" if value else "false"))
        elif isinstance(value, str | int | float):
            entries.append((dotted, str(value)))
        else:
            _refuse()
    return entries


def _refuse() -> NoReturn:
    raise ValueError

"""Durations as users write them in a graph: "10 s", "1 h"."""

from __future__ import annotations

from typing import Final

from drivetrain.api.location import caller
from drivetrain.config.units import Parser, duration_ms, duration_us, show_duration_ms
from drivetrain.errors import GraphError

DEFAULT_TIMEOUT: Final = "5 min"
"""How long Python waits for an application by default."""

_LONGEST_DAYS: Final = 3_652_500
"""10,000 years: a time that far before or after any timestamp fits in 64 bits, even in microseconds."""
_MILLISECONDS: Final = duration_ms()
_MICROSECONDS: Final = duration_us()


def milliseconds(text: str, what: str) -> int:
    """Milliseconds of a duration with a unit, at most 10,000 years.

    Raises `GraphError`, which names the argument `what`, if `text` is not such a duration.

    >>> milliseconds("1.5 s", "within")
    1500
    """
    return _read(_MILLISECONDS, text, what)


def microseconds(text: str, what: str) -> int:
    """Microseconds of a duration with a unit, at most 10,000 years.

    Raises `GraphError`, which names the argument `what`, if `text` is not such a duration.

    >>> microseconds("100 us", "every")
    100
    """
    return _read(_MICROSECONDS, text, what)


def _read(parser: Parser[int], text: str, what: str) -> int:
    try:
        value = parser.read(text)
    except ValueError as error:
        raise GraphError(
            f"cannot read {what}",
            where=str(caller()),
            expected=parser.expected,
            got=repr(text),
            remedy="write a number and its unit",
        ) from error
    if value > parser.read(f"{_LONGEST_DAYS} d"):
        raise GraphError(
            f"{what} is too long",
            where=str(caller()),
            expected=f"at most {_LONGEST_DAYS} d (10,000 years)",
            got=repr(text),
            remedy="write a shorter one",
        )
    return value


def duration_text(ms: int) -> str:
    """A duration in its largest whole unit."""
    return show_duration_ms(ms)

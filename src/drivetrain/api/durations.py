"""Durations as users write them in a graph: "10 s", "1 h"."""

from __future__ import annotations

from drivetrain.api.location import caller
from drivetrain.config.units import duration_ms, show_duration_ms
from drivetrain.errors import GraphError

_PARSER = duration_ms()


def milliseconds(text: str, what: str) -> int:
    """Milliseconds of a duration with a unit; raises `GraphError` naming `what` if it is not one."""
    try:
        return _PARSER.read(text)
    except ValueError as error:
        raise GraphError(
            f"cannot read {what}",
            where=str(caller()),
            expected=_PARSER.expected,
            got=repr(text),
            remedy="write a number and its unit",
        ) from error


def duration_text(ms: int) -> str:
    """A duration in its largest whole unit."""
    return show_duration_ms(ms)

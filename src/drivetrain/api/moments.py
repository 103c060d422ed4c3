"""Moments as users write them: "2013-03-01T00:00", a datetime, milliseconds since the epoch."""

from __future__ import annotations

import datetime as dt

from drivetrain.errors import UserError

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_EXPECTED = "ISO 8601, such as 2013-03-01T00:00 (UTC unless it says otherwise), or milliseconds since 1970"


def moment_ms(moment: str | int | dt.datetime, what: str) -> int:
    """Milliseconds since the epoch of a moment; raises `UserError`, which names the argument `what`.

    Without a time zone it is UTC; parts of a millisecond are cut off.

    >>> moment_ms("1970-01-01T00:01", "from")
    60000
    """
    if isinstance(moment, str):
        moment = _read(moment, what)
    if isinstance(moment, int):
        return moment
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.UTC)
    return (moment - _EPOCH) // dt.timedelta(milliseconds=1)


def _read(text: str, what: str) -> dt.datetime | int:
    try:
        return dt.datetime.fromisoformat(text)
    except ValueError as error:
        if text.isdecimal():
            return int(text)
        raise UserError("not a time", where=what, expected=_EXPECTED, got=repr(text)) from error


def moment_text(ms: int) -> str:
    """A moment as `moment_ms` reads it, in UTC.

    >>> moment_text(60_000)
    '1970-01-01T00:01:00+00:00'
    """
    moment = _EPOCH + dt.timedelta(milliseconds=ms)
    return moment.isoformat(timespec="seconds" if ms % 1000 == 0 else "milliseconds")

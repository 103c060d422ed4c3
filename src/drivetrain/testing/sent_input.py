"""One input of a test run: checks what a test sends, and keeps it where the application reads it.

Problem: a test writes rows by hand. A wrong name or type must be an error at the line that sends it, not one
of a batch, and timestamps should be written as people write them.

Design: rows become Arrow columns of the source's schema at once (`spark.channel.row_batches`); text is
accepted for timestamps and dates. Valid rows become one segment and one entry of a channel, which the source
`SentMessages` reads.

Invariants:

1. Either all rows of a call are sent, or none.
2. What was sent is read in the order of the calls, and again after a crash.

Called by `scripted_run`.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from drivetrain.api.moments import moment_ms
from drivetrain.config.nearest import did_you_mean
from drivetrain.connectors.schema import to_arrow, to_struct
from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS, NO_CLOCK_MS
from drivetrain.errors import InputError
from drivetrain.runtime.channel.segments import write_segment
from drivetrain.runtime.channel.store import ChannelStore
from drivetrain.spark.channel.row_batches import RowBatches

ARRIVED: Final = "__arrived"
"""The column of a source whose messages are stamped when they arrive."""

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_DAY_MS: Final = 86_400_000
_EXPECTED: Final = {
    "timestamp": "ISO 8601, such as 2026-01-01T00:00 (UTC unless it has a zone), or a datetime",
    "date": "ISO 8601, such as 2026-01-01, or a date",
}


class SentInput:
    """What is sent to the source `id`, whose columns are `ddl`; needs a Spark session for reading those."""

    def __init__(self, id: str, ddl: str, uri: str) -> None:
        self.id: Final = id
        self._schema: Final = to_arrow(to_struct(ddl, id))
        self._store: Final = ChannelStore(uri, fragment="test")
        self._now_ms = 0
        self._batches: Final = RowBatches(self._schema, lambda _: self._now_ms, where=id)
        self._sent = 0

    def converted(self, rows: Iterable[Any], now_ms: int) -> Any:
        """The rows as an Arrow batch, None of none; raises `InputError` naming the row that does not fit.

        A row is a mapping, a dataclass instance, a sequence of values, or a bare value of a single column.
        """
        self._now_ms = now_ms
        if isinstance(rows, str | bytes | Mapping):
            raise InputError(
                "a test sends a list of rows", where=self.id, got=f"a single {type(rows).__name__}"
            )
        shaped = [self._shaped(row, number) for number, row in enumerate(rows, 1)]
        batch, error = self._batches.converted(shaped, 0)
        if error is not None:
            raise error
        return batch

    def append(self, batch: Any) -> None:
        """Send a batch."""
        self._sent += 1
        segment = write_segment(self._store.files, f"sent-{self._sent}", [batch])
        self._store.append(self._sent, [segment], NO_CLOCK_MS)

    def end(self) -> None:
        """Announce that nothing follows."""
        self._store.append_clock(FINAL_CLOCK_MS)

    def _shaped(self, row: Any, number: int) -> Sequence[Any]:
        """The values of a row, in the order of the columns."""
        names = [name for name in self._schema.names if name != ARRIVED]
        if dataclasses.is_dataclass(row) and not isinstance(row, type):
            row = {field.name: getattr(row, field.name) for field in dataclasses.fields(row)}
        if isinstance(row, Mapping):
            for name in row:
                if name not in names:
                    raise InputError(
                        f"row {number} has a column {name!r}, which the source does not have",
                        where=self.id,
                        expected=", ".join(names),
                        got=repr(row),
                        remedy=did_you_mean(str(name), names, otherwise="correct the name"),
                    )
            values = [row.get(name) for name in names]
        elif isinstance(row, Sequence) and not isinstance(row, str | bytes):
            values = list(row)
        else:
            values = [row]
        if ARRIVED in self._schema.names:
            values.append(_EPOCH + dt.timedelta(milliseconds=self._now_ms))
        if len(values) != len(self._schema.names):
            return values  # `RowBatches` names what was expected
        return [
            _time(value, field.type, f"{self.id}, row {number}, {field.name}")
            for value, field in zip(values, self._schema, strict=True)
        ]


def _time(value: Any, kind: Any, where: str) -> Any:
    """A timestamp or a date that was written as text; everything else as it is."""
    if pa.types.is_date(kind) and isinstance(value, str):
        return _EPOCH.date() + dt.timedelta(days=moment_ms(_read(value, where, "date"), where) // _DAY_MS)
    if not pa.types.is_timestamp(kind):
        return value
    if isinstance(value, str):
        value = _read(value, where, "timestamp")
    if isinstance(value, dt.datetime) and value.tzinfo is None and kind.tz is not None:
        return value.replace(tzinfo=dt.UTC)
    return value


def _read(text: str, where: str, kind: str) -> dt.datetime:
    try:
        return dt.datetime.fromisoformat(text)
    except ValueError as error:
        raise InputError(
            f"not a {kind}",
            where=where,
            expected=_EXPECTED[kind],
            got=repr(text),
        ) from error

"""The clock stream: a Spark source whose offset is a clock and whose rows are punctuations.

Problem: rows of a plain source (files, Kafka) cannot carry the application's clock. Spark's own watermark
follows only the rows of one query: it never ends a stream and never moves while a source is idle.

Design: the engine publishes the clock in a small file, replaced atomically. This source reads it on Spark's
driver, in the process that plans offsets, so no Python task is needed. When the clock has moved, the source
delivers one row with the new clock. Spark keeps the offset in its checkpoint, so a replayed batch sees the
same clock as before. The first row of a restarted query repeats the clock if it has not moved: see
`drivetrain.spark.channel.source`, whose offsets have a `life` for the same reason.

Invariants:

1. The clock that Spark has seen never moves back, neither with the file nor through a restart.
2. A change of the clock is one row, whatever the number of changes in between.
3. A published clock survives a power cut.

Called by `clocked` (`union_clock`); the engine publishes the clock.

Source: Apache Gearpump's clock service.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader

from drivetrain.core.clock.time_bounds import NO_CLOCK_MS
from drivetrain.durable import write_whole, writing
from drivetrain.errors import InternalError
from drivetrain.spark.channel.watermark import watermark_of
from drivetrain.spark.connector.planner_process import end_with_connection

if TYPE_CHECKING:
    from collections.abc import Iterator


def publish_clock(path: str | os.PathLike[str], clock_ms: int) -> int:
    """Publish a clock for the sources that read `path`; returns the clock that is published now.

    A clock below the published one is ignored: a clock never moves back. One publisher per path.
    """
    path = os.fspath(path)
    published = read_clock(path)
    if published is not None and clock_ms <= published:
        return published
    with writing("the clock of a fragment", path):
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        write_whole(Path(path), str(clock_ms).encode())
    return clock_ms


def read_clock(path: str | os.PathLike[str]) -> int | None:
    """The clock published at `path`, or None if there is none yet."""
    try:
        with open(path) as file:
            text = file.read()
    except FileNotFoundError:
        return None
    try:
        return int(text)
    except ValueError as error:
        raise InternalError(
            f"the published clock is not a number: {text!r}", where=os.fspath(path)
        ) from error


class ClockSource(DataSource):
    """`spark.readStream.format("drivetrain_clock").option("path", …)`: one row `__wm` per change."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "drivetrain_clock"

    def schema(self) -> str:
        """One column: Spark's watermark (ms) for the clock."""
        return "__wm bigint"

    def simpleStreamReader(self, schema: Any) -> ClockReader:  # noqa: N802 - the name is Spark's
        """The reader, run on Spark's driver."""
        end_with_connection()
        return ClockReader(self.options["path"])


class ClockReader(SimpleDataSourceStreamReader):
    """Reads the published clock; the offset is `{"clock": ms, "life": k}`."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._has_repeated = False

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - the name is Spark's
        """Where a new query starts: before any clock."""
        return {"clock": NO_CLOCK_MS, "life": 0}

    def read(self, start: dict[str, int]) -> tuple[Iterator[tuple[int]], dict[str, int]]:
        """The clock, if it is above `start`, or if this is a restart and `start` had one."""
        published_ms = read_clock(self._path)
        has_repeated, self._has_repeated = self._has_repeated, True
        if published_ms is not None and published_ms > start["clock"]:
            return iter([_row(published_ms)]), {**start, "clock": published_ms}
        if has_repeated or start["clock"] == NO_CLOCK_MS:
            return iter([]), start
        return iter([_row(start["clock"])]), {**start, "life": start["life"] + 1}

    def readBetweenOffsets(  # noqa: N802 - the name is Spark's
        self, start: dict[str, int], end: dict[str, int]
    ) -> Iterator[tuple[int]]:
        """The same row again, for a batch that is replayed."""
        return iter([] if start == end else [_row(end["clock"])])


def _row(clock_ms: int) -> tuple[int]:
    return (watermark_of(clock_ms),)

"""An application whose branches mark each message with their version; it is fed out of order.

Some of its messages have no event time yet where its branches begin; others are results of windows.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

from shop import rows

from drivetrain import Application, agg, sinks, sources, windows

START_MS = 1_704_067_200_000
"""2024-01-01."""
APART_MS = 600_000
HOUR_MS = 3_600_000
DISORDER = "3 h"
APART = 15
"""How many messages may arrive in any order: those of two and a half hours."""
PROGRAM = """
import sys
sys.path.insert(0, {folder!r})
from timed import timed
app = timed({directory!r}, {version}, more={more}, less={less})
"""


@dataclass
class Mark:
    """A message, and the version that marked it: n * 100 + version."""

    mark: int


def timed(directory: Path | str, version: int, *, more: bool = False, less: bool = False) -> Application:
    """Messages that are marked, and counted by the hour; `more` adds a sink, `less` leaves one out."""
    place = Path(directory)
    app = Application("timed")
    read = app.read(sources.json(place / "in", schema="at timestamp, n bigint", watch=True), name="read")
    read.sink(sinks.json(place / "raw"), name="raw_out")

    def is_real(row: Any) -> bool:
        return bool(row.n >= 0)

    def marked(row: Any) -> Mark:
        return Mark(row.n * 100 + version)

    real = read.filter(is_real, name="real").event_time("at", max_disorder=DISORDER, name="at_time")
    real.map(marked, name="mark").sink(sinks.json(place / "marked"), name="marked_out")
    if more:
        real.filter("n % 2 = 0", name="even").sink(sinks.json(place / "even"), name="even_out")
    if not less:
        real.filter("n % 3 = 0", name="third").sink(sinks.json(place / "third"), name="third_out")
    hourly = real.window(windows.tumbling("1 h")).aggregate(n=agg.count(), step="hourly")
    shown = hourly.select(n="n", start="unix_millis(window_start)", version=f"n * 0 + {version}")
    shown.sink(sinks.json(place / "hourly"), name="hourly_out")
    return app


def program(directory: Path, version: int, *, more: bool = False, less: bool = False) -> Path:
    """The application as a file for the command line."""
    file = directory / f"timed{version}.py"
    told = {"folder": str(Path(__file__).parent), "directory": str(directory), "version": version}
    file.write_text(PROGRAM.format(**told, more=more, less=less))
    return file


def time_of_ms(n: int) -> int:
    """The event time of a message."""
    return START_MS + n * APART_MS


class Disordered:
    """Puts messages into the directory that the application reads, three in a file, in its own order."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.directory = directory / "in"
        self.directory.mkdir()
        self.sent: list[int] = []
        self._random = Random(seed)
        self._waiting: list[int] = []
        self._next = 0

    @property
    def latest_ms(self) -> int:
        """The latest time that a message of the next file may have."""
        return time_of_ms(self._next + APART - len(self._waiting) - 1)

    def put(self, files: int) -> None:
        for _ in range(files):
            while len(self._waiting) < APART:
                self._waiting.append(self._next)
                self._next += 1
            chosen = [self._drawn() for _ in range(3)]
            aside = self.directory / f".{len(self.sent):06d}.json"
            lines = [
                {"at": datetime.fromtimestamp(time_of_ms(n) / 1000, UTC).isoformat(), "n": n} for n in chosen
            ]
            aside.write_text("".join(json.dumps(line) + "\n" for line in lines))
            os.replace(aside, self.directory / f"{len(self.sent):06d}.json")
            self.sent += chosen

    def _drawn(self) -> int:
        """One of the waiting messages; the oldest if the others would be too far ahead of it."""
        oldest = min(self._waiting)
        near = [n for n in self._waiting if n < oldest + APART]
        chosen = self._random.choice(near)
        self._waiting.remove(chosen)
        return chosen


def check(directory: Path, feed: Disordered, at_ms: int, *, more: bool, less: bool) -> None:
    """The sinks show the results of each version for the messages of its span, and nothing else."""
    of = {n: 1 if time_of_ms(n) < at_ms else 2 for n in feed.sent}
    marks = [row["mark"] for row in rows(directory / "marked")]
    assert sorted(marks) == sorted(n * 100 + version for n, version in of.items())
    assert sorted(row["n"] for row in rows(directory / "raw")) == sorted(of)
    even = [n for n, version in of.items() if n % 2 == 0 and version == 2] if more else []
    assert sorted(row["n"] for row in rows(directory / "even")) == sorted(even)
    third = [n for n, version in of.items() if n % 3 == 0 and (version == 1 or not less)]
    assert sorted(row["n"] for row in rows(directory / "third")) == sorted(third)
    for row in rows(directory / "hourly"):
        assert row["version"] == (1 if row["start"] + HOUR_MS <= at_ms else 2), row
        assert row["n"] == HOUR_MS // APART_MS, "a window has lost messages"
    starts = [row["start"] for row in rows(directory / "hourly")]
    assert len(starts) == len(set(starts)), "a window is shown twice"

"""An application with two stateful fragments in a row, and a keyed Task beside them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from shop import SCHEMA

from drivetrain import Application, KeyedTask, ValueState, agg, sinks, sources, windows

KEYS = 5
PROGRAM = """
import sys
sys.path.insert(0, {folder!r})
from chained import chained
app = chained({directory!r})
"""


class Total(KeyedTask[Any, tuple[int, int]]):
    """The sum of the messages of a key so far."""

    key = "k"
    output = "k bigint, total bigint"
    total = ValueState(int)

    def on_next(self, message: Any) -> Iterator[tuple[int, int]]:
        total = (self.total.get() or 0) + message.n
        self.total.set(total)
        yield message.k, total


def chained(directory: Path | str) -> Application:
    """Messages are counted by key and hour, the counts by half a day after a channel; and summed by key."""
    place = Path(directory)
    app = Application("chained")
    read = app.read(sources.json(place / "in", schema=SCHEMA, event_time="at", watch=True), name="read")
    keyed = read.with_columns(k=f"n % {KEYS}", step="keyed")
    keyed.process(Total, name="totals").sink(sinks.json(place / "totals"), name="totals_out")
    hourly = keyed.group_by("k").window(windows.tumbling("1 h")).aggregate(n=agg.count(), step="hourly")
    half = hourly.window(windows.tumbling("12 h")).aggregate(n=agg.sum("n"), step="halves")
    half.select("window_start", "n").sink(sinks.json(place / "halves"), name="halves_out")
    return app


def program(directory: Path) -> Path:
    """The application as a file for the command line."""
    file = directory / "chained_here.py"
    file.write_text(PROGRAM.format(folder=str(Path(__file__).parent), directory=str(directory)))
    return file

"""An application with a function before its state: the trunk marks each message with its version."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shop import SCHEMA, rows

from drivetrain import Application, agg, col, sinks, sources, windows

OF_A_WINDOW = 4
"""Messages in two hours."""
DROPPED = 3
"""A version with a filter drops one message in so many."""
PROGRAM = """
import sys
sys.path.insert(0, {folder!r})
from counted import counted
app = counted({directory!r}, {version})
"""


@dataclass
class Marked:
    """A message, and the version that marked it."""

    n: int
    version: int


@dataclass
class Named:
    """The same, with the version as text."""

    n: int
    version: str


def counted(
    directory: Path | str, version: int, *, clean: bool = False, fails: bool = False, named: bool = False
) -> Application:
    """Messages, marked by a function and then counted by two hours, in one query.

    With `clean` another processor before the count drops some of them; with `named` marks are texts.
    """
    place = Path(directory)
    app = Application("counted")
    stream = app.read(sources.json(place / "in", schema=SCHEMA, event_time="at", watch=True), name="read")
    if clean:
        stream = stream.filter(col("n") % DROPPED != 0, name="clean")

    def mark(row: Any) -> Marked:
        if fails and row.n % 3 == 1:  # one in every file: the first batch shows it
            raise ValueError(f"message {row.n} cannot be marked")
        return Marked(row.n, version)

    def name(row: Any) -> Named:
        return Named(row.n, str(version))

    marked: Any = stream.map(name, name="mark") if named else stream.map(mark, name="mark")
    pairs = marked.window(windows.tumbling("2 h")).aggregate(
        n=agg.count(), last=agg.max("n"), newest=agg.max("version"), step="pairs"
    )
    pairs.sink(sinks.json(place / "pairs"), name="pairs_out")
    return app


def program(directory: Path, version: int) -> Path:
    """The application as a file for the command line."""
    file = directory / f"counted{version}.py"
    told = {"folder": str(Path(__file__).parent), "directory": str(directory), "version": version}
    file.write_text(PROGRAM.format(**told))
    return file


def shown(directory: Path) -> dict[int, tuple[int, int]]:
    """The count of each window, and the newest version that contributed to it; each window is shown once."""
    found = {row["last"] // OF_A_WINDOW: (row["n"], row["newest"]) for row in rows(directory / "pairs")}
    assert len(found) == len(rows(directory / "pairs")), "a window is shown twice"
    return found


def modelled(until: dict[int, int], clean: set[int], messages: int) -> dict[int, tuple[int, int]]:
    """The results of the windows that have ended, if each version took the messages below `until[version]`.

    The versions of `clean` drop some.
    """
    taken: dict[int, int] = {}
    for version in sorted(until, reverse=True):
        taken |= dict.fromkeys(range(until[version]), version)
    kept = {n: v for n, v in taken.items() if v not in clean or n % DROPPED}
    counts = Counter(n // OF_A_WINDOW for n in kept)
    last = (messages - 1) // OF_A_WINDOW
    newest = {w: max(v for n, v in kept.items() if n // OF_A_WINDOW == w) for w in counts}
    return {w: (n, newest[w]) for w, n in counts.items() if w < last}

"""An application whose branches mark each message with their version, and its input."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drivetrain import Application, agg, sinks, sources, windows

SCHEMA = "at timestamp, n bigint"
WAIT_S = 300.0
PROGRAM = """
import sys
sys.path.insert(0, {folder!r})
from shop import shop
app = shop({directory!r}, {version}, pairs={pairs})
"""


@dataclass
class Mark:
    """A message, and the version that marked it: n * 100 + version."""

    mark: int


def shop(
    directory: Path | str,
    version: int,
    *,
    fails: bool = False,
    more: bool = False,
    pairs: bool = False,
    fours: bool = False,
    size: int = 0,
) -> Application:
    """Messages that are marked after a source, and counted by the hour after a channel.

    With `pairs` they are also counted by two hours, in a fragment of its own, and with `fours` these counts
    are added by four hours, in another one. The function that marks them carries `size` bytes.
    """
    carried = bytes(size)
    place = Path(directory)
    app = Application("shop")
    read = app.read(sources.json(place / "in", schema=SCHEMA, event_time="at", watch=True), name="read")

    def marked(row: Any) -> Mark:
        if fails and row.n % 3 == 1:  # one in every file: the first batch shows it
            raise ValueError(f"message {row.n} cannot be marked")
        assert len(carried) == size
        return Mark(row.n * 100 + version)

    read.map(marked, name="mark").sink(sinks.json(place / "marked"), name="marked_out")
    if more:
        read.filter("n % 2 = 0", name="even").sink(sinks.csv(place / "even"), name="even_out")
    if pairs:
        two = read.window(windows.tumbling("2 h")).aggregate(n=agg.count(), last=agg.max("n"), step="pairs")
        two.sink(sinks.json(place / "pairs"), name="pairs_out")
        if fours:
            four = two.window(windows.tumbling("4 h"))
            added = four.aggregate(n=agg.sum("n"), last=agg.max("last"), step="fours")
            added.sink(sinks.json(place / "fours"), name="fours_out")
    hourly = read.window(windows.tumbling("1 h")).aggregate(n=agg.count(), step="hourly")
    hourly.filter(f"n > -{version}", name="shown").sink(sinks.json(place / "hourly"), name="hourly_out")
    return app


def program(directory: Path, version: int, *, pairs: bool = False) -> Path:
    """The application as a file for the command line."""
    file = directory / f"shop{version}.py"
    told: dict[str, object] = {
        "folder": str(Path(__file__).parent),
        "directory": str(directory),
        "version": version,
    }
    told["pairs"] = pairs
    file.write_text(PROGRAM.format(**told))
    return file


class Feed:
    """Puts messages 0, 1, 2, … into the directory that the application reads, three in a file."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "in"
        self.directory.mkdir()
        self.count = 0

    def put(self, messages: int) -> None:
        for _ in range(0, messages, 3):
            rows = [self.message(n) for n in range(self.count, self.count + 3)]
            aside = self.directory / f".{self.count:06d}.json"
            aside.write_text("".join(json.dumps(row) + "\n" for row in rows))
            os.replace(aside, self.directory / f"{self.count:06d}.json")
            self.count += 3

    @staticmethod
    def message(n: int) -> dict[str, object]:
        return {"at": f"2024-01-{1 + n // 48:02d}T{n // 2 % 24:02d}:00:00Z", "n": n}


class Stream:
    """Feeds without a pause, a file at a time, until it is stopped."""

    def __init__(self, feed: Feed, pause_s: float = 0.3) -> None:
        self.feed = feed
        self.pause_s = pause_s
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self) -> None:
        while not self.is_over.wait(self.pause_s) and self.feed.count < 1400:
            self.feed.put(3)

    def __enter__(self) -> Stream:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.is_over.set()
        self.thread.join()


def rows(directory: Path) -> list[dict[str, int]]:
    """The rows of a JSON sink, in no order."""
    files = sorted(directory.glob("*.json")) if directory.is_dir() else []
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def marks(directory: Path) -> dict[int, int]:
    """The version that marked each message; each message is shown once."""
    found = [row["mark"] for row in rows(directory / "marked")]
    assert len({mark // 100 for mark in found}) == len(found), "a message is shown twice"
    return {mark // 100: mark % 100 for mark in sorted(found)}


def wait_until(holds: Callable[[], object], goes_on: Callable[[], bool] = lambda: True) -> None:
    """Wait until `holds()` is true; fails after five minutes, or when `goes_on()` is false."""
    waiting, waited = threading.Event(), 0.0
    while not holds():
        assert goes_on(), "the application has ended"
        assert waited < WAIT_S, "it does not come to hold"
        waiting.wait(0.1)
        waited += 0.1

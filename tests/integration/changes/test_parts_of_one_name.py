"""A part of a graph that leaves and comes again under its name, and savepoints of both, on real Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import Harness
from shop import SCHEMA, Feed, rows, wait_until

from drivetrain import Application, KeyedTask, ValueState, sinks, sources, start

TIMEOUT = "5 min"


class Numbered(KeyedTask):
    """Numbers the messages that it has had."""

    key = "k"
    output = "n bigint, nth bigint"
    count = ValueState(int)

    def on_next(self, row: Any) -> Iterator[tuple[int, int]]:
        """Emit the number of the message, and how many there were."""
        self.count.set((self.count.get() or 0) + 1)
        yield row.n, self.count.get() or 0


def numbering(place: Path, version: int, *, has_part: bool) -> Application:
    """Messages that a part of the graph numbers, if it is there."""
    app = Application("numbering")
    read = app.read(sources.json(place / "in", schema=SCHEMA, watch=True), name="read")
    read.filter(f"n > -{version}", name="all").sink(sinks.json(place / "all"), name="all_out")
    if has_part:
        keyed = read.with_columns(k="n - n", step="keyed")
        keyed.cut().process(Numbered, name="numbered").sink(sinks.json(place / "numbers"), name="numbers_out")
    return app


def numbers(place: Path) -> dict[int, int]:
    """What each message was numbered with; each is shown once."""
    found = [(row["n"], row["nth"]) for row in rows(place / "numbers")]
    assert len(dict(found)) == len(found), "a message is shown twice"
    return dict(sorted(found))


@pytest.mark.nightly("test_snapshots and test_restoring have each step")
def test_a_savepoint_has_the_state_of_the_part_that_is_there_and_not_of_a_former_one(drive: Harness) -> None:
    place = drive.directory
    feed = Feed(place)

    def fed(files: int) -> None:
        for _ in range(files):  # each in a batch of its own, for states of many versions
            feed.put(3)
            wait_until(lambda: len(rows(place / "all")) == feed.count, lambda: running.is_running)

    with start(numbering(place, 1, has_part=True), drive.config()) as running:
        fed(8)
        wait_until(lambda: len(numbers(place)) == 24, lambda: running.is_running)
        running.savepoint(place / "first")
        running.update(numbering(place, 2, has_part=False), TIMEOUT)
        fed(1)
        state = next((place / "state").glob("numbering-*"))
        wait_until(lambda: not (state / "fragments" / "numbered").exists(), lambda: running.is_running)
        running.update(numbering(place, 3, has_part=True), TIMEOUT)
        fed(4)
        wait_until(lambda: len(numbers(place)) == 36, lambda: running.is_running)
        running.savepoint(place / "second")
        running.stop()
        running.wait(TIMEOUT)
    assert numbers(place) == dict(enumerate([*range(1, 25)])) | {24 + 3 + n: 1 + n for n in range(12)}

    again = drive.config(state__dir=str(place / "elsewhere"))
    with start(numbering(place, 3, has_part=True), again, from_savepoint=place / "second") as running:
        fed(1)
        wait_until(lambda: len(numbers(place)) == 39, lambda: running.is_running)
        running.stop()
        running.wait(TIMEOUT)
    assert [numbers(place)[n] for n in range(39, 42)] == [13, 14, 15]

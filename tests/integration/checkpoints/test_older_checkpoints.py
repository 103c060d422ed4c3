"""Spark's checkpoint of a fragment is older than its outputs: from a backup, or after a power failure."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import deltalake
import pytest
from batch_stops import StopAfterBatches
from harness import Harness

from drivetrain import Application, agg, sinks, sources
from drivetrain.errors import InputError
from drivetrain.spark.batch import micro_batch_query

ROWS = 400
SMALL = {"run__max_batch_rows": "40"}
OFF = {"checkpoint__mode": "off"}
"""With checkpoints, a fragment that is older than the newest one goes back to that."""


def summed(drive: Harness, *, has_channel: bool) -> Application:
    """A source with a sink; with a channel, also a fragment with a state, and a sink there."""
    app = Application("summed")
    made = app.read(sources.generate(rows=ROWS), name="made")
    drive.sink(made, "each")
    if has_channel:
        drive.sink(made.group_by("id").aggregate(step="sums", n=agg.count()), "sums")
    return app


@pytest.mark.parametrize("has_channel", [True, False])
def test_an_older_checkpoint_is_an_error_and_no_message_is_missing(drive: Harness, has_channel: bool) -> None:
    def app() -> Application:
        return summed(drive, has_channel=has_channel)

    state = drive.directory / "state"
    drive.run(app(), listener=StopAfterBatches(state, "made", 5), **SMALL)
    [offsets] = state.glob("*/fragments/made/checkpoint/offsets")
    newest = sorted(int(path.name) for path in offsets.glob("[0-9]*"))[2:]
    aside = drive.directory / "aside"
    aside.mkdir()
    for log in ("offsets", "commits"):
        for path in [p for batch in newest for p in (offsets.parent / log).glob(f"*{batch}*")]:
            path.rename(aside / f"{log}-{path.name}")
    with pytest.raises(InputError, match="older than what its outputs have"):
        drive.run(app())
    for path in aside.iterdir():
        log, _, name = path.name.partition("-")
        path.rename(offsets.parent / log / name)
    drive.run(app())
    for sink in ("each", "sums") if has_channel else ("each",):
        assert sorted(row["id"] for row in drive.rows(sink)) == list(range(ROWS))


@pytest.mark.parametrize("kind", ["sqlite", "delta"])
def test_so_is_an_older_fragment_whose_only_output_is_elsewhere(drive: Harness, kind: str) -> None:
    target = drive.directory / "target"
    sink = sinks.sqlite(target, "made") if kind == "sqlite" else sinks.delta(target)

    def app() -> Application:
        made = Application("stored")
        made.read(sources.generate(rows=ROWS), name="made").sink(sink)
        return made

    state = drive.directory / "state"
    drive.run(app(), listener=StopAfterBatches(state, "made", 2), **SMALL, **OFF)
    [fragment] = state.glob("*/fragments/made")
    backup, newer = drive.directory / "backup", drive.directory / "newer"
    shutil.copytree(fragment, backup)
    drive.run(app(), listener=StopAfterBatches(state, "made", 6), **SMALL, **OFF)
    fragment.rename(newer)
    shutil.copytree(backup, fragment)
    with pytest.raises(InputError, match="older than what its outputs have"):
        drive.run(app(), **OFF)
    shutil.rmtree(fragment)
    newer.rename(fragment)
    drive.run(app(), **OFF)
    assert sorted(shown(target)) == list(range(ROWS))


def shown(target: Path) -> list[int]:
    if target.is_dir():
        return [int(n) for n in deltalake.DeltaTable(target).to_pyarrow_table()["id"].to_pylist()]
    with closing(sqlite3.connect(target)) as opened:
        return [n for (n,) in opened.execute("SELECT id FROM made")]


@pytest.mark.parametrize("delivery", ["exactly once", "at least once"])
def test_the_extent_of_a_batch_is_durable_before_outputs_have_it(
    drive: Harness, monkeypatch: pytest.MonkeyPatch, delivery: str
) -> None:
    done: list[tuple[str, int]] = []
    monkeypatch.setattr(micro_batch_query, "make_durable", lambda _, batch: done.append(("synced", batch)))
    app = Application("shown")
    app.read(sources.generate(rows=120), name="made").sink(
        sinks.batches(lambda _, batch: done.append(("shown", batch)))
    )
    drive.run(app, run__delivery=delivery, **SMALL)
    shown = [batch for what, batch in done if what == "shown"]
    assert len(shown) >= 3
    wanted = [(what, batch) for batch in shown for what in ("synced", "shown")]
    assert done == (wanted if delivery == "exactly once" else [("shown", batch) for batch in shown])

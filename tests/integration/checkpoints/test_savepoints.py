"""A savepoint moves an application: another directory, other cores; a damaged one starts nothing."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from harness import Harness, at, ms

from drivetrain import Application, agg, sinks, sources, start, windows
from drivetrain.core.job.run_progress import NoticeGiven, ProgressEvent, QuietListener, RunOutcome
from drivetrain.errors import DrivetrainError, UserError
from drivetrain.runtime.checkpoints.savepoint_manifest import (
    MANIFEST,
    SavepointError,
    read_manifest,
    verified,
)
from drivetrain.spark.entry_points import savepoint

ROWS, STEP_MS = 1200, 400


def chained(out: Path, rate: float | None, *, also: Path | None = None) -> Application:
    """Windows, and behind a channel a fold by key; a sink at each of them, and perhaps one more."""
    app = Application("chained")
    made = app.read(
        sources.generate(
            rows=ROWS,
            rate_per_s=rate,
            start="1970-01-01T00:00:00Z",
            every=f"{STEP_MS} ms",
            columns={"key": "element_at(array('a', 'b', 'c', 'd'), cast(id % 4 as int) + 1)"},
        ),
        name="made",
    )
    short = made.group_by("key").window(windows.tumbling("5 s")).aggregate(step="short", n=agg.count())
    short.sink(sinks.parquet(out / "short"), name="to-short")
    long = short.group_by("key").window(windows.tumbling("20 s")).aggregate(step="long", n=agg.sum("n"))
    long.sink(sinks.parquet(out / "long"), name="to-long")
    if also is not None:
        long.filter("n > 0").sink(sinks.parquet(also), name="to-also")
    return app


def check_output(drive: Harness, *outs: str) -> None:
    """All outputs together are those of one undisturbed run."""
    wanted: Counter[Any] = Counter()
    for name, width in (("short", 5_000), ("long", 20_000)):
        found = Counter(
            (r["key"], ms(r["window_start"]), r["n"]) for out in outs for r in drive.rows(f"{out}/{name}")
        )
        wanted = Counter(("abcd"[i % 4], i * STEP_MS // width * width) for i in range(ROWS))
        assert found == Counter((*group, n) for group, n in wanted.items()), name


class Notices(QuietListener):
    """Keeps what the user is told."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def on_event(self, event: ProgressEvent) -> None:
        if isinstance(event, NoticeGiven):
            self.texts.append(event.text)


def keys(mode: str) -> dict[str, str]:
    """The configuration of a run that is saved."""
    return {"checkpoint__mode": mode, "checkpoint__interval": "1 s", "run__max_batch_rows": "100"}


def saved_while_running(drive: Harness, mode: str) -> Path:
    """A savepoint of a run that has published something to `old`, and is then stopped.

    In `kept` is what had been published when the savepoint was made.
    """
    with start(chained(drive.out("old"), 50), drive.config(**keys(mode))) as running:
        running.wait_clock(at(25_000), "5 min")
        place = Path(running.savepoint(drive.directory / "saved", "5 min"))
    assert running.wait().outcome is RunOutcome.STOPPED
    shutil.copytree(drive.out("old"), drive.out("kept"))
    fragments = read_manifest(place).record.fragments
    for name, batch in {id: fragments[id].batch_id for id in ("short", "long")}.items():
        for file in drive.out(f"kept/{name}").glob("part-*.parquet"):
            last = file.stem.rpartition("-")[2].removeprefix("to")  # a file has one batch, or several
            if int(last) > batch:
                file.unlink()
    return place


@dataclass
class Saved:
    """An application that has run, with checkpoints, and was stopped; a savepoint was made before that."""

    drive: Harness
    place: Path


@pytest.fixture(scope="module")
def saved(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Saved:
    """One for all: its state, its savepoint and `kept` stay as they are."""
    drive = Harness(tmp_path_factory.mktemp("saved"))
    return Saved(drive, saved_while_running(drive, "on"))


def goes_on_elsewhere(drive: Harness, place: Path, mode: str) -> None:
    assert read_manifest(place).record.fragments["long"].batch_id > 0
    elsewhere, notices = Harness(drive.directory / "elsewhere"), Notices()
    moved = chained(drive.out("new"), None, also=drive.out("also"))
    result = elsewhere.run(moved, listener=notices, from_savepoint=place, checkpoint__mode=mode)
    assert result.outcome is RunOutcome.FINISHED
    assert result.life == 2
    check_output(drive, "kept", "new")
    assert len(drive.rows("also")) == len(drive.rows("new/long"))
    assert any("savepoint" in text for text in notices.texts)


@pytest.mark.nightly("test_an_application_that_was_stopped_goes_on; test_checkpoints_under_faults")
def test_a_savepoint_of_a_running_application_goes_on_elsewhere(saved: Saved) -> None:
    goes_on_elsewhere(saved.drive, saved.place, "on")


@pytest.mark.nightly("the test above, with checkpoints")
def test_without_checkpoints_too_a_savepoint_of_a_running_application_goes_on_elsewhere(
    drive: Harness,
) -> None:
    goes_on_elsewhere(drive, saved_while_running(drive, "off"), "off")


@pytest.mark.nightly("test_lost_machine reaches what it reaches")
def test_an_application_that_was_stopped_goes_on_where_it_was_in_the_same_outputs(
    saved: Saved, tmp_path: Path
) -> None:
    """What it had prepared behind its last checkpoint is made again, by who goes on."""
    place = savepoint("chained", tmp_path / "saved", saved.drive.config(**keys("on")))
    elsewhere, outputs = Harness(tmp_path), saved.drive.out("old")
    elsewhere.run(chained(outputs, None), from_savepoint=place, checkpoint__mode="on")
    check_output(saved.drive, "old")


class UntilFiles(QuietListener):
    """Stops a run when a sink has published so many files."""

    def __init__(self, out: Path, files: int) -> None:
        self._out, self._files = out, files
        self._patience_s = time.monotonic() + 120

    def stop_requested(self) -> bool:
        return len(list(self._out.glob("part-*"))) >= self._files or time.monotonic() > self._patience_s


def test_files_that_spark_reads_itself_go_on_elsewhere_and_are_not_copied(drive: Harness) -> None:
    """Spark notes the whole path of each file that it has taken, and the state has another path then."""
    given = drive.directory / "in"
    given.mkdir()
    for number in range(12):
        (given / f"{number:02}.txt").write_text(
            "".join(f"{number} {line} {'x' * 500}\n" for line in range(3))
        )

    def lines() -> Application:
        app = Application("lines")
        app.read(sources.text(given)).sink(sinks.parquet(drive.out("out")), name="to-out")
        return app

    limit = {"run__max_batch_bytes": "4 KiB", "checkpoint__mode": "on", "checkpoint__interval": "100 ms"}
    stopped = drive.run(lines(), listener=UntilFiles(drive.out("out"), 2), **limit)
    assert stopped.outcome is RunOutcome.STOPPED
    place = Path(savepoint("lines", drive.directory / "saved", drive.config(**limit)))
    assert sum(file.stat().st_size for file in (place / "sources").rglob("*")) < 12 * 1_500
    assert Harness(drive.directory / "elsewhere").run(lines(), from_savepoint=place, **limit).outcome is (
        RunOutcome.FINISHED
    )
    wanted = [file.read_text().splitlines() for file in sorted(given.iterdir())]
    assert sorted(row["value"] for row in drive.rows()) == sorted(line for of in wanted for line in of)


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def largest(place: Path) -> Path:
    return max(
        (p for p in place.rglob("*") if p.is_file() and p.name != MANIFEST), key=lambda p: p.stat().st_size
    )


DAMAGES: dict[str, Callable[[Path], Any]] = {
    "a file was flipped": lambda place: flip(largest(place)),
    "a file was truncated": lambda place: os.truncate(largest(place), 3),
    "a file was deleted": lambda place: largest(place).unlink(),
    "a file was added": lambda place: (place / "fragments" / "more").write_text("x"),
    "the manifest was flipped": lambda place: flip(place / MANIFEST),
    "the manifest was truncated": lambda place: os.truncate(place / MANIFEST, 100),
    "the manifest was deleted": lambda place: (place / MANIFEST).unlink(),
    "there is nothing": shutil.rmtree,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_savepoint_is_refused_and_nothing_is_written(
    drive: Harness, saved: Saved, damage: str
) -> None:
    place = drive.directory / "copy"
    shutil.copytree(saved.place, place)
    verified(place)
    DAMAGES[damage](place)
    with pytest.raises(SavepointError):
        drive.run(chained(drive.out("new"), None), from_savepoint=place)
    assert not drive.out("new").exists()
    assert [p.name for p in (drive.directory / "state").rglob("*") if p.is_file()] == ["lock"]


def test_another_graph_is_refused_and_what_differs_is_named(drive: Harness, saved: Saved) -> None:
    app = Application("chained")
    made = app.read(sources.text(str(drive.directory / "in")), name="made")
    (drive.directory / "in").mkdir()
    made.group_by(key="value").aggregate(step="other", n=agg.count()).sink(sinks.parquet(drive.out("new")))
    with pytest.raises(SavepointError) as refused:
        drive.run(app, from_savepoint=saved.place)
    assert "other" in str(refused.value.got)
    assert "short" in str(refused.value.expected)


@pytest.mark.nightly("test_restore reaches what it reaches")
def test_an_application_that_has_a_state_does_not_take_another(drive: Harness, saved: Saved) -> None:
    app = chained(drive.out("new"), None)
    drive.run(app)
    [home] = (drive.directory / "state").iterdir()
    kept = [path.name for path in (home / "checkpoints").iterdir()]
    assert kept == ["ran"], "where nothing asks for checkpoints they cost nothing else"
    with pytest.raises(UserError, match="already has a state here"):
        drive.run(app, from_savepoint=saved.place)
    check_output(drive, "new")


@pytest.mark.nightly("test_shells_under_kills; other tests of this module reach what it reaches")
def test_an_application_that_never_made_a_checkpoint_is_not_saved_while_it_is_not_running(
    drive: Harness,
) -> None:
    config = drive.config(checkpoint__mode="off")
    with start(chained(drive.out("old"), 50), config) as running:
        running.wait_clock(at(1_000), "5 min")
    with pytest.raises(DrivetrainError, match="no savepoint"):
        savepoint("chained", drive.directory / "saved", config)
    assert not (drive.directory / "saved").exists()


KILLED = """
import os, signal, sys
from pathlib import Path
from drivetrain.config import Config
from drivetrain.spark.entry_points import savepoint
from drivetrain.runtime.checkpoints import savepoint as writing

step, real = int(sys.argv[3]), {name: getattr(writing, name) for name in ("copied", "write_manifest")}
done = 0

def dying(name):
    def call(*args):
        global done
        done += 1
        if done == step or (step < 0 and name == "write_manifest"):
            os.kill(os.getpid(), signal.SIGKILL)
        return real[name](*args)
    return call

for name in real:
    setattr(writing, name, dying(name))
savepoint("chained", Path(sys.argv[2]), Config.load(None, {}, {"state.dir": sys.argv[1]}))
"""


@pytest.mark.nightly("test_lost_machine reaches what it reaches")
@pytest.mark.parametrize("step", [1, 4, -1])
def test_who_is_killed_while_writing_leaves_no_savepoint(saved: Saved, tmp_path: Path, step: int) -> None:
    place = tmp_path / "saved"
    arguments = [str(saved.drive.directory / "state"), str(place), str(step)]
    died = subprocess.run([sys.executable, "-c", textwrap.dedent(KILLED), *arguments])
    assert died.returncode == -signal.SIGKILL
    assert not place.exists()
    savepoint("chained", place, saved.drive.config(**keys("on")))
    verified(place)
    assert time.time_ns() // 1_000_000 >= read_manifest(place).made_at_ms

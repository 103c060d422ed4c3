"""What proves that a version works: batches in which messages reached its code, on real Spark."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from harness import Harness
from shop import SCHEMA, rows, wait_until

from drivetrain import Application, agg, sinks, sources, start, windows
from drivetrain.core.change.change_state import RolledBackError
from drivetrain.core.change.live_change import Stage
from drivetrain.runtime.batch_versions import BatchVersions
from drivetrain.runtime.control_requests import asked_state
from drivetrain.runtime.run_directory import RunDirectory
from drivetrain.spark.session.offset_log import committed

TIMEOUT = "5 min"


@dataclass
class Mark:
    """The result of an hour, and the version that marked it: n * 100 + version."""

    mark: int


def counted(directory: Path, version: int, *, fails: bool = False) -> Application:
    """Messages counted by the hour; the code that a change replaces gets a message when an hour is over."""
    app = Application("counted")
    read = app.read(sources.json(directory / "in", schema=SCHEMA, event_time="at", watch=True), name="read")

    def marked(row: Any) -> Mark:
        if fails:
            raise ValueError(f"{row.n} messages cannot be marked")
        return Mark(row.n * 100 + version)

    hourly = read.window(windows.tumbling("1 h")).aggregate(n=agg.count(), step="hourly")
    hourly.map(marked, name="mark").sink(sinks.json(directory / "marked"), name="marked_out")
    return app


def put(directory: Path, at: str) -> None:
    """Put a message into the directory that the application reads, as a file in one step."""
    aside = directory / f".{at.replace(':', '')}.json"
    aside.write_text(f'{{"at": "2024-01-01T{at}:00Z", "n": 1}}\n')
    aside.rename(directory / "in" / aside.name[1:])


def marks(directory: Path) -> list[int]:
    return sorted(row["mark"] for row in rows(directory / "marked"))


@pytest.mark.nightly("test_changes_of_a_run has trials whose first batches are empty")
def test_code_that_fails_on_every_message_is_rolled_back_though_its_first_batches_were_empty(
    drive: Harness,
) -> None:
    place = drive.directory
    (place / "in").mkdir()
    rundir = RunDirectory(str(place / "state"), "counted", {})
    own = rundir.fragment("hourly")

    def newest() -> int:
        return committed(own / "checkpoint")

    def batches_of(version: int) -> bool:
        return BatchVersions(own).version_of(newest()) == version

    put(place, "00:10")
    config = drive.config(run__trial_wait="1 h")
    with start(counted(place, 1), config) as running, ThreadPoolExecutor() as threads:
        wait_until(lambda: newest() >= 0, lambda: running.is_running)
        update = threads.submit(running.update, counted(place, 2, fails=True), TIMEOUT)
        wait_until(lambda: asked_state(rundir).stage is Stage.ON_TRIAL, lambda: not update.done())
        for minute in ("00:20", "00:30"):  # no hour is over: the batches have no result
            before = newest()
            put(place, minute)
            wait_until(lambda before=before: newest() > before and batches_of(2), lambda: not update.done())
        assert asked_state(rundir).awaited == ("hourly",)
        put(place, "05:10")
        with pytest.raises(RolledBackError, match="version 2 has failed") as failed:
            update.result(300)
        assert "cannot be marked" in str(failed.value.user_traceback)
        wait_until(lambda: marks(place) == [301], lambda: running.is_running)

        running.configure({"run.trial-wait": "1 s"})
        assert running.update(counted(place, 3), TIMEOUT) == 3, "nothing comes: the trial ends nevertheless"
        assert asked_state(rundir).unproven == ("hourly",)
        put(place, "07:10")
        wait_until(lambda: marks(place) == [103, 301], lambda: running.is_running)
        running.configure({"run.trial-wait": "1 h"})
        update = threads.submit(running.update, counted(place, 4), TIMEOUT)
        wait_until(lambda: asked_state(rundir).stage is Stage.ON_TRIAL, lambda: not update.done())
        put(place, "09:10")
        assert update.result(300) == 4
        assert not asked_state(rundir).unproven
        running.stop()
        running.wait(TIMEOUT)

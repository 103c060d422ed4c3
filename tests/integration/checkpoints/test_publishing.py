"""What sinks show while checkpoints are on, and what happens when they cannot."""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from pathlib import Path
from typing import Any

import pytest
from harness import Harness

from drivetrain import Application, sinks, sources
from drivetrain.core.job.run_progress import ProgressEvent
from drivetrain.errors import DrivetrainError

ROWS = 400


class Locker:
    """Holds a lock on the database from the first progress on, for a while."""

    def __init__(self, path: Path, span_s: float) -> None:
        self.path = path
        self.span_s = span_s
        self.connection: sqlite3.Connection | None = None
        self.until_s = 0.0

    def on_event(self, event: ProgressEvent) -> None:
        now_s = time.monotonic()
        if self.connection is None and type(event).__name__ == "FragmentProgressed":
            self.connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
            self.connection.execute("begin exclusive")
            self.until_s = now_s + self.span_s

    def stop_requested(self) -> bool:
        if self.connection is not None and self.until_s and time.monotonic() > self.until_s:
            self.connection.execute("rollback")
            self.until_s = 0.0
        return False


def application(path: Path, **how: Any) -> Application:
    app = Application("published")
    made = app.read(sources.generate(rows=ROWS))
    made.select("id").sink(sinks.sqlite(path, "ids", **how), name="ids")
    return app


@pytest.mark.nightly("other tests of this module reach what it reaches")
def test_a_database_that_is_locked_costs_time_and_nothing_else(drive: Harness) -> None:
    path = drive.directory / "out.db"
    locker = Locker(path, span_s=3)
    app = application(path, timeout="200 ms")
    drive.run(app, listener=locker, run__max_batch_rows="50", checkpoint__interval="200 ms")
    assert locker.connection is not None
    locker.connection.close()
    with sqlite3.connect(path) as connection:
        found = connection.execute("select count(*), count(distinct id) from ids").fetchall()
    assert found == [(ROWS, ROWS)]


def test_a_table_that_takes_no_such_rows_ends_the_run_and_shows_no_part_of_them(drive: Harness) -> None:
    path = drive.directory / "out.db"
    with sqlite3.connect(path) as connection:
        connection.execute("create table ids (id bigint check (id < 100))")
    with pytest.raises(DrivetrainError, match=r"(?i)check"):
        drive.run(application(path), run__max_batch_rows="50", checkpoint__interval="60 s")
    with sqlite3.connect(path) as connection:
        [(shown,)] = connection.execute("select count(*) from ids").fetchall()
        assert shown in (0, 50, 100), "a part of a transaction is shown"
        connection.execute("create table wider (id bigint)")
        connection.execute("insert into wider select id from ids")
        connection.execute("drop table ids")
        connection.execute("alter table wider rename to ids")
    drive.run(application(path))
    with sqlite3.connect(path) as connection:
        assert connection.execute("select count(distinct id), count(*) from ids").fetchall() == [(ROWS, ROWS)]


@pytest.mark.nightly("other tests of this module reach what it reaches")
def test_switched_off_each_batch_is_shown_by_itself(drive: Harness) -> None:
    path = drive.directory / "out.db"
    drive.run(application(path), checkpoint__mode="off", run__max_batch_rows="50")
    [home] = (drive.directory / "state").iterdir()
    assert [path.name for path in (home / "checkpoints").iterdir()] == ["ran"]
    with sqlite3.connect(path) as connection:
        assert connection.execute("select count(*) from ids").fetchall() == [(ROWS,)]


class StopAfterBatches:
    """Asks to stop after some batches."""

    def __init__(self, batches: int) -> None:
        self.left = batches

    def on_event(self, event: ProgressEvent) -> None:
        self.left -= type(event).__name__ == "FragmentProgressed"

    def stop_requested(self) -> bool:
        return self.left <= 0


@pytest.mark.nightly("other tests of this module reach what it reaches")
def test_what_waits_when_checkpoints_are_switched_off_is_shown(drive: Harness) -> None:
    path = drive.directory / "out.db"
    keys = {"run__max_batch_rows": "20"}
    drive.run(application(path), listener=StopAfterBatches(4), checkpoint__interval="60 s", **keys)
    drive.run(application(path), checkpoint__mode="off")
    with sqlite3.connect(path) as connection:
        assert connection.execute("select count(distinct id), count(*) from ids").fetchall() == [(ROWS, ROWS)]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_state_directory_that_takes_nothing_more_is_told(drive: Harness) -> None:
    path = drive.directory / "out.db"
    (drive.directory / "state").mkdir(mode=stat.S_IRUSR | stat.S_IXUSR)
    with pytest.raises(DrivetrainError, match="cannot be written"):
        drive.run(application(path))

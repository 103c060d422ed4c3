"""Figures over weeks: they survive the console, stay within bounds, and never keep it from running."""

from __future__ import annotations

import logging
import os
import random
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from drivetrain.console.past import history_file
from drivetrain.console.past.history_file import COARSE_MS, COARSE_STEP_MS, FINE_MS, HistoryFile
from drivetrain.core.job.history import STEP_MS, FragmentMoment, Moment, merged
from drivetrain.errors import OutputError

DAY_MS = 86_400_000
BEGIN_MS = 20_000 * DAY_MS


def moment(at_ms: int, **figures: int) -> Moment:
    return Moment(at_ms, late=at_ms % 97, fragments={"f": FragmentMoment(1, **figures)})


def moments(since_ms: int, until_ms: int) -> list[Moment]:
    return [moment(at_ms, batches=at_ms // STEP_MS) for at_ms in range(since_ms, until_ms, STEP_MS)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "console" / "history.sqlite"


@pytest.fixture
def file(path: Path) -> Iterator[HistoryFile]:
    made = HistoryFile(path)
    yield made
    made.close()


def test_what_was_noted_is_there_once_after_another_start(path: Path) -> None:
    noted = moments(BEGIN_MS, BEGIN_MS + 900_000)
    for end in (30, 60, 90):
        file = HistoryFile(path)
        file.note("shop-1", noted[end - 45 if end > 30 else 0 : end], BEGIN_MS)  # with some that are there
        file.close()
    file = HistoryFile(path)
    assert file.between("shop-1", BEGIN_MS, BEGIN_MS + 900_000, 2_000) == noted
    assert file.between("shop-1", BEGIN_MS + 15_000, BEGIN_MS + 40_000, 2_000) == noted[2:5]
    assert file.between("shop-2", BEGIN_MS, BEGIN_MS + 900_000, 2_000) == []
    assert (path.stat().st_mode & 0o077, path.parent.stat().st_mode & 0o077) == (0, 0)
    file.close()


def test_fine_rows_are_kept_for_a_day_and_coarse_ones_for_a_month(file: HistoryFile) -> None:
    for day in range(0, 40, 5):
        since = BEGIN_MS + day * DAY_MS
        file.note("shop-1", moments(since, since + 3_600_000), since + 3_600_000)
    now_ms = BEGIN_MS + 35 * DAY_MS + 3_600_000
    rows = file._db.execute("SELECT step_ms, min(at_ms), max(at_ms), count(*) FROM moment GROUP BY step_ms")
    of_step = {step: rest for step, *rest in rows}
    assert of_step[STEP_MS][0] >= now_ms - FINE_MS
    assert of_step[STEP_MS][2] == 360
    assert of_step[COARSE_STEP_MS][0] >= now_ms - COARSE_MS
    assert of_step[COARSE_STEP_MS][2] == 6 * 12
    found = file.between("shop-1", now_ms - COARSE_MS, now_ms, 2_000)
    assert len(found) == 6 * 12
    assert [m.at_ms for m in found] == sorted(m.at_ms for m in found)


def test_what_is_merged_has_the_last_sums_and_the_largest_delays(file: HistoryFile) -> None:
    rng = random.Random(1)
    noted = [
        moment(at_ms, batches=n, batch_ms=rng.randrange(100), lag_rows=rng.randrange(100))
        for n, at_ms in enumerate(range(BEGIN_MS, BEGIN_MS + 600_000, STEP_MS))
    ]
    file.note("shop-1", noted, BEGIN_MS)
    for points in (1, 7, 59, 60, 2_000):
        found = file.between("shop-1", BEGIN_MS, BEGIN_MS + 600_000, points)
        assert len(found) <= points
        assert found[-1].fragments["f"].batches == 59
        for name in ("batch_ms", "lag_rows"):
            largest = max(getattr(m.fragments["f"], name) for m in noted)
            assert max(getattr(m.fragments["f"], name) for m in found) == largest, name
    gone = moment(1)
    began = Moment(2, fragments={"g": FragmentMoment(2)})
    assert merged([gone, began]).fragments == {"f": FragmentMoment(1), "g": FragmentMoment(2)}


def test_a_full_file_loses_its_oldest_rows_and_keeps_the_newest(path: Path) -> None:
    file = HistoryFile(path, most_bytes=400_000)
    rng = random.Random(1)
    for start in range(20):
        since = BEGIN_MS + start * 900_000
        names = [rng.randbytes(200).hex() for _ in range(2)]
        noted = [
            Moment(at_ms, fragments={name: FragmentMoment(1) for name in names})
            for at_ms in range(since, since + 900_000, STEP_MS)
        ]
        file.note(f"app-{start}", noted, since)
    assert file.between("app-19", BEGIN_MS, since + 900_000, 2_000) == noted
    assert file.between("app-0", BEGIN_MS, since + 900_000, 2_000) == []
    file.close()
    assert path.stat().st_size <= 400_000


def test_a_full_disk_is_one_warning_and_figures_are_kept_again_when_there_is_room(
    file: HistoryFile, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted = moments(BEGIN_MS, BEGIN_MS + 300_000)
    file.note("shop-1", noted[:10], BEGIN_MS)

    def full(*_: object) -> None:
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error

    monkeypatch.setattr(file, "_put", full)
    monkeypatch.setattr(file, "_make_room", lambda: False)
    for _ in range(3):
        file.note("shop-1", noted, BEGIN_MS)
    assert [each.getMessage() for each in caplog.records if "disk" in each.getMessage()] == [
        f"figures are not kept any more: the disk of {file._path} is full; make room"
    ]
    assert file.between("shop-1", BEGIN_MS, BEGIN_MS + 300_000, 100) == noted[:10]
    monkeypatch.undo()
    file.note("shop-1", noted, BEGIN_MS)
    assert file.between("shop-1", BEGIN_MS, BEGIN_MS + 300_000, 100) == noted


@pytest.mark.parametrize("damage", [b"nothing of SQLite" * 100, b"SQLite format 3\0" + b"\xff" * 8_000])
def test_a_damaged_file_is_put_aside_with_a_warning(
    path: Path, caplog: pytest.LogCaptureFixture, damage: bytes
) -> None:
    path.parent.mkdir(mode=0o700)
    path.write_bytes(damage)
    with caplog.at_level(logging.WARNING):
        file = HistoryFile(path)
    assert path.with_name("history.sqlite.damaged").read_bytes() == damage
    assert str(path.with_name("history.sqlite.damaged")) in caplog.text
    noted = moments(BEGIN_MS, BEGIN_MS + 60_000)
    file.note("shop-1", noted, BEGIN_MS)
    assert file.between("shop-1", BEGIN_MS, BEGIN_MS + 60_000, 100) == noted
    file.close()


def test_a_file_that_is_damaged_while_it_is_used_is_put_aside(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = HistoryFile(path)
    file.note("shop-1", moments(BEGIN_MS, BEGIN_MS + 60_000), BEGIN_MS)
    file._db.execute("UPDATE moment SET data = ?", (b"no row of ours",))
    assert file.between("shop-1", BEGIN_MS, BEGIN_MS + 60_000, 100) == []
    assert "a new one begins" in caplog.text
    noted = moments(BEGIN_MS, BEGIN_MS + 60_000)
    file.note("shop-1", noted, BEGIN_MS)
    assert file.between("shop-1", BEGIN_MS, BEGIN_MS + 60_000, 100) == noted
    file.close()


def test_a_moment_that_is_too_large_and_one_of_the_future_are_left_out(
    file: HistoryFile, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Application masters are processes of users."""
    monkeypatch.setattr(history_file, "_LARGEST_ROW_BYTES", 1_000)
    huge = Moment(BEGIN_MS + 10_000, fragments={"f" * 10_000: FragmentMoment()})
    ahead = moment(BEGIN_MS + DAY_MS)
    file.note("shop-1", [moment(BEGIN_MS), huge, ahead], BEGIN_MS + 20_000)
    file.note("shop-1", [moment(BEGIN_MS + 20_000)], BEGIN_MS + 20_000)
    times = [each.at_ms for each in file.between("shop-1", BEGIN_MS, BEGIN_MS + 2 * DAY_MS, 100)]
    assert times == [BEGIN_MS, BEGIN_MS + 20_000]
    assert "is not kept: it has" in caplog.text


def test_a_file_of_a_later_version_is_put_aside(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    HistoryFile(path).close()
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    HistoryFile(path).close()
    assert "another version, 99" in caplog.text
    assert path.with_name("history.sqlite.damaged").exists()


def test_a_directory_that_cannot_be_written_is_an_error_with_a_remedy(path: Path) -> None:
    path.mkdir(parents=True, mode=0o700)
    with pytest.raises(OutputError, match="cannot be kept"):
        HistoryFile(path)


WRITER = """
import sys
from pathlib import Path
from drivetrain.console.past.history_file import HistoryFile
from drivetrain.core.job.history import FragmentMoment, Moment
file = HistoryFile(Path(sys.argv[1]))
begin = int(sys.argv[2])
for number in range(1_000_000):
    at = begin + number * 20_000
    pair = [Moment(at + each, fragments={"f": FragmentMoment(1, number)}) for each in (0, 10_000)]
    file.note("shop-1", pair, at)
    if number == 20:
        print("under way", flush=True)
"""


def test_after_a_kill_in_the_middle_of_writing_each_note_is_there_wholly_or_not(path: Path) -> None:
    command = [sys.executable, "-c", WRITER, str(path), str(BEGIN_MS)]
    writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    assert writer.stdout.readline() == "under way\n"
    os.kill(writer.pid, signal.SIGKILL)
    writer.wait()
    writer.stdout.close()
    file = HistoryFile(path)
    assert not path.with_name("history.sqlite.damaged").exists()
    found = file._db.execute(
        "SELECT at_ms FROM moment WHERE step_ms = ? ORDER BY at_ms", (STEP_MS,)
    ).fetchall()
    assert len(found) >= 42
    assert [at for (at,) in found] == [BEGIN_MS + n * STEP_MS for n in range(len(found))]
    assert len(found) % 2 == 0, "both moments of a note, or none"
    file.close()

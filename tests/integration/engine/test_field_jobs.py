"""The field's own jobs give what their batch queries give; the peers are not needed here."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks import data, field_data, field_join, field_sessions
from benchmarks.measure import Scale, WrongResultError
from harness import Harness

QUICK = Scale(quick=True)


@pytest.fixture(autouse=True)
def sparse_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(data, "EVENTS_PER_S", 20)
    monkeypatch.setattr(field_data, "USERS", 40)


def test_sessions_agree_with_one_batch_query(drive: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = field_data.clicks(2_000)
    monkeypatch.setattr(field_sessions, "directory", lambda _scale: directory)
    drive.run(field_sessions.application(directory / "lines", drive.out()))
    field_sessions.check(QUICK, drive.directory)
    next(drive.out().glob("*.parquet")).unlink()
    with pytest.raises(WrongResultError):
        field_sessions.check(QUICK, drive.directory)


def test_a_join_agrees_with_one_batch_query(drive: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(field_join, "count", lambda _scale: 1_000)
    drive.run(field_join.application(*field_join.lines(1_000), drive.out()))
    field_join.check(QUICK, drive.directory)

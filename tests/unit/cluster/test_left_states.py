"""A worker empties the working directories of applications that are no longer there, and no others."""

from __future__ import annotations

import os
from pathlib import Path

from drivetrain.cluster.worker.left_states import empty_left_states
from drivetrain.runtime.run_directory import RunDirectory


def used(states: Path, name: str) -> RunDirectory:
    rundir = RunDirectory(str(states / "bucket-12345678"), name, {})
    rundir.acquire()
    (rundir.path / "fragments" / "first" / "checkpoint").mkdir(parents=True)
    (rundir.path / "application.json").write_text("{}")
    return rundir


def age(directory: Path, age_s: float) -> None:
    """Make all of a directory older."""
    for path in (directory, *directory.rglob("*")):
        at_s = path.stat().st_mtime - age_s
        os.utime(path, (at_s, at_s))


def names_in(rundir: RunDirectory) -> set[str]:
    return {path.name for path in rundir.path.iterdir()}


def test_only_what_nobody_has_used_for_long_is_emptied(tmp_path: Path) -> None:
    states = tmp_path / "states"
    assert empty_left_states(states, 10.0) == []
    running, recent, changed, left = (used(states, name) for name in ("running", "recent", "changed", "left"))
    for rundir in (running, changed, left):
        age(rundir.path, 100.0)
    for rundir in (recent, changed, left):
        rundir.release()
    (changed.path / "fragments" / "first" / "clock").touch()
    before = names_in(recent)

    assert empty_left_states(states, 50.0) == [left.path]
    assert names_in(left) == {"lock"}
    for rundir in (running, recent, changed):
        assert names_in(rundir) == before

    left.acquire()  # it comes back
    assert not left.started
    left.release()
    age(left.path, 100.0)
    assert empty_left_states(states, 50.0) == []

"""What an application master has scaled and records of it, in a real state directory, on a failing disk."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from drivetrain import Application, sinks, sources
from drivetrain.cluster.app_master.stream.stored_scalings import StoredScalings
from drivetrain.core.change.graph_version import version_of
from drivetrain.core.change.scaling_state import ScalingState
from drivetrain.core.plan.planner import plan
from drivetrain.errors import DrivetrainError, UnavailableError, UserError
from drivetrain.runtime.preparation import Preparer
from drivetrain.runtime.run_directory import RunDirectory
from drivetrain.runtime.scalings import Scalings
from drivetrain.runtime.state.state_partitions import SHUFFLE_PARTITIONS
from drivetrain.runtime.wanted_scaling import FILE, WantedScalingFile

ME, NEXT = Preparer("app-1", 1, "am#1"), Preparer("app-1", 2, "am#2")
OTHER = Preparer("app-2", 1, "am#9")
WANTED = ScalingState("read", 2, 5, 1_000, id="a" * 32)
DONE = WANTED.drained().ended(10, 20)


@pytest.fixture
def rundir(tmp_path: Path) -> RunDirectory:
    """A state directory with one version, prepared for the first application master."""
    app = Application("app")
    read = app.read(sources.generate(rows=9), name="read")
    read.filter("id > 1", name="kept").sink(sinks.none(), name="out")
    made = RunDirectory(str(tmp_path), "app", {})
    made.acquire()
    made.begin(plan(app.graph()), version_of(plan(app.graph()), repr), b"code")
    made.preparation.note(ME, {})
    has_partitions(made, 2)
    return made


def has_partitions(rundir: RunDirectory, number: int) -> None:
    checkpoint = rundir.fragment("read") / "checkpoint"
    for log, text in (
        ("offsets", f"v1\n{json.dumps({'conf': {SHUFFLE_PARTITIONS: str(number)}})}\n{{}}"),
        ("commits", "v1"),
    ):
        (checkpoint / log).mkdir(parents=True, exist_ok=True)
        (checkpoint / log / "0").write_text(text)


@contextmanager
def failing(call: str, is_failing: Callable[[int], bool]) -> Iterator[list[int]]:
    """The calls of `os.rename`, `os.replace` or `os.fsync` fail for which `is_failing` is true."""
    import os

    real, calls = getattr(os, call), [0]

    def called(*given: Any, **named: Any) -> Any:
        calls[0] += 1
        if is_failing(calls[0] - 1):
            raise OSError(5, "the disk fails")
        return real(*given, **named)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, call, called)
        yield calls


def test_a_scaling_is_wanted_until_its_outcome_is_in_the_list_and_counts_once(rundir: RunDirectory) -> None:
    mine = StoredScalings(rundir, ME)
    assert mine.read_state() is None
    mine.begin(WANTED)
    assert mine.read_state() == WANTED
    has_partitions(rundir, 5)
    assert mine.end(DONE) == (DONE, None)
    assert WantedScalingFile(rundir.path).read() is None
    assert mine.read_state() == DONE, "a client that asks the next application master sees how it ended"
    assert mine.end(DONE) == (DONE, None), "the application master has died before it removed the file"
    assert [one.of for one in mine.done()] == [DONE]
    assert mine.planned(ScalingState("read", 5, 8, 1_000)).likely_pause_ms == 20


def test_the_checkpoint_says_whether_it_is_done_and_not_the_report(rundir: RunDirectory) -> None:
    mine = StoredScalings(rundir, ME)
    mine.begin(WANTED)
    ended, _ = mine.end(DONE)
    assert ended.why is not None, "the state is as it was"
    assert mine.done() == []
    mine.begin(WANTED)
    has_partitions(rundir, 5)
    ended, _ = mine.end(WANTED.ended(why="the fragment has ended"))
    assert ended.why is None
    assert [one.of.after for one in mine.done()] == [5]


def test_one_that_was_replaced_has_nothing_scaled_and_ends_nothing(rundir: RunDirectory) -> None:
    mine, next_one = StoredScalings(rundir, ME), StoredScalings(rundir, NEXT)
    mine.begin(WANTED)
    rundir.preparation.note(NEXT, {})
    for late in (lambda: mine.begin(WANTED), lambda: mine.end(DONE)):
        with pytest.raises(UnavailableError, match="another application master"):
            late()
    next_one.forget_others()
    assert next_one.read_state() == WANTED, "it goes on with what its predecessor was asked for"


def test_a_later_submission_and_a_damaged_file_forget_what_was_wanted(rundir: RunDirectory) -> None:
    StoredScalings(rundir, ME).begin(WANTED)
    StoredScalings(rundir, OTHER).forget_others()
    assert StoredScalings(rundir, ME).read_state() is None
    (rundir.path / FILE).write_text("nonsense")
    StoredScalings(rundir, ME).forget_others()
    assert not (rundir.path / FILE).exists()


def test_a_fragment_is_named_by_itself_or_by_a_processor(rundir: RunDirectory) -> None:
    mine = StoredScalings(rundir, ME)
    assert mine.fragment_of("kept") == mine.fragment_of("read") == "read"
    with pytest.raises(UserError, match="no such fragment"):
        mine.fragment_of("nothing")


@pytest.mark.parametrize("call", ["rename", "replace", "fsync"])
def test_an_error_of_the_disk_leaves_a_scaling_wanted_or_not_and_says_which(
    rundir: RunDirectory, call: str
) -> None:
    mine, file = StoredScalings(rundir, ME), WantedScalingFile(rundir.path)
    with failing(call, lambda _: False) as calls:
        mine.begin(WANTED)
    assert calls[0] > 0 or call != "fsync"
    for failed in range(calls[0]):
        file.remove()
        with failing(call, lambda n, failed=failed: n == failed):
            try:
                mine.begin(WANTED)
            except DrivetrainError:
                assert file.read() is None, f"{call} {failed}: it was refused, and is wanted"
            else:
                assert file.read() is not None


def test_a_list_that_cannot_be_written_does_not_keep_a_scaling_from_ending(rundir: RunDirectory) -> None:
    mine = StoredScalings(rundir, ME)
    mine.begin(WANTED)
    has_partitions(rundir, 5)
    (rundir.path / "scalings").write_text("nonsense")
    ended, unlisted = mine.end(DONE)
    assert (ended.why, WantedScalingFile(rundir.path).read()) == (None, None)
    assert "the list of scalings cannot be read" in str(unlisted)
    (rundir.path / "scalings").unlink()
    assert Scalings(rundir.path).all() == []

"""What an application master has scaled and records of it, in a real state directory, on a failing disk."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from drivetrain import Application, sinks, sources
from drivetrain.cluster.app_master.stream.application_copies import ApplicationCopies
from drivetrain.cluster.app_master.stream.stored_scalings import StoredScalings
from drivetrain.core.change.graph_version import version_of
from drivetrain.core.change.scaling_state import ScalingState
from drivetrain.core.checkpoint.transaction import CheckpointRecord, Phase, Snapshot, Transaction
from drivetrain.core.plan.planner import plan
from drivetrain.errors import DrivetrainError, UnavailableError, UserError
from drivetrain.runtime.checkpoints.copied_checkpoints import CopiedCheckpoints
from drivetrain.runtime.checkpoints.snapshots import Snapshots
from drivetrain.runtime.checkpoints.transaction_file import CheckpointFiles
from drivetrain.runtime.preparation import Preparer
from drivetrain.runtime.run_directory import RunDirectory
from drivetrain.runtime.scalings import Scalings
from drivetrain.runtime.state.state_partitions import SHUFFLE_PARTITIONS
from drivetrain.runtime.wanted_scaling import FILE, WantedScalingFile
from model_store import ModelStore

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


def test_the_store_has_what_is_wanted_first_and_until_a_checkpoint_there_is_divided(
    rundir: RunDirectory,
) -> None:
    file, noted, errors = WantedScalingFile(rundir.path), list[dict[str, bytes]](), list[DrivetrainError]()

    def keep(files: Mapping[str, bytes]) -> None:
        noted.append(dict(files))
        if errors:
            raise errors.pop()

    mine = StoredScalings(rundir, ME, keep)
    errors.append(UnavailableError("the store does not answer"))
    with pytest.raises(UnavailableError, match="does not answer"):
        mine.begin(WANTED)
    assert file.read() is None, "nothing is scaled"
    mine.begin(WANTED)
    assert noted == [{FILE: (rundir.path / FILE).read_bytes()}] * 2
    has_partitions(rundir, 5)
    assert mine.end(DONE) == (DONE, None)
    assert mine.read_state() == DONE
    with pytest.raises(UnavailableError, match="not in a checkpoint in the store yet"):
        mine.begin(ScalingState("read", 5, 8, id="b" * 32))
    assert len(noted) == 2, "another worker that finds the state as it was still scales it"
    has_partitions(rundir, 2)  # the application has gone back to a checkpoint from before
    assert mine.read_state() == WANTED


def test_one_that_fails_is_not_wanted_in_the_store_any_more(rundir: RunDirectory) -> None:
    noted: list[dict[str, bytes]] = []
    mine = StoredScalings(rundir, ME, lambda files: noted.append(dict(files)))
    mine.begin(WANTED)
    mine.end(WANTED.ended(why="the disk is full"))
    assert noted[-1] == {FILE: b""}
    assert WantedScalingFile(rundir.path).read() is None


@pytest.mark.parametrize(("partitions", "is_left"), [(2, True), (5, False)])
def test_a_scaling_that_is_done_is_forgotten_with_the_first_checkpoint_that_has_it(
    rundir: RunDirectory, partitions: int, *, is_left: bool
) -> None:
    store, errors = ModelStore(), list[BaseException]()
    own = CopiedCheckpoints(store, "app", "here", rundir.path)
    copies = ApplicationCopies(rundir, own, ME, errors.append)
    try:
        mine = StoredScalings(rundir, ME, copies.keep)
        mine.begin(WANTED)
        has_partitions(rundir, 5)
        mine.end(DONE)
        has_partitions(rundir, partitions)
        snapshots = Snapshots(CheckpointFiles(rundir.home).snapshots)
        snapshots.take("read", 1, rundir.fragment("read"), 0)
        record = CheckpointRecord(1, 1, {"read": Snapshot(0)})
        copies.before(Transaction(1, Phase.COMMITTING, 1, record=record))
    finally:
        copies.close(has_ended=True)
    assert (WantedScalingFile(rundir.path).read() is not None) is is_left
    newest = CopiedCheckpoints(store, "app", "here", rundir.path).newest()
    assert newest is not None
    assert FILE in newest.changes, "the checkpoint after it leaves it out"


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

"""How an executor begins with a state that is in an object store."""

from __future__ import annotations

from pathlib import Path

import pytest

from drivetrain import Application, sinks, sources
from drivetrain.cluster.executor import executor_copies
from drivetrain.cluster.executor.executor_copies import ExecutorCopies
from drivetrain.config import Config
from drivetrain.core.checkpoint.transaction import CheckpointRecord, Phase, Transaction
from drivetrain.core.plan.plan import Plan
from drivetrain.core.plan.planner import plan
from drivetrain.errors import ConfigError, UserError
from drivetrain.runtime.checkpoints import copied_checkpoints, state_lease
from drivetrain.runtime.checkpoints.checkpoint_copy import Claimant, StillRunningError, running
from drivetrain.runtime.checkpoints.transaction_file import CheckpointFiles
from drivetrain.runtime.run_directory import RunDirectory
from model_store import ModelStore

REMOTE = {"state.dir": "hdfs://nowhere:1/states"}
ASKED = {"fresh": False, "savepoint": None}


def begin(copies: ExecutorCopies, place: Path, wait_s: float = 0.0, **asked: object) -> bool:
    rundir = RunDirectory(str(place), "shop", {})
    return copies.begin(rundir, wait_s, **(ASKED | asked))  # type: ignore[arg-type]


def test_a_state_in_a_directory_is_left_alone(tmp_path: Path) -> None:
    copies = ExecutorCopies(Config.load(None, {}, {"state.dir": str(tmp_path)}))
    assert begin(copies, tmp_path, savepoint="/backup/x") is False
    copies.watch()
    copies.close()
    assert copies.copies is None
    copied = ExecutorCopies(Config.load(None, {}, {"checkpoint.copy-to": "s3://backup/x"}))
    with pytest.raises(ConfigError, match="copy-to"):
        begin(copied, tmp_path)


class Submission:
    """An executor of one epoch of a submission, on a disk of its own."""

    def __init__(self, store: ModelStore, disk: Path, submission: str, epoch: int) -> None:
        self.rundir = RunDirectory(str(disk), "shop", {})
        self.rundir.path.mkdir(parents=True, exist_ok=True)
        self.copies = ExecutorCopies(Config.load(None, {}, REMOTE), Claimant(submission, epoch))

    def begin(self, savepoint: str | None) -> bool:
        return self.copies.begin(self.rundir, 0.0, fresh=False, savepoint=savepoint)

    def prepare(self, *, has_copied: bool) -> None:
        """Begin with the savepoint, and perhaps die before its life is copied."""
        copies = self.copies.copies
        assert copies is not None
        copies.claim(starts_over=True)
        self.rundir.begin(a_plan())
        record = CheckpointRecord(7, 3, {})
        CheckpointFiles(self.rundir.home).persist(Transaction(7, Phase.COMMITTED, 3, record=record))
        if has_copied:
            self.copies.copy_life(self.rundir)


def a_plan() -> Plan:
    app = Application("shop")
    app.read(sources.generate(rows=9), name="read").sink(sinks.none(), name="out")
    return plan(app.graph())


def test_a_start_from_a_savepoint_is_copied_before_it_counts_and_begun_again_until_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ModelStore()
    monkeypatch.setattr(copied_checkpoints, "open_place", lambda *_, **__: (store, "states"))
    first = Submission(store, tmp_path / "one", "mine", 1)
    assert first.begin("s3://saved/x") is False
    first.prepare(has_copied=False)
    second = Submission(store, tmp_path / "two", "mine", 2)  # elsewhere: there is nothing to continue
    assert second.begin("s3://saved/x") is False
    assert not second.rundir.started
    second.prepare(has_copied=True)
    newest = second.copies.newest(second.rundir)
    assert newest is not None
    copy = newest.newest()
    assert copy is not None
    assert copy.manifest is not None
    assert copy.manifest.record.txid == 7
    for disk in ("three", "four"):  # the registry has not heard of it, so nothing has run
        again = Submission(store, tmp_path / disk, "mine", 3)
        assert again.begin("s3://saved/x") is False
        assert not again.rundir.started, "it begins with the savepoint again"
    assert Submission(store, tmp_path / "five", "mine", 3).begin(None) is False


def test_a_savepoint_is_refused_if_another_submission_has_a_state_in_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ModelStore()
    monkeypatch.setattr(copied_checkpoints, "open_place", lambda *_, **__: (store, "states"))
    monkeypatch.setattr(state_lease, "LEASE_S", 0.0)
    monkeypatch.setattr(state_lease, "_LOOK_S", 0.0)
    first = Submission(store, tmp_path / "one", "mine", 1)
    first.begin("s3://saved/x")
    first.prepare(has_copied=True)
    with pytest.raises(UserError, match="already has a state in the store"):
        Submission(store, tmp_path / "two", "another", 1).begin("s3://saved/x")


def test_another_process_that_has_the_application_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[object] = []

    def settle(_rundir: object, copies: object, *, fresh: bool, savepoint: str | None) -> bool:
        assert savepoint is None
        tries.append((copies, fresh))
        if len(tries) % 3:
            raise running("hdfs://nowhere:1/states/shop", "process 7 on another machine")
        return True

    monkeypatch.setattr(executor_copies, "settle_with_store", settle)
    copies = ExecutorCopies(Config.load(None, {}, REMOTE))
    assert begin(copies, tmp_path, wait_s=60.0) is True
    assert len(tries) == 3
    with pytest.raises(StillRunningError, match="already running"):
        begin(copies, tmp_path, wait_s=-1.0)

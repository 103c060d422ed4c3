"""Going back to a checkpoint: what is lost, and from what state an application goes on."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from drivetrain.api import Application, sinks, sources
from drivetrain.core.checkpoint.transaction import CheckpointRecord, Phase, Snapshot, Transaction
from drivetrain.core.plan.plan import Fragment, Plan
from drivetrain.core.plan.planner import plan as make_plan
from drivetrain.errors import InputError
from drivetrain.runtime.channel.store import ChannelStore
from drivetrain.runtime.checkpoints.snapshots import Snapshots
from drivetrain.runtime.checkpoints.transaction_file import CheckpointFiles
from drivetrain.runtime.run_directory import RunDirectory
from drivetrain.spark.batch.query_figures import BlockedTime, QueryFigures
from drivetrain.spark.checkpoints.inbox import BatchRan
from drivetrain.spark.checkpoints.participants import CheckpointBook
from drivetrain.spark.checkpoints.participation import Participation
from drivetrain.spark.checkpoints.restoring import is_lost, require_states, restore_lost


@pytest.fixture
def plan() -> Plan:
    app = Application("restored")
    app.read(sources.generate(rows=1), name="made").cut().filter("id >= 0").sink(sinks.none())
    return make_plan(app.graph())


@pytest.fixture
def rundir(tmp_path: Path) -> RunDirectory:
    rundir = RunDirectory(str(tmp_path), "restored", {})
    CheckpointFiles(rundir.home).note_periodic(True, has_published=False)
    return rundir


def ran(rundir: RunDirectory, fragment: str, batches: int) -> Path:
    """Spark's checkpoint of a fragment after so many batches."""
    checkpoint = rundir.fragment(fragment) / "checkpoint"
    for log in ("offsets", "commits"):
        (checkpoint / log).mkdir(parents=True)
        for batch in range(batches):
            (checkpoint / log / str(batch)).write_text("v1")
    (checkpoint / "metadata").write_text("{}")
    return checkpoint


def begun(plan: Plan, rundir: RunDirectory) -> ChannelStore:
    """Both fragments have run a batch, and the first one has given it to the channel."""
    (channel,) = plan.channels
    store = ChannelStore(rundir.channel(channel.id), fragment=channel.producer_fragment)
    store.append(0, [], clock_ms=5)
    for fragment in plan.fragments:
        ran(rundir, fragment.id, 1)
    return store


def test_without_a_record_all_begin_anew_when_one_has_lost_its_state(
    plan: Plan, rundir: RunDirectory
) -> None:
    first, second = (fragment.id for fragment in plan.fragments)
    store, files = begun(plan, rundir), CheckpointFiles(rundir.home)
    for fragment in plan.fragments:
        files.lives.note(fragment.id, 1)
    (rundir.fragment(first) / "checkpoint" / "metadata").unlink()
    assert files.transaction() is None, "the coordinator had nothing to keep yet"
    told = restore_lost(plan, rundir, {})
    assert told is not None
    assert f"the state of {first} was lost" in told
    assert ChannelStore(store.uri).length() == 0
    assert not (rundir.fragment(second) / "checkpoint").exists()
    assert restore_lost(plan, rundir, {}) is None


def test_a_checkpoint_without_what_its_last_batch_took_is_lost(plan: Plan, rundir: RunDirectory) -> None:
    begun(plan, rundir)
    files, fragment = CheckpointFiles(rundir.home), plan.fragments[0]
    files.persist(Transaction())
    files.lives.note(fragment.id, 1)
    assert not is_lost(fragment, rundir)
    (rundir.fragment(fragment.id) / "checkpoint" / "offsets" / "0").unlink()
    assert is_lost(fragment, rundir)


def test_a_fragment_is_not_taken_back_to_the_checkpoint_of_a_former_one_of_its_name(
    plan: Plan, rundir: RunDirectory
) -> None:
    first, second = (fragment.id for fragment in plan.fragments)
    files = CheckpointFiles(rundir.home)
    for fragment, batch in ((first, 0), (second, 50)):
        ran(rundir, fragment, batch + 1)
        files.lives.note(fragment, 1)
        Snapshots(files.snapshots).take(fragment, 7, rundir.fragment(fragment), batch)
    record = CheckpointRecord(3, 7, {first: Snapshot(0), second: Snapshot(50)})
    files.persist(Transaction(3, Phase.COMMITTED, 7, record=record))
    assert files.transaction() == Transaction(3, Phase.COMMITTED, 7, record=record)

    rundir.places.prepare(second, [], [])
    checkpoint = ran(rundir, second, 3)
    files.lives.note(second, 1)
    assert not is_lost(plan.fragments[1], rundir), "the former one has run 50 batches"
    assert restore_lost(plan, rundir, {}) is None
    (checkpoint / "metadata").unlink()
    assert restore_lost(plan, rundir, {}) is not None
    assert not (rundir.fragment(second) / "checkpoint").exists(), "it begins anew"
    assert (rundir.fragment(first) / "checkpoint" / "commits" / "0").exists()


@pytest.mark.parametrize("round", [None, 7])
def test_it_does_not_go_back_behind_what_was_published_while_checkpoints_were_off(
    plan: Plan, rundir: RunDirectory, round: int | None
) -> None:
    """Or sinks would take other batches of the same numbers for those that they have published."""
    first, files = plan.fragments[0].id, CheckpointFiles(rundir.home)
    begun(plan, rundir)
    for fragment in plan.fragments:
        files.lives.note(fragment.id, 1)
        Snapshots(files.snapshots).take(fragment.id, 8, rundir.fragment(fragment.id), 0)

    def persist(round: int) -> None:
        record = CheckpointRecord(3, round, {fragment.id: Snapshot(0) for fragment in plan.fragments})
        files.persist(Transaction(3, Phase.COMMITTED, round, record=record))

    if round is not None:
        persist(round)
    files.note_periodic(False, has_published=True)
    files.note_periodic(True, has_published=True)
    (rundir.fragment(first) / "checkpoint" / "metadata").unlink()
    for _ in range(2):
        with pytest.raises(InputError, match=f"state of {first} was lost, and no checkpoint has everything"):
            restore_lost(plan, rundir, {})
    persist(8)
    files.note_periodic(True, has_published=True)
    assert restore_lost(plan, rundir, {}) is not None


def test_without_periodic_checkpoints_no_fragment_starts_without_the_state_that_it_had(
    plan: Plan, rundir: RunDirectory
) -> None:
    """It would begin with batch 0, and outputs would take its batches for those that they have."""
    first, lives = plan.fragments[0], CheckpointFiles(rundir.home).lives
    require_states(plan, rundir)
    begun(plan, rundir)
    part = participation(plan, rundir, first, transactional=False)
    part.start()
    for batch in (-1, 0):
        part._query.batch_id = batch
        part._take(BatchRan(), 0.0)
        assert lives.has_run(first.id) is (batch == 0)
    require_states(plan, rundir)
    shutil.rmtree(rundir.fragment(first.id) / "checkpoint")
    with pytest.raises(InputError, match=f"state of fragment {first.id} is lost"):
        require_states(plan, rundir)
    rundir.places.prepare(first.id, [], [])  # after it has left
    require_states(plan, rundir)


def participation(
    plan: Plan, rundir: RunDirectory, fragment: Fragment, *, transactional: bool = True
) -> Participation:
    """The participation of a fragment whose query has not started yet."""
    trunk = SimpleNamespace(sources={"made": None}, stored={})
    query: Any = SimpleNamespace(
        fragment=fragment,
        plan=plan,
        directory=rundir.fragment(fragment.id),
        branches=SimpleNamespace(nodes=[]),
        trunk=trunk,
        readers={},
        figures=QueryFigures(1, BlockedTime),
    )
    files = CheckpointFiles(rundir.home)
    return Participation(query, CheckpointBook(), files, {}, transactional=transactional)


def test_a_state_that_is_lost_again_after_a_restore_is_missed_again(plan: Plan, rundir: RunDirectory) -> None:
    begun(plan, rundir)
    first, files = plan.fragments[0], CheckpointFiles(rundir.home)
    for fragment in plan.fragments:
        files.lives.note(fragment.id, 1)
    (rundir.fragment(first.id) / "checkpoint" / "metadata").unlink()
    assert restore_lost(plan, rundir, {}) is not None
    assert not is_lost(first, rundir), "it begins anew, and has nothing to lose yet"

    participation(plan, rundir, first).start()
    checkpoint = ran(rundir, first.id, 1)
    assert not is_lost(first, rundir)
    (checkpoint / "metadata").unlink()
    assert is_lost(first, rundir)
    assert restore_lost(plan, rundir, {}) is not None


@pytest.mark.parametrize("transactional", [True, False])
def test_a_fragment_has_begun_its_life_when_its_query_starts(
    plan: Plan, rundir: RunDirectory, transactional: bool
) -> None:
    (fragment, _), files = plan.fragments, CheckpointFiles(rundir.home)
    part = participation(plan, rundir, fragment, transactional=transactional)
    assert files.lives.newest(fragment.id) == 0
    part.start()
    assert files.lives.newest(fragment.id) == (1 if transactional else 0), (
        "what it gives others can be lost from now"
    )

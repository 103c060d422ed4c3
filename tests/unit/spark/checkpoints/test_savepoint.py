"""Savepoints without Spark: what is copied, what is refused, and what an empty directory is made of."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from drivetrain.api import Application, agg, sinks, sources
from drivetrain.core.channel.channel_log import Entry
from drivetrain.core.checkpoint.transaction import (
    Action,
    CheckpointRecord,
    Command,
    Phase,
    Snapshot,
    Transaction,
)
from drivetrain.core.plan.plan import Plan
from drivetrain.core.plan.planner import plan as make_plan
from drivetrain.errors import OutputError, UnavailableError, UserError
from drivetrain.runtime.batch_versions import BatchVersions
from drivetrain.runtime.channel.store import ChannelStore
from drivetrain.runtime.checkpoints import checkpoint_parts
from drivetrain.runtime.checkpoints.savepoint import newest_record, write_savepoint
from drivetrain.runtime.checkpoints.savepoint_manifest import (
    MANIFEST,
    SavepointError,
    read_manifest,
    verified,
)
from drivetrain.runtime.checkpoints.savepoint_requests import SavepointRequests, make_savepoint
from drivetrain.runtime.checkpoints.snapshots import Snapshots
from drivetrain.runtime.checkpoints.transaction_file import CheckpointFiles
from drivetrain.runtime.clock_file import ClockFile
from drivetrain.runtime.run_directory import RunDirectory
from drivetrain.spark.checkpoints.entries import note_entries
from drivetrain.spark.checkpoints.from_savepoint import OpenedSavepoint

BARRIER = Command(Action.PREPARE, 4, 9, 1)


def chained(*, also: bool = False, key: str = "key") -> Plan:
    """Two stateful fragments with a channel between them, behind a source that is stored at its end."""
    app = Application("app")
    words = app.read(sources.items(["a"], schema="value string"), name="words")
    counted = words.group_by(**{key: "value"}).aggregate(step="counted", n=agg.count())
    again = counted.group_by("n").aggregate(step="again", m=agg.count())
    again.sink(sinks.none(), name="out")
    if also:
        again.filter("m > 1").sink(sinks.none(), name="also")
    return make_plan(app.graph())


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


class Ran:
    """The directory of an application that has run, stopped at its checkpoint of transaction 4, round 9."""

    def __init__(self, directory: Path) -> None:
        self.plan = chained()
        self.rundir = RunDirectory(str(directory), "app", {"input": "x"})
        self.rundir.acquire()
        self.rundir.begin(self.plan)
        channel = self.plan.channels[0]
        self.channel = channel.id
        producer = ChannelStore(self.rundir.channel(channel.id), fragment="counted")
        for batch in range(3):
            producer.append(batch, (), 1_000 * batch)
        producer.append_barrier(BARRIER)
        self.store = ChannelStore(self.rundir.store("words"), fragment="ingest")
        for rows in range(1, 6):
            self.store.append(rows, (), rows)
        self.record = CheckpointRecord(
            4,
            9,
            {
                "counted": Snapshot(2, sources={"words": '{"entry": 3}'}),
                "again": Snapshot(1, channels={channel.id: 4}),
            },
        )
        snapshots = Snapshots(CheckpointFiles(self.rundir.home).snapshots)
        for fragment, snapshot in self.record.fragments.items():
            own = self.rundir.fragment(fragment)
            write(own / "checkpoint" / "metadata", "{}")
            conf = '{"conf": {"spark.sql.shuffle.partitions": "3"}}'
            for batch in range(snapshot.batch_id + 1):
                write(own / "checkpoint" / "offsets" / str(batch), f"v1\n{conf}\n-")
                write(own / "checkpoint" / "commits" / str(batch), "v1\n{}")
            write(own / "checkpoint" / "state" / "0" / "0" / f"{snapshot.batch_id + 1}.zip", fragment)
            readers = {channel.id: producer} if fragment == "again" else {}
            note_entries(own, snapshot.channels, readers)
            BatchVersions(own).note(0, 3)
            snapshots.take(fragment, 9, own, snapshot.batch_id)
        write(self.rundir.path / "sinks" / "out" / "output-token", "token")
        write(self.rundir.path / "sinks" / "out" / "outbox" / "batches" / "7.json", "prepared")
        ClockFile(self.rundir.home / "clock").write(500)
        self.persist(Phase.COMMITTED)

    def persist(self, phase: Phase) -> None:
        files = CheckpointFiles(self.rundir.home)
        files.persist(Transaction(4, phase, 9, 1, record=self.record))

    def save(self, place: Path) -> Path:
        write_savepoint(self.rundir, place, lambda: self.record, lambda: 500)
        return place


@pytest.fixture
def ran(tmp_path: Path) -> Ran:
    return Ran(tmp_path / "state")


def test_what_goes_on_from_a_savepoint_has_all_that_it_needs(ran: Ran, tmp_path: Path) -> None:
    saved = OpenedSavepoint(ran.save(tmp_path / "saved"))
    new = RunDirectory(str(tmp_path / "elsewhere"), "app", {"input": "y"})
    new.acquire()
    saved.require_fits(chained(also=True), new, fresh=False)
    new.take_over(saved.manifest.life.elsewhere())
    saved.bring_into(chained(also=True), new)
    new.begin(chained(also=True))
    new.taken_over()
    assert new.life.number == 2
    assert new.life.first_batch > 1_000_000
    for fragment in ("counted", "again"):
        state = new.fragment(fragment) / "checkpoint" / "state" / "0" / "0"
        assert [file.read_text() for file in state.iterdir()] == [fragment]
        assert BatchVersions(new.fragment(fragment)).newest() is None, "version 3 is one of the saved one"
    files = CheckpointFiles(new.home)
    transaction = files.transaction()
    assert transaction is not None
    assert (transaction.phase, transaction.record) == (Phase.COMMITTED, ran.record)
    assert files.lives.newest("counted") == transaction.life
    channel = ChannelStore(new.channel(ran.channel), fragment="counted")
    assert (channel.start(), channel.length(), channel.last_batch()) == (3, 4, 2)
    assert channel.read_entry(3) == Entry(3, "counted", 0, 2, (), 2_000)
    assert channel.position_of("again") == 4
    store = ChannelStore(new.store("words"))
    assert (store.position_of("counted"), store.length()) == (3, 5)
    assert (new.path / "sinks" / "out" / "output-token").read_text() == "token"
    assert not (new.path / "sinks" / "out" / "outbox").exists()
    assert ClockFile(new.home / "clock").read() == 500
    assert "counted in 3" in saved.notice(2)


def test_a_fragment_that_had_started_late_has_numbers_of_the_new_life(ran: Ran, tmp_path: Path) -> None:
    """Or outputs would mistake its batches for those that the saved application has published since."""
    ran.rundir.places.prepare("again", [], [])
    first = ran.rundir.places.first_batch("again")
    shutil.copy(
        ran.rundir.fragment("again") / "first-batch",
        Snapshots(CheckpointFiles(ran.rundir.home).snapshots).place("again", 9),
    )
    place = ran.save(tmp_path / "saved")
    for copied_by in (None, "a machine"):
        saved = OpenedSavepoint(place, copied_by=copied_by)
        new = RunDirectory(str(tmp_path / f"for {copied_by}"), "app", {})
        new.acquire()
        new.take_over(saved.life)
        saved.bring_into(ran.plan, new)
        assert new.places.first_batch("again") == (first if copied_by else saved.life.first_batch)


def test_a_copied_checkpoint_keeps_the_versions_of_its_batches(ran: Ran, tmp_path: Path) -> None:
    saved = OpenedSavepoint(ran.save(tmp_path / "saved"), copied_by="a machine")
    new = RunDirectory(str(tmp_path / "elsewhere"), "app", {"input": "x"})
    new.acquire()
    new.take_over(saved.life)
    saved.bring_into(chained(), new)
    assert {BatchVersions(new.fragment(fragment)).newest() for fragment in ("counted", "again")} == {3}


def test_a_crash_while_it_is_brought_in_leaves_an_empty_directory(ran: Ran, tmp_path: Path) -> None:
    saved = OpenedSavepoint(ran.save(tmp_path / "saved"))
    new = RunDirectory(str(tmp_path / "elsewhere"), "app", {})
    new.acquire()
    new.take_over(saved.manifest.life.elsewhere())
    saved.bring_into(ran.plan, new)
    new.begin(ran.plan)
    new.release()  # it dies before it says that all of it counts
    again = RunDirectory(str(tmp_path / "elsewhere"), "app", {})
    again.acquire()
    assert not again.started
    assert [path.name for path in again.path.iterdir()] == ["lock"]


DAMAGES: dict[str, Callable[[Path], Any]] = {
    "flipped": lambda file: file.write_bytes(bytes([file.read_bytes()[0] ^ 1]) + file.read_bytes()[1:]),
    "truncated": lambda file: file.write_bytes(file.read_bytes()[:-1]),
    "longer": lambda file: file.write_bytes(file.read_bytes() + b"x"),
    "deleted": lambda file: file.unlink(),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_of_any_file_is_found(ran: Ran, tmp_path: Path, damage: str) -> None:
    whole = ran.save(tmp_path / "saved")
    names = [*verified(whole).files, MANIFEST]
    assert len(names) > 10
    for name in names:
        copy = tmp_path / "copy"
        shutil.copytree(whole, copy)
        DAMAGES[damage](copy / name)
        with pytest.raises(SavepointError):
            verified(copy)
        shutil.rmtree(copy)


def test_a_file_more_and_an_unknown_format_are_refused(ran: Ran, tmp_path: Path, monkeypatch: Any) -> None:
    place = ran.save(tmp_path / "saved")
    write(place / "sinks" / "out" / "more", "x")
    with pytest.raises(SavepointError, match="damaged or incomplete"):
        verified(place)
    monkeypatch.setattr(checkpoint_parts, "FORMAT", 2)
    newer = ran.save(tmp_path / "newer")
    with pytest.raises(SavepointError, match="another version"):
        verified(newer)


def test_what_is_saved_is_kept_while_it_is_copied_and_forgotten_later(ran: Ran, tmp_path: Path) -> None:
    snapshots = Snapshots(CheckpointFiles(ran.rundir.home).snapshots)

    def make() -> CheckpointRecord:
        snapshots.take("again", 10, ran.rundir.fragment("again"), 1)
        snapshots.forget("again", 10)  # the application goes on, and commits the next one
        return ran.record

    write_savepoint(ran.rundir, tmp_path / "saved", make, lambda: None)
    verified(tmp_path / "saved")
    assert snapshots.rounds("again") == [9, 10]
    snapshots.forget("again", 10)
    assert snapshots.rounds("again") == [10]


def test_nothing_is_left_when_it_cannot_be_made(ran: Ran, tmp_path: Path) -> None:
    def fail() -> CheckpointRecord:
        raise UnavailableError("no checkpoint was taken")

    with pytest.raises(UnavailableError):
        write_savepoint(ran.rundir, tmp_path / "out" / "saved", fail, lambda: None)
    assert list((tmp_path / "out").iterdir()) == []
    write(tmp_path / "taken" / "file", "x")
    with pytest.raises(OutputError, match="place of the savepoint is not empty"):
        ran.save(tmp_path / "taken")


def test_messages_of_a_source_that_were_deleted_meanwhile_are_not_left_out(ran: Ran, tmp_path: Path) -> None:
    def trimmed() -> CheckpointRecord:
        for number in range(4):
            ran.store.files.delete(f"log/{number:020d}.json")
        return ran.record

    with pytest.raises(UnavailableError, match="deleted during the copy"):
        write_savepoint(ran.rundir, tmp_path / "saved", trimmed, lambda: None)
    assert not (tmp_path / "saved").exists()


def test_another_state_is_refused_with_what_differs(ran: Ran, tmp_path: Path) -> None:
    saved = OpenedSavepoint(ran.save(tmp_path / "saved"))
    new = RunDirectory(str(tmp_path / "elsewhere"), "app", {})
    with pytest.raises(SavepointError) as refused:
        saved.require_fits(chained(key="other"), new, fresh=False)
    assert "counted" in str(refused.value.got)
    with pytest.raises(UserError, match="already has a state here"):
        saved.require_fits(ran.plan, ran.rundir, fresh=False)
    saved.require_fits(ran.plan, ran.rundir, fresh=True)


def test_of_an_application_that_stands_still_the_newest_checkpoint_is_taken(ran: Ran, tmp_path: Path) -> None:
    ran.rundir.release()
    make_savepoint(ran.rundir, tmp_path / "saved", 1_000)
    assert read_manifest(tmp_path / "saved").clock_ms == 500
    write(ran.rundir.fragment("again") / "checkpoint" / "commits" / "2", "v1")
    with pytest.raises(UserError, match="again continued after the last"):
        newest_record(ran.rundir)
    CheckpointFiles(ran.rundir.home).note_periodic(True, has_published=False)
    assert newest_record(ran.rundir) == ran.record
    ran.persist(Phase.COMMITTING)
    with pytest.raises(UserError, match="while it published"):
        newest_record(ran.rundir)
    ran.persist(Phase.COMMITTED)
    ran.rundir.places.prepare("again", [], [])  # after it has left
    with pytest.raises(UserError, match="again started after its newest checkpoint"):
        newest_record(ran.rundir)


def test_who_runs_it_answers_requests(ran: Ran, tmp_path: Path) -> None:
    """The asker is another process in general: here a thread, and the run's poll is this test's."""
    import threading

    asked: list[BaseException | None] = []

    def ask(place: Path) -> None:
        try:
            make_savepoint(RunDirectory(str(tmp_path / "state"), "app", {"input": "x"}), place, 20_000)
            asked.append(None)
        except BaseException as error:  # noqa: BLE001 - looked at below
            asked.append(error)

    requests = SavepointRequests(
        ran.rundir, lambda place, _: write_savepoint(ran.rundir, place, lambda: ran.record, lambda: 1)
    )
    for place in (tmp_path / "saved", tmp_path / "state"):
        asker = threading.Thread(target=ask, args=(place,))
        asker.start()
        while asker.is_alive():
            requests.look()
            asker.join(0.01)
    verified(tmp_path / "saved")
    assert asked[0] is None
    assert isinstance(asked[1], OutputError)
    assert not any((ran.rundir.path / "savepoints-wanted").iterdir())


def test_nobody_waits_for_a_run_that_has_ended(ran: Ran, tmp_path: Path) -> None:
    import threading

    ended: list[BaseException] = []

    def ask() -> None:
        asker = RunDirectory(str(tmp_path / "state"), "app", {"input": "x"})
        with pytest.raises(UnavailableError) as refused:
            make_savepoint(asker, tmp_path / "saved", 30_000)
        ended.append(refused.value)

    asker = threading.Thread(target=ask)
    asker.start()
    while not (ran.rundir.path / "savepoints-wanted").exists():
        asker.join(0.01)
    ran.rundir.release()
    asker.join(20)
    assert "ended meanwhile" in str(ended[0])

"""What an application master reads and records of an application's versions, in a real state directory."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from drivetrain import Application, sinks, sources
from drivetrain.cluster.app_master.stream.planned_application import Planned, vertices_of
from drivetrain.cluster.app_master.stream.stored_versions import Compiled, StoredVersions
from drivetrain.cluster.app_master.stream.stream_progress import Shown
from drivetrain.cluster.messages.changing import ChangeConfiguration
from drivetrain.config import Config
from drivetrain.core.change.change_state import ChangeState
from drivetrain.core.change.graph_version import GraphVersion, version_of
from drivetrain.core.change.live_change import Change, Outcome, RecordOutcome, Stage
from drivetrain.core.plan.plan import Plan
from drivetrain.core.plan.planner import plan
from drivetrain.errors import UnavailableError, UserError
from drivetrain.runtime.preparation import Preparer
from drivetrain.runtime.run_directory import RunDirectory

ME, NEXT = Preparer("app-1", 1, "am#1"), Preparer("app-1", 2, "am#2")
ID = "0" * 32


def planned(condition: str) -> Plan:
    app = Application("app")
    app.read(sources.generate(rows=9), name="read").filter(condition, name="kept").sink(
        sinks.none(), name="out"
    )
    return plan(app.graph())


def version(condition: str) -> GraphVersion:
    return version_of(planned(condition), lambda operation: repr(operation))


@pytest.fixture
def rundir(tmp_path: Path) -> RunDirectory:
    """A state directory that the first application master's executors have prepared, with one version."""
    made = RunDirectory(str(tmp_path), "app", {})
    made.acquire()
    made.begin(planned("id > 1"), version("id > 1"), b"code 1")
    made.preparation.note(ME, {})
    return made


def stored(tmp_path: Path, me: Preparer = ME) -> StoredVersions:
    graph = planned("id > 1")
    config = Config.load(None, {}, {"state.dir": str(tmp_path)})
    return StoredVersions(Planned(vertices_of(graph), graph, "app", {}), config, me)


def compiled(number: int = 2, against: int = 1, source: int = 0) -> Compiled:
    return Compiled(ID, source, against, Change(number, against, frozenset({"read"})), ("out",), Shown())


def test_a_version_is_recorded_from_its_proposal_and_its_trial_ends_once(
    rundir: RunDirectory, tmp_path: Path
) -> None:
    mine = stored(tmp_path)
    assert mine.stands() == (ChangeState(1), None)
    rundir.versions.propose(ID, version("id > 2"), b"code 2")
    mine.record(compiled())
    record = rundir.versions.version(2)
    assert (record.made_how, record.follows, record.new_sinks) == ("update", 1, ("out",))
    assert rundir.versions.code(2) == b"code 2"
    assert not list((rundir.path / "versions").glob("proposed-*"))
    change = Change(2, 1, frozenset({"read"}))
    assert mine.stands() == (ChangeState(2), change)
    mine.record_outcome(RecordOutcome(change, Outcome.ROLLED_BACK, "read", "it failed"))
    mine.record_outcome(RecordOutcome(change, Outcome.DONE))
    ending = rundir.versions.ending(2)
    assert ending is not None
    assert (ending.outcome, ending.to_remove) == (Outcome.ROLLED_BACK, ("out",))
    ended = ChangeState(1, Stage.IDLE, 2, 1, (), Outcome.ROLLED_BACK, "read", "it failed")
    assert mine.stands() == (ended, None)


def test_an_application_master_that_was_replaced_records_nothing(
    rundir: RunDirectory, tmp_path: Path
) -> None:
    rundir.versions.propose(ID, version("id > 2"), b"code 2")
    rundir.preparation.note(NEXT, {})
    with pytest.raises(UnavailableError, match="another application master has this application"):
        stored(tmp_path).record(compiled())
    assert rundir.versions.numbers() == [1]
    stored(tmp_path, NEXT).record(compiled())
    change = Change(2, 1, frozenset({"read"}))
    with pytest.raises(UnavailableError, match="another application master has this application"):
        stored(tmp_path).record_outcome(RecordOutcome(change, Outcome.DONE))
    assert rundir.versions.ending(2) is None


def test_a_version_is_recorded_only_after_the_one_that_it_was_compared_with(
    rundir: RunDirectory, tmp_path: Path
) -> None:
    rundir.versions.propose(ID, version("id > 2"), b"code 2")
    for other in (compiled(number=3), compiled(number=2, against=4)):
        with pytest.raises(UnavailableError, match="has changed meanwhile"):
            stored(tmp_path).record(other)
    assert rundir.versions.numbers() == [1]


def test_going_back_takes_the_code_that_was_kept(rundir: RunDirectory, tmp_path: Path) -> None:
    mine = stored(tmp_path)
    rundir.versions.propose(ID, version("id > 2"), b"code 2")
    mine.record(compiled())
    mine.record_outcome(RecordOutcome(Change(2, 1, frozenset({"read"})), Outcome.DONE))
    mine.record(compiled(number=3, against=2, source=1))
    assert (rundir.versions.version(3).made_how, rundir.versions.code(3)) == ("rollback", b"code 1")
    (rundir.path / "versions" / "2.graph").unlink()
    mine.record_outcome(RecordOutcome(Change(3, 2, frozenset({"read"})), Outcome.DONE))
    with pytest.raises(UserError, match="code of version 2 was not kept"):
        mine.record(compiled(number=4, against=3, source=2))


def test_pages_of_versions_fit_into_messages_and_join_to_all(rundir: RunDirectory, tmp_path: Path) -> None:
    for number in range(2, 30):
        made = version(f"id > {number}")
        kept = msgspec.structs.replace(made.processors["kept"], line="x" * 20_000)
        processors = {**made.processors, "kept": kept}
        rundir.versions.note(msgspec.structs.replace(made, processors=processors), "update", b"")
        rundir.versions.note_ending(number, Outcome.DONE, None, "y" * 9_000)
    mine, found, before = stored(tmp_path), [], None
    while True:
        page = mine.page(before)
        assert len(msgspec.msgpack.encode(page)) < 256 * 1024
        found += [each.record.number for each in page.versions]
        before = page.before
        if before is None:
            break
    assert found == list(range(29, 0, -1))
    assert (page.in_force, page.application) == (29, "app")
    (rundir.path / "versions" / "29").write_text("torn")
    assert mine.page(None).error is not None


def test_configuration_is_changed_by_the_application_master_that_prepared_the_application(
    rundir: RunDirectory, tmp_path: Path
) -> None:
    mine, late = stored(tmp_path), stored(tmp_path, NEXT)
    answer = mine.configure(ChangeConfiguration({"run.batch-target": "2 s"}))
    assert [(each.name, each.after) for each in answer.changed] == [("run.batch-target", "2 s")]
    assert answer.error is None
    for refused, request in (
        (late, ChangeConfiguration({"run.batch-target": "3 s"})),
        (mine, ChangeConfiguration({"run.batch-target": "soon"})),
        (mine, ChangeConfiguration({"cluster.masters": "203.0.113.7:1"})),
        (mine, ChangeConfiguration({}, ("state.dir",))),
    ):
        answer = refused.configure(request)
        assert (answer.changed, answer.error is None) == ((), False), request
    assert mine.configure(ChangeConfiguration({"run.batch-target": "2 s"})).changed == ()
    [back] = mine.configure(ChangeConfiguration({}, ("run.batch-target",))).changed
    assert back.before == "2 s"

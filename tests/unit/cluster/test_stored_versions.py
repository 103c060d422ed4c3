"""What an application master reads and records of an application's versions, in a real state directory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from drivetrain import Application, sinks, sources
from drivetrain.cluster.app_master.stream.planned_application import PlannedApplication, vertices_of
from drivetrain.cluster.app_master.stream.stored_versions import (
    CompiledChange,
    CompiledHistory,
    StoredVersions,
)
from drivetrain.cluster.app_master.stream.stream_progress import VersionStatus
from drivetrain.cluster.messages.changing import ChangeConfiguration
from drivetrain.config import Config
from drivetrain.core.change.change_events import Change, Outcome, RecordOutcome
from drivetrain.core.change.change_state import ChangeState
from drivetrain.core.change.graph_version import GraphVersion, Made, version_of
from drivetrain.core.change.handover import Handover
from drivetrain.core.change.live_change import Stage
from drivetrain.core.plan.plan import Plan
from drivetrain.core.plan.planner import plan
from drivetrain.errors import UnavailableError
from drivetrain.runtime.batch_versions import BatchVersions
from drivetrain.runtime.durable_file import Keep
from drivetrain.runtime.former_messages import FormerMessages, channel_aside
from drivetrain.runtime.handover_pause import HandoverPause, HandoverPauseFile
from drivetrain.runtime.preparation import Preparer
from drivetrain.runtime.run_directory import RunDirectory
from drivetrain.runtime.wanted_history import WantedHistory, WantedHistoryFile

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


def stored(tmp_path: Path, me: Preparer = ME, keep: Keep | None = None) -> StoredVersions:
    graph = planned("id > 1")
    config = Config.load(None, {}, {"state.dir": str(tmp_path)})
    return StoredVersions(PlannedApplication(vertices_of(graph), graph, "app", {}), config, me, keep)


def compiled(number: int = 2, against: int = 1, how: Made = "update") -> CompiledChange:
    return CompiledChange(ID, how, against, Change(number, against, frozenset({"read"})), VersionStatus())


def proposal(condition: str) -> GraphVersion:
    """A version as executors have completed it."""
    return msgspec.structs.replace(version(condition), new_sinks=("out",))


def test_a_version_is_recorded_from_its_proposal_and_its_trial_ends_once(
    rundir: RunDirectory, tmp_path: Path
) -> None:
    mine = stored(tmp_path)
    assert (mine.begin().state, mine.read_state().change) == (ChangeState(1), None)
    rundir.versions.propose(ID, proposal("id > 2"), b"code 2")
    mine.record(compiled())
    record = rundir.versions.version(2)
    assert (record.made_how, record.follows, record.new_sinks) == ("update", 1, ("out",))
    assert rundir.versions.code(2) == b"code 2"
    assert not list((rundir.path / "versions").glob("proposed-*"))
    change = Change(2, 1, frozenset({"read"}))
    assert (mine.read_state().state, mine.read_state().change) == (ChangeState(2), change)
    assert mine.read_state().participants == {"read": True}
    mine.record_outcome(RecordOutcome(change, Outcome.ROLLED_BACK, "read", "it failed"))
    mine.record_outcome(RecordOutcome(change, Outcome.DONE))
    ending = rundir.versions.ending(2)
    assert ending is not None
    assert (ending.outcome, ending.to_remove) == (Outcome.ROLLED_BACK, ("out",))
    ended = ChangeState(1, Stage.IDLE, 2, 1, (), Outcome.ROLLED_BACK, "read", "it failed")
    assert (mine.read_state().state, mine.read_state().change) == (ended, None)


def test_what_is_decided_is_noted_elsewhere_before_it_is_here(rundir: RunDirectory, tmp_path: Path) -> None:
    noted: list[tuple[dict[str, bytes], list[int], bool]] = []
    refusals: list[UnavailableError] = []

    def keep(files: Mapping[str, bytes]) -> None:
        noted.append((dict(files), rundir.versions.numbers(), rundir.versions.ending(2) is not None))
        if refusals:
            raise refusals.pop()

    mine, change = stored(tmp_path, keep=keep), Change(2, 1, frozenset({"read"}))
    rundir.versions.propose(ID, proposal("id > 2"), b"code 2")
    refusals.append(UnavailableError("the store does not answer"))
    with pytest.raises(UnavailableError, match="does not answer"):
        mine.record(compiled())
    assert rundir.versions.numbers() == [1], "nothing has changed"
    mine.record(compiled())
    refusals.append(UnavailableError("the store does not answer"))
    with pytest.raises(UnavailableError, match="does not answer"):
        mine.record_outcome(RecordOutcome(change, Outcome.DONE))
    assert rundir.versions.ending(2) is None
    mine.record_outcome(RecordOutcome(change, Outcome.DONE))
    assert [(list(files), *before) for files, *before in noted] == [
        (["versions/2"], [1], False),
        (["versions/2"], [1], False),
        (["versions/2.outcome"], [1, 2], False),
        (["versions/2.outcome"], [1, 2], False),
    ]
    for name in ("versions/2", "versions/2.outcome"):
        here = (rundir.path / name).read_bytes()
        assert here == [files[name] for files, *_ in noted if name in files][-1]


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


def timed(id: str = ID) -> CompiledChange:
    change = Change(2, 1, frozenset({"read"}))
    return CompiledChange(id, "update", 1, change, VersionStatus(), at=5_000, at_ms=5_000)


def test_a_version_at_an_event_time_is_recorded_while_its_fragments_pause(
    rundir: RunDirectory, tmp_path: Path
) -> None:
    mine, file = stored(tmp_path), HandoverPauseFile(rundir.path)
    rundir.versions.propose(ID, version("id > 2"), b"code 2")
    with pytest.raises(UnavailableError, match="do not pause any more"):
        mine.record(timed())
    mine.pause(timed("1" * 32))
    with pytest.raises(UnavailableError, match="do not pause any more"):
        mine.record(timed())
    assert rundir.versions.numbers() == [1]
    mine.pause(timed())
    assert file.read() == HandoverPause(ID, 2, ("read",))
    state_read = mine.record(timed())
    assert file.read() is None
    assert state_read.handover == Handover(2, 1, 5_000, frozenset({"read"}))
    assert (state_read.alone, rundir.versions.version(2).at_ms) == (frozenset(), 5_000)
    rundir.fragment("read").mkdir(parents=True, exist_ok=True)
    noted = BatchVersions(rundir.fragment("read"))
    noted.note(4, 2, before=1)
    assert mine.read_state().handover == state_read.handover
    noted.note(5, 3)
    assert mine.read_state().alone == frozenset(), "version 3 was rolled back, and 2 has not run alone"
    noted.note(6, 2)
    assert mine.read_state().handover is None


def test_an_application_master_ends_the_pause_of_the_one_before(rundir: RunDirectory, tmp_path: Path) -> None:
    before, file = stored(tmp_path), HandoverPauseFile(rundir.path)
    rundir.versions.propose(ID, version("id > 2"), b"code 2")
    before.pause(timed())
    rundir.preparation.note(NEXT, {})
    with pytest.raises(UnavailableError, match="another application master has this application"):
        before.end_pause()
    assert file.read() is not None
    stored(tmp_path, NEXT).begin()
    assert file.read() is None
    with pytest.raises(UnavailableError, match="another application master has this application"):
        before.record(timed())


def with_history(mine: StoredVersions, rundir: RunDirectory) -> CompiledChange:
    """A change to a version with one more fragment, which also gets the messages from 5 ms on."""
    record = msgspec.structs.replace(with_one_more(2), history_ms=5, history_of=("read",))
    rundir.versions.propose(ID, record, b"code 2")
    change, history = mine.proposed(ID)
    assert history == CompiledHistory(5, ("more",), {"read": ("tap--more",)})
    return CompiledChange(ID, "update", 1, change, VersionStatus(), history=history)


def test_former_messages_are_in_their_place_when_their_version_is_recorded(
    rundir: RunDirectory, tmp_path: Path
) -> None:
    mine, file = stored(tmp_path), WantedHistoryFile(rundir.path)
    compiled = with_history(mine, rundir)
    other = FormerMessages(rundir, "f" * 32).of("read")
    other.mkdir(parents=True)
    mine.want_history(compiled)
    assert file.read() == WantedHistory(ID, 2, {"read": ("tap--more",)})
    assert not other.exists(), "those of an earlier change were to be deleted"
    aside = channel_aside(FormerMessages(rundir, ID).of("read"), "tap--more")
    aside.mkdir(parents=True)
    (aside / "begins").write_text("whole")
    with pytest.raises(UnavailableError, match="the fragments do not pause any more"):
        mine.record(compiled)
    assert aside.exists()
    mine.pause(compiled)
    pause = HandoverPauseFile(rundir.path).read()
    assert pause is not None
    assert (pause.touched, pause.has_history) == (("read",), True)
    assert mine.record(compiled).state.version == 2
    assert (Path(rundir.channel("tap--more")) / "begins").read_text() == "whole"
    assert not aside.exists()
    assert (file.read(), HandoverPauseFile(rundir.path).read()) == (None, None)
    assert rundir.versions.version(2).history_ms == 5


def test_former_messages_that_nobody_waits_for_are_not_wanted_any_more(
    rundir: RunDirectory, tmp_path: Path
) -> None:
    mine, file = stored(tmp_path), WantedHistoryFile(rundir.path)
    mine.want_history(with_history(mine, rundir))
    mine.forget_history(ID)
    assert file.read() is None
    assert not rundir.versions.has_proposal(ID)
    mine.want_history(with_history(mine, rundir))
    rundir.preparation.note(NEXT, {})
    with pytest.raises(UnavailableError, match="another application master has this application"):
        mine.forget_history(ID)
    stored(tmp_path, NEXT).begin()
    assert file.read() is None


def test_going_back_takes_the_code_that_was_kept(rundir: RunDirectory, tmp_path: Path) -> None:
    mine = stored(tmp_path)
    rundir.versions.propose(ID, version("id > 2"), b"code 2")
    mine.record(compiled())
    mine.record_outcome(RecordOutcome(Change(2, 1, frozenset({"read"})), Outcome.DONE))
    rundir.versions.propose(ID, rundir.versions.version(1), b"code 1")
    mine.record(compiled(number=3, against=2, how="rollback"))
    assert (rundir.versions.version(3).made_how, rundir.versions.code(3)) == ("rollback", b"code 1")


def test_a_trial_that_nobody_can_decide_ends_when_an_application_master_begins(
    rundir: RunDirectory, tmp_path: Path
) -> None:
    rundir.versions.note(version("id > 2"), "update", b"code 2")
    (rundir.path / "versions" / "1").write_text("torn")
    state_read = stored(tmp_path).begin()
    assert (state_read.state.version, state_read.state.outcome, state_read.change) == (2, Outcome.DONE, None)
    assert not rundir.versions.is_on_trial(rundir.versions.version(2))


def test_the_files_say_which_fragments_run_hold_and_leave(rundir: RunDirectory, tmp_path: Path) -> None:
    mine = stored(tmp_path)
    rundir.versions.propose(ID, with_one_more(2), b"code 2")
    change, history = mine.proposed(ID)
    assert history is None
    assert (change.starts, change.leaves) == (("more",), ())
    state_read = mine.record(CompiledChange(ID, "update", 1, change, VersionStatus()))
    assert [(v.fragment, v.producers) for v in state_read.vertices] == [("read", ()), ("more", ("read",))]
    assert (rundir.fragment("more") / "first-batch").exists(), "its place was to be prepared"
    state_read = mine.record_outcome(RecordOutcome(change, Outcome.ROLLED_BACK, "more", "it failed"))
    assert state_read.state.version == 1
    assert state_read.leaving == {"more": {"tap--more": "read"}}
    assert [v.fragment for v in state_read.vertices] == ["read", "more"]
    rundir.versions.note_leaving(2, "more", None)
    assert [v.fragment for v in mine.read_state().vertices] == ["read"]
    rundir.versions.propose(ID, with_one_more(3), b"code 3")
    mine.record(CompiledChange(ID, "update", 1, mine.proposed(ID)[0], VersionStatus()))
    mine.record_outcome(RecordOutcome(mine.read_state().change or change, Outcome.DONE))
    rundir.versions.propose(ID, msgspec.structs.replace(version("id > 1"), number=4), b"code 4")
    leaves, _ = mine.proposed(ID)
    state_read = mine.record(CompiledChange(ID, "update", 3, leaves, VersionStatus()))
    assert (leaves.leaves, state_read.leaving) == (("more",), {}), "the application may return to it"
    assert [v.fragment for v in state_read.vertices] == ["read", "more"]
    mine.record_outcome(RecordOutcome(leaves, Outcome.DONE))
    assert rundir.versions.leaving() == [(4, "more", "drains")]


def with_one_more(number: int) -> GraphVersion:
    """A version with one more fragment, as executors have completed it."""
    app = Application("app")
    kept = app.read(sources.generate(rows=9), name="read").filter("id > 1", name="kept")
    kept.sink(sinks.none(), name="out")
    tapped = kept.filter("id > 0", name="tap").cut()
    tapped.filter("id > 2", name="more").sink(sinks.none(), name="also")
    made = version_of(plan(app.graph()), lambda operation: repr(operation))
    return msgspec.structs.replace(made, number=number)


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

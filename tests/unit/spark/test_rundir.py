"""State directories: one process at a time, never continued with another graph, whole files only."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from drivetrain.api import Application, agg, sinks, sources
from drivetrain.core.change.change_events import Outcome
from drivetrain.core.change.graph_version import state_shape
from drivetrain.core.plan.plan import Plan
from drivetrain.core.plan.planner import plan
from drivetrain.errors import DiskFullError, InputError, OutputError, UnavailableError, UserError
from drivetrain.runtime.lock_marks import LostLockError
from drivetrain.runtime.planned_version import planned_version
from drivetrain.runtime.preparation import Preparer
from drivetrain.runtime.run_directory import RunDirectory

HOLDER = """
import sys
from drivetrain.runtime.run_directory import RunDirectory
held = RunDirectory(sys.argv[1], "app", {})
held.acquire()
print("locked", flush=True)
sys.stdin.read()
"""


FIRST, SECOND = Preparer("app-1", 1, "one"), Preparer("app-1", 2, "two")


def directory(tmp_path: Path, **settings: Any) -> RunDirectory:
    return RunDirectory(str(tmp_path), "app", settings)


@pytest.fixture
def held(tmp_path: Path) -> RunDirectory:
    made = directory(tmp_path)
    made.acquire()
    return made


def counting(
    by: str = "value", sink: str = "out", *, extra_branch: bool = False, extra_fragment: bool = False
) -> Plan:
    app = Application("app")
    counted = (
        app.read(sources.text("/in"), name="lines").group_by(by).aggregate(step="counted", n=agg.count())
    )
    counted.sink(sinks.none(), name=sink)
    if extra_branch:
        counted.filter("n > 1", name="often").sink(sinks.none(), name="aside")
    if extra_fragment:
        again = counted.group_by("n").aggregate(step="again", same=agg.count())
        again.sink(sinks.none(), name="counts")
    return plan(app.graph())


# -- one process at a time ------------------------------------------------------------------------------


def test_a_second_process_is_refused_until_the_first_is_killed(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        with pytest.raises(UnavailableError, match="already running"):
            directory(tmp_path).acquire()
        holder.send_signal(signal.SIGKILL)
        holder.wait(10)
        after = directory(tmp_path)
        after.acquire()
        after.release()
    finally:
        holder.kill()
        holder.communicate(timeout=60)


def test_a_released_directory_can_be_taken_again(tmp_path: Path, held: RunDirectory) -> None:
    other = directory(tmp_path)
    with pytest.raises(UnavailableError):
        other.acquire()
    held.release()
    held.release()
    other.acquire()


def test_other_settings_are_another_application_and_the_same_are_the_same(tmp_path: Path) -> None:
    here = directory(tmp_path, input="a", n=1)
    assert here.path == directory(tmp_path, n=1, input="a").path
    assert here.path != directory(tmp_path, input="b", n=1).path
    assert here.app_id.startswith("app-")


def test_a_state_directory_that_cannot_be_made_is_told_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot be written") as caught:
        RunDirectory(str(tmp_path / "file"), "app", {}).acquire()
    assert "state.dir" in str(caught.value)


# -- what is known ----------------------------------------------------------------------------------------


def test_a_run_is_started_when_begun_and_finished_when_it_says_so(tmp_path: Path, held: RunDirectory) -> None:
    assert not held.started
    assert held.finished is None
    held.begin(counting())
    assert directory(tmp_path).started
    assert directory(tmp_path).finished is None
    held.finish({"rows": 3})
    assert directory(tmp_path).finished == {"rows": 3}


def test_the_same_graph_goes_on_and_one_with_other_branches_too(held: RunDirectory) -> None:
    held.begin(counting())
    held.begin(counting())
    held.begin(counting(sink="elsewhere", extra_branch=True))


def test_a_graph_whose_state_differs_is_refused_and_both_are_told(held: RunDirectory) -> None:
    held.begin(counting())
    with pytest.raises(UserError, match="has changed") as caught:
        held.begin(counting("word"))
    assert "counted: the state of counted was made with" in str(caught.value)
    assert "by value" in str(caught.value)
    assert "--fresh" in str(caught.value)


def test_a_version_that_is_rolled_back_after_a_restart_leaves_the_shape_of_the_one_before(
    held: RunDirectory,
) -> None:
    held.begin(counting())
    changed = held.versions.note(planned_version(counting(extra_fragment=True)), "update")
    held.begin(counting(extra_fragment=True))
    held.versions.note_ending(changed.number, Outcome.ROLLED_BACK)
    held.begin(counting())


def test_the_shape_is_what_checkpoints_depend_on_and_survives_json() -> None:
    shape = state_shape(counting())
    assert json.loads(json.dumps(shape)) == shape
    assert list(shape) == ["counted"]
    assert shape["counted"][0] == "lines"


def test_begin_does_not_forget_that_the_run_has_finished(held: RunDirectory) -> None:
    held.begin(counting())
    held.finish({"rows": 3})
    held.begin(counting())
    assert held.finished == {"rows": 3}


# -- starting over ------------------------------------------------------------------------------------


def test_clear_forgets_everything_but_keeps_the_lock(tmp_path: Path, held: RunDirectory) -> None:
    held.begin(counting())
    (held.fragment("counted") / "offset").write_text("7")
    Path(held.channel("a--b")).mkdir(parents=True)
    held.clear()
    assert [p.name for p in held.path.iterdir()] == ["lock"]
    assert not held.started
    with pytest.raises(UnavailableError):
        directory(tmp_path).acquire()


def test_a_clear_that_was_killed_half_way_is_finished_by_the_next_run(
    tmp_path: Path, held: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of a state is worse than none: the next run must not go on from it."""
    held.begin(counting())
    for name in ("counted", "second", "third"):
        (held.fragment(name) / "offset").write_text("7")

    def killed(_path: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("drivetrain.runtime.run_directory.shutil.rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        held.clear()
    monkeypatch.undo()
    held.release()
    after = directory(tmp_path)
    after.acquire()
    assert [p.name for p in after.path.iterdir()] == ["lock"]
    assert not after.started


@pytest.mark.parametrize("dies_in", ["fsync", "replace"])
def test_a_crash_while_writing_leaves_the_old_file(
    tmp_path: Path, held: RunDirectory, monkeypatch: pytest.MonkeyPatch, dies_in: str
) -> None:
    held.begin(counting())
    before = (held.path / "application.json").read_bytes()

    def die(*_args: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, dies_in, die)
    with pytest.raises(KeyboardInterrupt):
        held.finish({"rows": 3})
    monkeypatch.undo()
    assert (held.path / "application.json").read_bytes() == before
    assert directory(tmp_path).finished is None
    held.finish({"rows": 3})
    assert directory(tmp_path).finished == {"rows": 3}


@pytest.mark.parametrize(
    "damage",
    [
        lambda said: b"",
        lambda said: said[: len(said) // 2],
        lambda said: said.replace(b'"app"', b'"ape"'),
        lambda said: said.rpartition(b" ")[0],
    ],
    ids=["empty", "torn", "changed", "without its checksum"],
)
def test_damaged_notes_are_a_clear_error_and_fresh_begins_anew(
    tmp_path: Path, held: RunDirectory, damage: Callable[[bytes], bytes]
) -> None:
    held.begin(counting())
    held.fragment("f")
    notes = held.path / "application.json"
    notes.write_bytes(damage(notes.read_bytes()))
    for read in (lambda: held.started, lambda: held.finished, lambda: held.life):
        with pytest.raises(InputError, match="what is known of the application's state cannot be read"):
            read()
    held.release()
    after = directory(tmp_path)
    with pytest.raises(InputError) as raised:
        after.acquire()
    assert "--fresh" in str(raised.value)
    assert raised.value.exit_code == 2
    with pytest.raises(InputError):
        after.acquire_or_share(FIRST, 0)
    assert (after.path / "fragments" / "f").is_dir(), "nothing was deleted"
    after.acquire(fresh=True)
    after.clear()
    after.begin(counting())
    assert after.started
    assert [path.name for path in after.path.iterdir() if path.is_dir()] == ["versions"]


def test_a_damaged_preparation_is_a_clear_error(held: RunDirectory) -> None:
    held.preparation.note(FIRST, {})
    (held.path / "prepared.json").write_bytes(b"")
    with pytest.raises(InputError, match="what executors have prepared") as raised:
        _ = held.preparation.schemas
    assert "delete the file" in str(raised.value)


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_full_disk_is_our_error_and_loses_nothing(
    tmp_path: Path, held: RunDirectory, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    held.begin(counting())

    def full(*_args: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, step, full)
        with pytest.raises(DiskFullError) as raised:
            held.finish({"rows": 3})
    assert raised.value.exit_code == 4
    assert directory(tmp_path).finished is None
    assert directory(tmp_path).started


def test_places_are_inside_the_directory_and_only_fragments_are_made_at_once(held: RunDirectory) -> None:
    places: list[tuple[Callable[[str], Any], bool]] = [
        (held.fragment, True),
        (held.channel, False),
        (held.dead_letters, False),
    ]
    for place, made in places:
        path = Path(place("x"))
        assert path.is_relative_to(held.path)
        assert path.exists() is made


# -- several executors ------------------------------------------------------------------------------------


def test_one_executor_prepares_and_the_others_share_while_nobody_else_gets_in(tmp_path: Path) -> None:
    first, second, stranger = (directory(tmp_path) for _ in range(3))
    assert first.acquire_or_share(FIRST, 0)
    with pytest.raises(UnavailableError):
        second.acquire_or_share(FIRST, 0.1)
    first.preparation.note(FIRST, {"c": {"type": "struct", "fields": []}})
    first.share()
    assert not second.acquire_or_share(FIRST, 0)
    assert second.preparation.schemas == {"c": {"type": "struct", "fields": []}}
    with pytest.raises(UnavailableError, match="already running"):
        stranger.acquire()
    with pytest.raises(UnavailableError, match="already running"):
        stranger.acquire_or_share(SECOND, 0.1)
    first.release()
    second.release()
    assert stranger.acquire_or_share(SECOND, 0), "another life of the application master prepares anew"


def test_an_executor_of_an_earlier_epoch_that_is_late_does_not_prepare_again(tmp_path: Path) -> None:
    newest, late, other = (directory(tmp_path) for _ in range(3))
    newest.acquire_or_share(SECOND, 0)
    newest.preparation.note(SECOND, {})
    newest.release()
    with pytest.raises(UnavailableError, match="another application master"):
        late.acquire_or_share(FIRST, 0)
    assert other.acquire_or_share(Preparer("app-2", 1, "x"), 0), "what is submitted again begins at epoch 1"


def test_only_the_newest_preparer_decides(tmp_path: Path) -> None:
    held = directory(tmp_path)
    held.acquire_or_share(FIRST, 0)
    held.preparation.note(FIRST, {})
    decided = []
    with held.preparation.while_prepared_by(FIRST):
        decided.append(1)
    held.preparation.note(SECOND, {})
    for refused in (FIRST, Preparer("app-1", 2, "another process")):
        with (
            pytest.raises(UnavailableError, match="another application master"),
            held.preparation.while_prepared_by(refused),
        ):
            decided.append(2)
    assert decided == [1]


def test_nobody_decides_while_a_successor_prepares(tmp_path: Path) -> None:
    first, second, late, again = (directory(tmp_path) for _ in range(4))
    first.acquire_or_share(FIRST, 0)
    first.preparation.note(FIRST, {"c": {}})
    first.release()
    assert second.acquire_or_share(SECOND, 0)
    for refused in (FIRST, SECOND):
        with (
            pytest.raises(UnavailableError, match="another application master"),
            second.preparation.while_prepared_by(refused),
        ):
            pass
    second.release()  # it dies while it prepares
    with pytest.raises(UnavailableError, match="another application master"):
        late.acquire_or_share(FIRST, 0)
    assert again.acquire_or_share(SECOND, 0), "what was begun is not prepared"
    assert again.preparation.schemas == {"c": {}}, "an application that has finished keeps its schemas"
    again.preparation.note(SECOND, {})
    with again.preparation.while_prepared_by(SECOND):
        pass


def test_nobody_prepares_while_the_java_process_of_a_predecessor_may_commit(
    tmp_path: Path, java: subprocess.Popen[bytes]
) -> None:
    first, joining, second = (directory(tmp_path) for _ in range(3))
    first.acquire_or_share(FIRST, 0)
    first.preparation.note(FIRST, {})
    lock = first.fragment_lock("f")
    assert lock.take(java.pid) is not None
    lock._lock.release()  # its process is killed, and its Java process ends later
    first.release()
    assert not joining.acquire_or_share(FIRST, 0), "its attempts wait for that process themselves"
    joining.release()
    with pytest.raises(UnavailableError):
        second.acquire_or_share(SECOND, 0.1)
    java.kill()
    java.wait(30)
    assert second.acquire_or_share(SECOND, 0)


def test_an_application_master_decides_nothing_once_another_process_runs_the_application_alone(
    tmp_path: Path,
) -> None:
    executor, alone, after = (directory(tmp_path) for _ in range(3))
    executor.acquire_or_share(FIRST, 0)
    executor.preparation.note(FIRST, {})
    executor.release()
    alone.acquire()
    with (
        pytest.raises(UnavailableError, match="another application master"),
        alone.preparation.while_prepared_by(FIRST),
    ):
        pass
    alone.release()
    assert after.acquire_or_share(FIRST, 0), "the state is another one now"


def test_who_asks_again_joins_even_when_all_others_have_gone(tmp_path: Path) -> None:
    first, second = directory(tmp_path), directory(tmp_path)
    first.acquire_or_share(FIRST, 0)
    first.preparation.note(FIRST, {})
    first.release()
    assert not second.acquire_or_share(FIRST, 0)
    with pytest.raises(UnavailableError):
        first.acquire()


def test_half_a_directory_is_no_prepared_one(tmp_path: Path) -> None:
    first, second = directory(tmp_path), directory(tmp_path)
    first.acquire_or_share(FIRST, 0)
    first.preparation.note(FIRST, {})
    (first.path / "clearing").touch()
    assert first.preparation.by is None
    first.release()
    assert second.acquire_or_share(FIRST, 0)
    assert not (second.path / "clearing").exists()


@pytest.mark.parametrize("is_deleted", [True, False])
def test_who_lost_the_lock_is_refused_once_another_process_has_begun(
    tmp_path: Path, is_deleted: bool
) -> None:
    former, second, alone = (directory(tmp_path) for _ in range(3))
    alone.ownership.require()  # it only looks

    def lose(holders: list[RunDirectory]) -> None:
        if is_deleted:
            (holders[0].path / "lock").unlink()
        else:
            for holder in holders:
                fcntl.flock(holder._lock._descriptor, fcntl.LOCK_UN)

    former.acquire()
    former.ownership.require()
    lose([former])
    assert second.acquire_or_share(FIRST, 0)
    with pytest.raises(LostLockError, match="another process has this application"):
        former.ownership.require()
    former.release()
    second.preparation.note(FIRST, {})
    second.share()
    joined = directory(tmp_path)
    assert not joined.acquire_or_share(FIRST, 0)
    for shares in (second, joined):
        shares.ownership.require()
    lose([second, joined])
    alone.acquire()
    for shares in (second, joined):
        with pytest.raises(LostLockError, match=f'"pid": {os.getpid()}'):
            shares.ownership.require()
    with pytest.raises(UnavailableError, match="already running") as refused:
        directory(tmp_path).acquire()
    assert f'"pid": {os.getpid()}' in str(refused.value)


def test_an_executor_takes_a_fragment_that_another_one_lost(tmp_path: Path) -> None:
    first, second = directory(tmp_path), directory(tmp_path)
    first.acquire_or_share(FIRST, 0)
    first.preparation.note(FIRST, {})
    first.share()
    second.acquire_or_share(FIRST, 0)
    lock, other = first.fragment_lock("f"), second.fragment_lock("f")
    assert lock.take() is not None
    first.ownership.take_fragment("f", lock)
    first.ownership.require("f")
    first.ownership.require("of another executor")
    fcntl.flock(lock._lock._descriptor, fcntl.LOCK_UN)
    assert other.take() is not None
    first.ownership.require()
    with pytest.raises(LostLockError, match="another process has this fragment"):
        first.ownership.require("f")
    first.ownership.drop_fragment("f")
    first.ownership.require("f")

"""Lives of a state directory: one is current and whole, whatever step of beginning the next is the last."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from drivetrain.api import Application, agg, sinks, sources
from drivetrain.core.plan.plan import Plan
from drivetrain.core.plan.planner import plan
from drivetrain.core.replay.replay import Life
from drivetrain.errors import UserError
from drivetrain.runtime.run_directory import RunDirectory

SHARED = ("stores/in/log/0", "sinks/out/output-token", "dead-letters/a/log/0")
OWN = (
    "fragments/a/checkpoint/offsets/7",
    "fragments/b/checkpoint/offsets/3",
    "channels/c/log/0",
    "checkpoints/snapshots/a/1/clock",
    "clock",
)


def counting(key: str = "key") -> Plan:
    app = Application("app")
    lines = app.read(sources.text("/in"), name="lines")
    counted = lines.group_by(**{key: "value"}).aggregate(step="counted", n=agg.count())
    counted.sink(sinks.none(), name="out")
    return plan(app.graph())


def write(home: Path, names: tuple[str, ...], content: str) -> None:
    for name in names:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(content)


def contents(home: Path, names: tuple[str, ...]) -> set[str]:
    return {(home / name).read_text() if (home / name).exists() else "missing" for name in names}


def living(tmp_path: Path) -> RunDirectory:
    """The directory of an application that has run in its first life."""
    made = RunDirectory(str(tmp_path), "app", {})
    made.acquire()
    made.begin(counting())
    write(made.home, OWN, "1")
    write(made.path, SHARED, "shared")
    made.finish({"at": 0})
    return made


def replay(held: RunDirectory, from_ms: int = 5) -> None:
    """All that beginning a life writes."""
    held.make_aside(from_ms)
    write(held.home, OWN, str(held.life.number))
    held.begin(counting())


def test_a_replay_begins_the_next_life_and_what_all_lives_share_stays(tmp_path: Path) -> None:
    held = living(tmp_path)
    replay(held)
    assert held.life == Life(2, 5, 9)  # behind batch 7, and one more that its fragment may have published
    assert held.finished is None
    assert contents(held.home, OWN) == {"2"}
    assert contents(held.path, OWN) == {"missing"}
    assert contents(held.path, SHARED) == {"shared"}
    replay(held, 6)
    assert held.life == Life(3, 6, 18)
    assert [life.name for life in (held.path / "lives").iterdir()] == ["3"]
    held.release()
    again = RunDirectory(str(tmp_path), "app", {})
    assert again.life == Life(3, 6, 18)
    assert Path(again.channel("c")) == again.path / "lives" / "3" / "channels" / "c"
    assert Path(again.store("in")) == again.path / "stores" / "in"


def test_a_life_that_is_given_up_has_never_been(tmp_path: Path) -> None:
    held = living(tmp_path)
    held.make_aside(5)
    write(held.home, OWN, "2")
    held.give_up_aside()
    assert held.life == Life()
    assert held.finished == {"at": 0}
    assert contents(held.home, OWN) == {"1"}
    assert list((held.path / "lives").iterdir()) == []
    held.make_aside(5)
    assert not held.home.exists(), "nothing of an earlier attempt is there"
    held.release()


def test_the_first_life_may_begin_with_a_replay(tmp_path: Path) -> None:
    held = RunDirectory(str(tmp_path), "app", {})
    held.acquire()
    held.make_aside(5)
    assert not held.started
    held.begin(counting())
    assert held.life == Life(1, 5, 0)
    assert held.home == held.path
    held.release()


def test_a_new_life_may_have_another_graph(tmp_path: Path) -> None:
    held = living(tmp_path)
    other = counting("other")
    with pytest.raises(UserError, match="graph has changed"):
        held.begin(other)
    held.make_aside(5)
    held.begin(other)
    held.refuse_another_graph(other)
    with pytest.raises(UserError, match="--replay-from"):
        held.refuse_another_graph(counting())
    held.release()


def test_starting_over_begins_with_the_first_life_again(tmp_path: Path) -> None:
    held = living(tmp_path)
    replay(held)
    held.clear()
    assert held.life == Life()
    assert [child.name for child in held.path.iterdir()] == ["lock"]
    held.release()


def test_killed_between_any_two_steps_it_has_begun_or_not(tmp_path: Path) -> None:
    begun, step = set(), 0
    while True:
        directory = tmp_path / str(step)
        held = living(directory)
        replay(held)  # so that the one before is not the first
        held.release()
        survived = killed_at(step, lambda at=directory: begin_another(at))
        after = RunDirectory(str(directory), "app", {})
        after.acquire()  # whoever comes next tidies up
        life = after.life
        begun.add(life.number)
        assert life.number in (2, 3), f"killed at step {step}"
        assert contents(after.home, OWN) == {str(life.number)}, f"killed at step {step}"
        assert contents(after.path, SHARED) == {"shared"}, f"killed at step {step}"
        assert contents(after.path, OWN) == {"missing"}, f"killed at step {step}"
        assert [each.name for each in (after.path / "lives").iterdir()] == [str(life.number)]
        after.release()
        if survived:
            break
        step += 1
    assert begun == {2, 3}
    assert step > 20


def begin_another(directory: Path) -> None:
    held = RunDirectory(str(directory), "app", {})
    held.acquire()
    replay(held, 6)


def killed_at(step: int, work: Callable[[], None]) -> bool:
    """Whether `work` has ended, in a process that is killed by SIGKILL before its file operation `step`."""
    child = os.fork()
    if child == 0:
        try:
            _count_down(step)
            work()
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return False
    assert os.waitstatus_to_exitcode(status) == 0
    return True


def _count_down(step: int) -> None:
    left = [step]

    def counted(operation: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left[0] -= 1
            return operation(*args, **kwargs)

        return call

    for name in ("replace", "unlink", "rmdir", "mkdir", "fsync"):
        setattr(os, name, counted(getattr(os, name)))

"""An application that is watched restarts for a change that loads, and for no other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from drivetrain.cli.running import watch
from drivetrain.cli.running.watch import (
    RunProcess,
    SignalForwarding,
    Watch,
    changes,
    files_of,
    watch_application,
    why_not,
)
from drivetrain.code.application_file import ApplicationFileError

OLD = {"/a/shop.py": (1, 10)}
NEW = {"/a/shop.py": (2, 12)}


class FakeRun:
    def __init__(self) -> None:
        self.code: int | None = None

    def ended(self) -> int | None:
        return self.code

    def stop(self) -> int:
        self.code = 130
        return self.code

    def wait(self) -> int:
        return self.code or 0


class World:
    """Everything that a `Watch` does, in order."""

    def __init__(self) -> None:
        self.problem: str | None = None
        self.is_over = False
        self.runs: list[FakeRun] = []
        self.said: list[str] = []
        self.watch = Watch(self._start, lambda: self.problem, self.said.append, lambda: self.is_over)
        self.watch.begin(OLD)

    def _start(self) -> FakeRun:
        assert all(run.code is not None for run in self.runs), "one at a time"
        self.runs.append(FakeRun())
        return self.runs[-1]

    def see(self, *looks: dict[str, tuple[int, int]]) -> None:
        for look in looks:
            self.watch.see(look)


def test_nothing_happens_while_nothing_changes() -> None:
    world = World()
    world.see(OLD, OLD, OLD)
    assert len(world.runs) == 1
    assert world.said == []


def test_a_change_that_rests_restarts_and_one_that_goes_on_does_not() -> None:
    world = World()
    world.see({"/a/shop.py": (2, 11)}, NEW)
    assert len(world.runs) == 1
    world.see(NEW)
    assert [run.code for run in world.runs] == [130, None]
    assert world.said == ["restarting after a change of shop.py"]
    world.see(NEW, NEW)
    assert len(world.runs) == 2


def test_an_application_that_does_not_load_keeps_the_old_one_running() -> None:
    world = World()
    world.problem = "error: shop.py: no such name"
    world.see(NEW, NEW, NEW)
    assert [run.code for run in world.runs] == [None]
    assert len(world.said) == 1
    assert world.problem in world.said[0]
    assert "the running application continues" in world.said[0]
    world.problem = None
    world.see(OLD, OLD)  # the mistake is taken back
    assert [run.code for run in world.runs] == [130, None]


def test_an_application_that_has_ended_starts_again_with_the_next_change() -> None:
    world = World()
    world.runs[0].code = 2
    world.see(OLD, OLD, OLD)
    assert world.said == ["the application has ended with exit code 2; it starts again when a file changes"]
    world.problem = "error"
    world.see(NEW, NEW)
    assert "nothing runs" in world.said[-1]
    world.problem = None
    world.see(OLD, OLD)
    assert [run.code for run in world.runs] == [2, None]


def test_nothing_starts_when_the_user_has_stopped_the_command() -> None:
    world = World()
    world.is_over = True
    world.see(NEW, NEW)
    assert [run.code for run in world.runs] == [None]


def test_changed_files_are_named() -> None:
    assert changes({"/a/x.py": (1, 1), "/a/y.py": (1, 1)}, {"/a/y.py": (1, 2), "/a/z.py": (1, 1)}) == [
        "x.py",
        "y.py",
        "z.py",
    ]
    many = {f"/a/{n}.py": (1, 1) for n in range(8)}
    assert changes({}, many)[-1] == "3 more"


def test_files_are_the_applications_own_and_its_configuration(tmp_path: Path) -> None:
    for path in (
        "shop.py",
        "parts/items.py",
        ".venv/lib/a.py",
        "env/lib/b.py",
        "venv/lib/b.py",
        "__pycache__/c.py",
        "totals/_drivetrain/d.py",
        "totals/e.py",
        "_own/items.py",
        "notes.txt",
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("")
    (tmp_path / "env" / "pyvenv.cfg").write_text("")
    (tmp_path / "other.toml").write_text("")
    found = files_of(tmp_path / "shop.py", tmp_path / "other.toml")
    assert {Path(p).relative_to(tmp_path).as_posix() for p in found} == {
        "shop.py",
        "parts/items.py",
        "_own/items.py",
        "other.toml",
    }
    (tmp_path / "shop.py").write_text("changed")
    assert changes(found, files_of(tmp_path / "shop.py", tmp_path / "other.toml")) == ["shop.py"]


def test_the_configuration_file_is_the_one_that_commands_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DRIVETRAIN_CONFIG", raising=False)
    for name in ("shop.py", "named.toml"):
        (tmp_path / name).write_text("")
    before = files_of(Path("shop.py"), None)
    (tmp_path / "drivetrain.toml").write_text("")
    assert changes(before, files_of(Path("shop.py"), None)) == ["drivetrain.toml"]
    monkeypatch.setenv("DRIVETRAIN_CONFIG", "named.toml")
    assert changes(before, files_of(Path("shop.py"), None)) == ["named.toml"]


def test_an_application_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ApplicationFileError, match="no such file"):
        watch_application(f"{tmp_path}/shop.py:app", None, [], [])


def test_a_plan_that_takes_too_long_is_a_problem_and_no_error(tmp_path: Path) -> None:
    file = tmp_path / "slow.py"
    file.write_text("import time\ntime.sleep(600)\n")
    assert why_not([str(file)], within_s=0.2) == "planning the changed application takes longer than 0.2 s"


class Sleeper(RunProcess):
    """A process that ends with 40 plus the number of SIGINT and SIGTERM, and says when it is ready."""

    def __init__(self) -> None:
        code = (
            "import signal, sys, time\n"
            "for n in (2, 15): signal.signal(n, lambda n, _: sys.exit(40 + n))\n"
            "print('ready', flush=True)\n"
            "time.sleep(600)\n"
        )
        self._process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        self._process.stdout.readline()
        self._process.stdout.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["interrupted", "terminated"])
def test_a_signal_during_the_start_reaches_the_process_that_is_started(number: signal.Signals) -> None:
    def start() -> Sleeper:
        os.kill(os.getpid(), number)
        return Sleeper()

    with SignalForwarding(start) as signals:
        process = signals.start()
        assert process.wait() == 40 + number
    assert signals.received == [number]


def test_a_signal_between_two_processes_reaches_the_second_one() -> None:
    with SignalForwarding(Sleeper) as signals:
        assert signals.start().stop() == 42
        os.kill(os.getpid(), signal.SIGTERM)
        process = signals.start()
        assert process.wait() == 55


def test_a_signal_reaches_the_process_that_runs_and_the_handlers_of_before_return() -> None:
    before = signal.getsignal(signal.SIGINT)
    with SignalForwarding(Sleeper) as signals:
        process = signals.start()
        os.kill(os.getpid(), signal.SIGINT)
        assert process.wait() == 42
    assert signal.getsignal(signal.SIGINT) is before


def test_a_stop_during_the_start_ends_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Sleeper] = []

    def start(arguments: list[str]) -> Sleeper:
        os.kill(os.getpid(), signal.SIGINT)
        made.append(Sleeper())
        return made[-1]

    monkeypatch.setattr(watch, "RunProcess", start)
    (tmp_path / "shop.py").write_text("")
    assert watch_application(str(tmp_path / "shop.py"), None, ["shop.py"], []) == 130
    assert [process.ended() for process in made] == [42]

"""An application that is watched restarts for a change that loads, and for no other."""

from __future__ import annotations

from pathlib import Path

from drivetrain.cli.watch import Watch, changes, files_of

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
        "__pycache__/c.py",
        "notes.txt",
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("")
    (tmp_path / "env" / "pyvenv.cfg").write_text("")
    (tmp_path / "other.toml").write_text("")
    found = files_of(f"{tmp_path}/shop.py:app", tmp_path / "other.toml")
    assert {Path(p).relative_to(tmp_path).as_posix() for p in found} == {
        "shop.py",
        "parts/items.py",
        "other.toml",
    }
    (tmp_path / "shop.py").write_text("changed")
    assert changes(found, files_of(str(tmp_path / "shop.py"), tmp_path / "other.toml")) == ["shop.py"]

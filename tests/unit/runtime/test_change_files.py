"""Which files say how an application has changed, and where those of a store are laid out."""

from __future__ import annotations

from pathlib import Path

from drivetrain import Application, sinks, sources
from drivetrain.core.change.change_events import Outcome
from drivetrain.core.change.graph_version import GraphVersion, version_of
from drivetrain.core.plan.planner import plan
from drivetrain.private_files import Writers
from drivetrain.runtime.checkpoints.change_files import change_files, lay_out
from drivetrain.runtime.graph_versions import GraphVersions


def version(condition: str) -> GraphVersion:
    app = Application("app")
    app.read(sources.generate(rows=9), name="read").filter(condition, name="kept").sink(
        sinks.none(), name="out"
    )
    return version_of(plan(app.graph()), repr)


def changed(state: Path, times: int) -> GraphVersions:
    """A state directory whose application has run, and has changed so many times."""
    state.mkdir()
    stored = GraphVersions(state)
    stored.note(version("id > 0"), code=b"code 1")
    for number in range(2, times + 2):
        stored.note(version(f"id > {number}"), "update", f"code {number}".encode())
        stored.note_ending(number, Outcome.DONE)
    return stored


def test_another_machine_finds_the_version_in_force_and_those_before(tmp_path: Path) -> None:
    stored = changed(tmp_path / "here", 3)
    stored.note_ending(4, Outcome.ROLLED_BACK, "read", "it failed")
    files = change_files(tmp_path / "here")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    lay_out(elsewhere, {name: path.read_bytes() for name, path in files.items()}, Writers.OWNER)
    other = GraphVersions(elsewhere)
    assert other.numbers() == [1, 2, 3, 4]
    in_force = other.in_force()
    assert in_force is not None
    assert (in_force.number, in_force.follows, other.ending(4)) == (3, 2, stored.ending(4))
    assert [other.code(number) for number in (1, 2, 3, 4)] == [b"code 1", b"code 2", b"code 3", b"code 4"]


def test_only_the_newest_are_copied_and_only_some_with_their_code(tmp_path: Path) -> None:
    changed(tmp_path / "here", 69)
    files = change_files(tmp_path / "here")
    assert {name for name in files if name.endswith(".graph")} == {
        f"versions/{n}.graph" for n in range(61, 71)
    }
    assert [name for name in files if "." not in name] == [f"versions/{n}" for n in range(21, 71)]


def test_the_code_in_force_is_copied_though_many_were_rolled_back_since(tmp_path: Path) -> None:
    stored = changed(tmp_path / "here", 69)
    for number in range(6, 71):
        stored.note_ending(number, Outcome.ROLLED_BACK, "read", "it failed")
    files = change_files(tmp_path / "here")
    assert {"versions/3.graph", "versions/4.graph", "versions/5.graph"} < files.keys()
    assert {"versions/3", "versions/4", "versions/5"} < files.keys()
    assert "versions/2.graph" not in files


def test_the_code_of_a_version_that_is_about_to_come_into_force_is_among_them(tmp_path: Path) -> None:
    changed(tmp_path / "here", 1)
    (tmp_path / "here" / "versions" / "3.graph").write_bytes(b"code 3")
    assert "versions/3.graph" not in change_files(tmp_path / "here")
    assert "versions/3.graph" in change_files(tmp_path / "here", ["versions/3"])
    assert "versions/3.graph" not in change_files(tmp_path / "here", ["versions/2.outcome"])


def test_nothing_is_written_elsewhere_whatever_a_store_has(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    foreign = ("../x", "/x", "application.json", "versions/../x", "versions/1.zip", "versions/removing.lock")
    lay_out(state, dict.fromkeys(foreign, b"x"), Writers.OWNER)
    assert list(tmp_path.rglob("*")) == [state]

"""Results of sinks that were new with a version are removed when it is rolled back, and no others."""

from __future__ import annotations

import threading
from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from drivetrain.core.change.change_events import Change, Outcome
from drivetrain.core.change.graph_version import GraphVersion
from drivetrain.errors import InputError, OutputError, UserError
from drivetrain.runtime.graph_versions import GraphVersions
from drivetrain.spark.run.withdrawn_sinks import WithdrawnSinks

CHANGE = Change(2, 1, frozenset({"read"}))


class Sink:
    """Has results until they are removed."""

    guarantee = "exactly once"

    def __init__(self) -> None:
        self.has_results = True
        self.refuses = False

    def check_fresh(self) -> None:
        if self.refuses:
            raise OutputError("the rows cannot be distinguished from others")

    def fresh(self) -> None:
        self.has_results = False


class World:
    """The application has gone over from version 1 to version 2, which has the new sink `more`."""

    def __init__(self, tmp_path: Path) -> None:
        self.directory = tmp_path
        self.stored = GraphVersions(tmp_path)
        self.sink = Sink()
        self.on_fresh: str | None = None
        first = self.stored.note(GraphVersion("shop", {}, {}))
        second = self.stored.note(GraphVersion("shops", {}, {}, new_sinks=("more",)), "update")
        operation = SimpleNamespace(target=self)
        graph = SimpleNamespace(nodes={"more": SimpleNamespace(operation=operation)})
        plan = SimpleNamespace(graph=graph, fragment_of=lambda _: SimpleNamespace(id="read"))
        self.before: Any = SimpleNamespace(record=first, sinks={}, plan=plan)
        self.withdrawn: Any = SimpleNamespace(record=second, sinks={"more": self.sink}, plan=plan)
        self.runs = False
        self.turn = threading.Lock()
        self.sinks = self.started()
        self.versions.in_force = self.withdrawn
        (tmp_path / "sinks" / "more").mkdir(parents=True)

    def started(self) -> WithdrawnSinks:
        """What a process has that starts now, with the version in force."""
        self.versions: Any = SimpleNamespace(
            rundir=SimpleNamespace(path=self.directory, versions=self.stored),
            notices=deque(),
            in_force=self.before,
            of_number=self.of_number,
        )
        versions = SimpleNamespace(can_still_run=lambda number, _: self.runs and number == 2)
        query = SimpleNamespace(turn=self.turn, versions=versions, batch_id=4)
        driver: Any = SimpleNamespace(query=query, is_finished=False)
        return WithdrawnSinks(self.versions, {"read": driver})

    def of_number(self, number: int) -> Any:
        return {1: self.before, 2: self.withdrawn}[number]

    def go_back(self) -> None:
        self.sinks.note(CHANGE, "read", "why")
        self.versions.in_force = self.before

    def left(self) -> tuple[str, ...]:
        ending = self.stored.ending(2)
        assert ending is not None
        assert (ending.outcome, ending.fragment, ending.why) == (Outcome.ROLLED_BACK, "read", "why")
        return ending.to_remove


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_they_are_removed_once_no_batch_runs_and_none_will_run_with_the_version(world: World) -> None:
    world.runs = True
    world.go_back()
    world.sinks.look()
    assert world.sink.has_results, "a batch that a crash interrupted runs with the version again"
    with pytest.raises(UserError, match="more") as refused:
        world.sinks.refuse({"more": world.sink, "other": world.sink})
    assert refused.value.where == "more"
    world.runs = False
    with world.turn:
        world.sinks.look()
    assert world.sink.has_results, "a batch runs"
    world.sinks.look()
    assert not world.sink.has_results
    assert world.left() == ()
    assert not (world.directory / "sinks" / "more").exists(), "the sink is new again"
    world.sinks.refuse({"more": world.sink})


def test_a_run_that_ended_before_the_removal_leaves_it_to_the_next_one(world: World) -> None:
    world.go_back()
    assert world.left() == ("more",)
    world.started().resume()
    assert not world.sink.has_results
    assert world.left() == ()


def test_the_next_run_says_so_when_it_cannot_load_the_version(world: World) -> None:
    world.go_back()
    again = world.started()

    def fails(_: int) -> Any:
        raise InputError("no such code")

    world.versions.of_number = fails
    again.resume()
    assert "version 2 gave to new sinks stays" in world.versions.notices[0]
    assert world.left() == ()


def test_what_the_version_in_force_has_or_others_may_have_stays(world: World) -> None:
    world.go_back()
    again = world.started()
    world.before.sinks["more"] = Sink()
    again.resume()
    assert world.sink.has_results
    assert "version 1 has a sink of that name" in world.versions.notices[0]
    assert world.left() == ()


def test_a_table_that_would_be_emptied_stays(world: World) -> None:
    world.on_fresh = "empty"
    world.go_back()
    world.sinks.look()
    assert world.sink.has_results
    assert "its table would be emptied" in world.versions.notices[0]
    assert world.left() == ()


def test_a_removal_that_is_refused_is_a_notice(world: World) -> None:
    world.sink.refuses = True
    world.go_back()
    world.sinks.look()
    assert "what version 2 gave to more stays" in world.versions.notices[0]
    assert world.left() == ()
    world.sinks.look()
    assert len(world.versions.notices) == 1

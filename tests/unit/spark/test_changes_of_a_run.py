"""A change of a running application between the threads that ask for it and the loop that makes it."""

from __future__ import annotations

import threading
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

from drivetrain.core.change.change_state import ChangeUnderwayError
from drivetrain.core.change.graph_version import GraphVersion
from drivetrain.core.change.live_change import Change, Outcome, Stage
from drivetrain.errors import UnavailableError
from drivetrain.spark.run import live_changes
from drivetrain.spark.run.change_proposal import Proposal
from drivetrain.spark.run.live_changes import LiveChanges

SOON_S = 0.3
"""Long enough for a thread that does not wait to have ended."""


def loaded(number: int) -> Any:
    context = SimpleNamespace(
        plan=SimpleNamespace(), config={}, transactional=True, spark=None
    )  # with checkpoints: nothing to notice
    return SimpleNamespace(record=GraphVersion("shop", {}, {}, number), context=context, sinks={})


class Versions:
    """Stands in for `ApplicationVersions`, without Spark."""

    def __init__(self) -> None:
        self.notices: deque[str] = deque()
        self.rundir: Any = None
        self.in_force = loaded(1)
        self.known = {1: self.in_force}

    def recorded(self, version: Any, record: GraphVersion) -> None:
        self.known[record.number] = SimpleNamespace(**{**vars(version), "record": record})

    def put_in_force(self, number: int) -> None:
        self.in_force = self.known[number]

    def of_number(self, number: int) -> Any:
        return self.known[number]


class Query:
    """Stands in for the query of a fragment: it runs what is wanted from its next batch on."""

    def __init__(self) -> None:
        self.batch_id = 0
        self.branches = SimpleNamespace(stores={})
        self.turn = threading.Lock()
        self.versions = SimpleNamespace(
            wanted=SimpleNamespace(number=1),
            on_trial=False,
            began=self.began,
            want=self.want,
            at_hand=lambda _: None,
        )
        self.first: dict[int, int] = {}

    def want(self, wanted: Any) -> None:
        self.versions.wanted = wanted

    def began(self, number: int) -> int | None:
        return self.first.get(number)

    def run_batch(self) -> int:
        """The version that the batch runs with."""
        self.batch_id += 1
        number = int(self.versions.wanted.number)
        self.first.setdefault(number, self.batch_id)
        return number

    def is_committed(self) -> bool:
        return True


class World:
    """The changes of a run of one fragment, `read`; `changes.step` is a turn of its loop."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.query = Query()
        self.endings: list[tuple[int, Outcome]] = []
        self.versions = Versions()
        stored = SimpleNamespace(
            note=lambda record, how, _code: GraphVersion("shop", {}, {}, record.number, made_how=how),
            note_ending=lambda number, outcome, *_: self.endings.append((number, outcome)),
        )
        self.versions.rundir = SimpleNamespace(versions=stored)
        execution: Any = SimpleNamespace(versions=self.versions, rundir=self.versions.rundir)
        driver: Any = SimpleNamespace(query=self.query, is_recovering=False, is_finished=False)
        monkeypatch.setattr(live_changes, "checked", self.checked)
        monkeypatch.setattr(live_changes, "makes_checkpoints", lambda *_: False)
        monkeypatch.setattr(live_changes, "changing_query", lambda drivers, id: drivers[id].query)
        fragments: Any = SimpleNamespace(
            hold=lambda _: None,
            go_back=lambda: None,
            look=lambda: None,
            note_done=lambda change: self.endings.append((change.number, Outcome.DONE)),
        )
        self.changes = LiveChanges(execution, {"read": driver}, fragments)
        self.number = 1

    def checked(self, *_: object, **__: object) -> Proposal:
        self.number += 1
        before = self.versions.in_force.record.number
        change = Change(self.number, before, frozenset({"read"}))
        made: Any = SimpleNamespace(number=self.number, branches=self.query.branches)
        return Proposal(loaded(self.number), change, "update", b"", {"read": made})

    def propose(self) -> int:
        record: Any = None
        return self.changes.propose(record, record, b"", "update", 1)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_who_has_waited_for_a_change_finds_that_the_next_batch_runs_with_it(world: World) -> None:
    number = world.propose()
    waiting = threading.Thread(target=world.changes.wait_taken, args=(number,), daemon=True)
    waiting.start()
    waiting.join(SOON_S)
    assert waiting.is_alive(), "the loop has not taken it up: a batch would run with the version before"
    assert world.query.run_batch() == 1
    world.changes.step()
    waiting.join()
    assert world.query.run_batch() == 2
    world.changes.step()
    assert world.changes.state.outcome is Outcome.DONE
    world.changes.wait_taken(number)


def test_a_change_that_the_run_does_not_take_up_before_it_ends_is_an_error(world: World) -> None:
    number = world.propose()
    world.changes.close()
    with pytest.raises(UnavailableError, match="stopped before the change"):
        world.changes.wait_taken(number)


def test_from_a_proposal_to_its_end_there_is_no_state_without_it(world: World) -> None:
    number = world.propose()
    seen = [world.changes.state]
    with pytest.raises(ChangeUnderwayError, match="under way") as refused:
        world.propose()
    assert "version 2" in str(refused.value.got)
    before = world.changes._take

    def take(event: Any) -> None:  # what another thread may see between two effects
        seen.append(world.changes.state)
        before(event)
        seen.append(world.changes.state)

    world.changes._take = take  # type: ignore[method-assign]
    world.changes.step()
    world.query.run_batch()
    world.changes.step()
    assert {state.number for state in seen} == {number}
    assert all((state.outcome is None) is (state.stage is not Stage.IDLE) for state in seen)
    assert world.propose() == 3
    assert world.changes.state.number == 3


def test_an_application_goes_back_to_branches_that_it_has_compiled(world: World) -> None:
    first = SimpleNamespace(number=1, branches=world.query.branches)
    world.query.versions.at_hand = lambda number: first if number == 1 else None
    withdrawn: Any = SimpleNamespace(note=lambda *_: None, look=lambda: None, waits_for=lambda _: ())
    world.changes._withdrawn = withdrawn  # type: ignore[misc]
    number = world.propose()
    world.changes.step()
    world.query.run_batch()
    world.changes.give_up(number)
    world.changes.step()
    assert world.changes.state.outcome is Outcome.ROLLED_BACK
    assert world.query.versions.wanted is first

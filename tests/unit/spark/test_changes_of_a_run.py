"""A change of a running application between the threads that ask for it and the loop that makes it."""

from __future__ import annotations

import threading
from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from drivetrain.config import Config
from drivetrain.core.change.change_events import Change, Outcome
from drivetrain.core.change.change_stages import ChangeStage
from drivetrain.core.change.change_state import ChangeUnderwayError
from drivetrain.core.change.graph_version import GraphVersion
from drivetrain.core.change.live_change import Stage
from drivetrain.errors import InputError, OutputError, UnavailableError, UserError
from drivetrain.spark.batch.query_versions import BranchSet
from drivetrain.spark.run import fragment_versions, live_changes, trial_progress
from drivetrain.spark.run.application_versions import ApplicationVersions
from drivetrain.spark.run.change_proposal import Proposal, RequestedChange
from drivetrain.spark.run.live_changes import LiveChanges

SOON_S = 0.3
"""Long enough for a thread that does not wait to have ended."""


def loaded(number: int) -> Any:
    context = SimpleNamespace(
        plan=SimpleNamespace(), config=Config(), transactional=True, spark=None
    )  # with checkpoints: nothing to notice
    return SimpleNamespace(record=GraphVersion("shop", {}, {}, number), context=context, sinks={})


def made_of(number: int, branches: Any = None) -> BranchSet:
    anything: Any = None
    return BranchSet(number, anything, anything, branches)


class Versions:
    """Stands in for `ApplicationVersions`, without Spark."""

    left_on_trial: Any = ApplicationVersions.left_on_trial

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
        self.batch_id, self.fragment = 0, SimpleNamespace(id="read")
        self.branches = SimpleNamespace(stores={})
        self.turn = threading.Lock()
        self.versions = SimpleNamespace(
            trunk=1,
            wanted=made_of(1),
            on_trial=False,
            began=self.began,
            reached=self.reached,
            want=self.want,
            at_hand=lambda *_: None,
            newest_since=lambda: None,
        )
        self.first: dict[int, int] = {}
        self.with_messages: dict[int, int] = {}
        self.newest_committed = 0
        self.busy, self.waits_for_data = False, True

    def want(self, wanted: Any) -> None:
        self.versions.wanted = wanted

    def began(self, number: int) -> int | None:
        return self.first.get(number)

    def reached(self, number: int, _before: int = 0) -> int | None:
        return self.with_messages.get(number)

    def run_batch(self, messages: int = 1) -> int:
        """The version that the batch runs with."""
        self.batch_id += 1
        self.newest_committed = self.batch_id
        number = int(self.versions.wanted.number)
        self.first.setdefault(number, self.batch_id)
        if messages:
            self.with_messages.setdefault(number, self.batch_id)
        return number

    def is_committed(self) -> bool:
        return True


class World:
    """The changes of a run of one fragment, `read`; `changes.step` is a turn of its loop."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.query = Query()
        self.endings: list[tuple[int, Outcome]] = []
        self.stages: dict[int, list[str]] = {}
        self.is_full = False
        self.versions = Versions()
        stored = SimpleNamespace(
            note=lambda record, how, _code: GraphVersion("shop", {}, {}, record.number, made_how=how),
            note_ending=lambda number, outcome, *_: self.endings.append((number, outcome)),
            note_stages=self.note_stages,
        )
        self.versions.rundir = SimpleNamespace(versions=stored, path=Path("no-state"))
        execution: Any = SimpleNamespace(versions=self.versions, rundir=self.versions.rundir, engine=None)
        driver: Any = SimpleNamespace(
            query=self.query,
            fragment="read",
            is_recovering=False,
            is_finished=False,
            has_lost_its_query=False,
        )
        monkeypatch.setattr(live_changes, "checked", self.checked)
        monkeypatch.setattr(live_changes, "begun_notices", lambda *_: [])
        monkeypatch.setattr(fragment_versions, "MicroBatchQuery", Query)
        fragments: Any = SimpleNamespace(
            hold=lambda _: None,
            go_back=lambda: None,
            look=lambda: None,
            resume=lambda _: None,
            note_done=lambda change: self.endings.append((change.number, Outcome.DONE)),
        )
        self.now_s = 100.0
        monkeypatch.setattr(trial_progress.time, "monotonic", lambda: self.now_s)
        self.changes = LiveChanges(execution, {"read": driver}, fragments)
        self.number = 1

    def note_stages(self, number: int, stages: tuple[ChangeStage, ...]) -> None:
        if self.is_full:
            raise OutputError("the disk is full")
        self.stages[number] = [f"{one.fragment} {one.stage}".strip() for one in stages]

    def checked(self, *_: object, **__: object) -> Proposal:
        self.number += 1
        before = self.versions.in_force.record.number
        change = Change(self.number, before, frozenset({"read"}))
        made = made_of(self.number, self.query.branches)
        return Proposal(loaded(self.number), change, "update", b"", {"read": made})

    def propose(self) -> int:
        nothing: Any = None
        return self.changes.propose(RequestedChange(nothing, nothing, b"", "update", 1))


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
    first = made_of(1, world.query.branches)
    world.query.versions.at_hand = lambda number, _before: first if number == 1 else None
    withdrawn: Any = SimpleNamespace(note=lambda *_: None, look=lambda: None, refuse=lambda _: None)
    world.changes._withdrawn = withdrawn  # type: ignore[misc]
    number = world.propose()
    world.changes.step()
    world.query.run_batch()
    world.changes.give_up(number)
    world.changes.step()
    assert world.changes.state.outcome is Outcome.ROLLED_BACK
    assert world.query.versions.wanted is first


def test_a_trial_without_a_version_before_it_that_can_be_read_ends(world: World) -> None:
    record = GraphVersion("shop", {}, {}, 2, made_how="update", follows=1)

    def damaged(_: int) -> GraphVersion:
        raise InputError("version 1 of an application's graph cannot be read")

    world.versions.in_force = SimpleNamespace(**{**vars(loaded(2)), "record": record})
    world.versions.rundir.versions.is_on_trial = lambda _: True
    world.versions.rundir.versions.version = damaged
    world.changes._withdrawn.resume = lambda: None  # type: ignore[method-assign]
    world.changes.resume()
    assert world.endings == [(2, Outcome.DONE)]
    assert "has ended" in world.versions.notices.pop()
    assert world.propose() == 2, "another change is possible"


class GivenUp:
    """Stands in for the driver of a fragment whose batch has failed."""

    fragment = "read"

    def __init__(self, query: Query) -> None:
        self.query: Any = query
        self.is_started_again = False

    def replace_query(self, _successor: object) -> None:
        self.is_started_again = True


@pytest.mark.parametrize("is_left", [True, False])
def test_a_batch_that_failed_with_a_version_that_is_not_in_force_runs_with_the_one_that_is(
    world: World, is_left: bool
) -> None:
    driver: Any = GivenUp(world.query)
    world.query.versions.running = made_of(1)
    world.query.versions.has_left = lambda batch: is_left and batch == world.query.batch_id + 1
    assert world.changes.goes_back(driver, ValueError("the old code")) is is_left
    assert driver.is_started_again is is_left


STAGES = ["proposed", "compiled", "in force", "read begun", "read committed", "done"]


def test_the_history_of_a_change_is_kept_and_shown_with_its_end(world: World) -> None:
    world.propose()
    assert not world.stages, "the version is not recorded yet"
    world.changes.step()
    assert world.stages[2] == STAGES[:3]
    world.query.run_batch()
    world.changes.step()
    assert world.stages[2] == STAGES
    assert [one.stage for one in world.changes.state.stages] == [
        stage.split()[-1] for stage in STAGES[:2]
    ] + [
        "in force",
        "begun",
        "committed",
        "done",
    ]
    assert "(proposed, compiled after" in world.versions.notices.pop()
    world.propose()
    assert [one.stage for one in world.changes.state.stages] == STAGES[:2]


def test_a_batch_without_messages_is_no_proof(world: World) -> None:
    world.propose()
    world.changes.step()
    world.query.run_batch(messages=0)
    world.changes.step()
    assert world.changes.state.stage is Stage.ON_TRIAL
    assert world.changes.state.awaited == ("read",)
    world.query.run_batch()
    world.changes.step()
    assert world.changes.state.outcome is Outcome.DONE
    assert not world.changes.state.unproven


def test_an_error_after_batches_without_messages_ends_the_trial(world: World) -> None:
    withdrawn: Any = SimpleNamespace(note=lambda *_: None, look=lambda: None, refuse=lambda _: None)
    world.changes._withdrawn = withdrawn  # type: ignore[misc]
    first = made_of(1, world.query.branches)
    world.query.versions.at_hand = lambda number, _before: first if number == 1 else None
    world.propose()
    world.changes.step()
    world.query.run_batch(messages=0)
    world.changes.step()
    driver: Any = GivenUp(world.query)
    world.query.versions.running = made_of(2)
    world.query.versions.has_left = lambda _: False
    assert world.changes.goes_back(driver, ValueError("the first message")), "it is on trial still"
    assert world.changes.state.outcome is Outcome.ROLLED_BACK


def test_without_messages_a_trial_ends_after_a_while_and_says_so(world: World) -> None:
    world.propose()
    world.changes.step()
    world.query.run_batch(messages=0)
    world.now_s += 29
    world.changes.step()
    assert world.changes.state.stage is Stage.ON_TRIAL
    world.now_s += 1
    world.changes.step()
    assert world.changes.state.outcome is Outcome.DONE
    assert world.changes.state.unproven == ("read",)
    assert world.stages[2][-2:] == ["read got no message", "done"]
    assert "no message has reached it in read" in world.versions.notices.pop()


@pytest.mark.parametrize("what", ["a batch runs", "there is something to read"])
def test_a_fragment_that_has_something_to_process_has_not_waited(world: World, what: str) -> None:
    world.propose()
    world.changes.step()
    world.query.busy = what == "a batch runs"
    world.query.waits_for_data = what == "a batch runs"
    world.now_s += 1_000
    world.changes.step()
    assert world.changes.state.stage is Stage.ON_TRIAL
    world.query.busy, world.query.waits_for_data = False, True
    world.changes.step()
    assert world.changes.state.outcome is Outcome.DONE


def test_a_history_that_cannot_be_kept_stops_no_change(world: World) -> None:
    world.is_full = True
    world.propose()
    world.changes.step()
    world.query.run_batch()
    world.changes.step()
    assert world.changes.state.outcome is Outcome.DONE
    assert any("is not kept: the disk is full" in notice for notice in world.versions.notices)


def test_a_change_that_another_process_takes_up_continues_its_history(world: World) -> None:
    record = GraphVersion("shop", {}, {}, 2, made_how="update", follows=1)
    world.versions.in_force = SimpleNamespace(**{**vars(loaded(2)), "record": record})
    stored = world.versions.rundir.versions
    stored.is_on_trial, stored.version = lambda _: True, lambda _: GraphVersion("shop", {}, {}, 1)
    stored.stages = lambda _: (ChangeStage("proposed", 5), ChangeStage("in force", 9))
    world.changes._withdrawn.resume = lambda: None  # type: ignore[method-assign]
    world.changes.resume()
    assert world.stages[2] == ["proposed", "in force", "resumed", "done"], "it touches no fragment"


def test_a_change_that_is_refused_leaves_the_history_of_the_one_before(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.propose()
    world.changes.step()
    world.query.run_batch()
    world.changes.step()
    stages = world.changes.state.stages

    def refused(*_: object, **__: object) -> Proposal:
        raise UserError("nothing changes")

    monkeypatch.setattr(live_changes, "checked", refused)
    with pytest.raises(UserError, match="nothing changes"):
        world.propose()
    assert world.changes.state.stages == stages

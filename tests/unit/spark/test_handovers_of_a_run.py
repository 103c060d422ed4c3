"""A version hands over between the batches of a run, and other changes wait for that."""

from __future__ import annotations

import threading
from collections import deque
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from drivetrain.api import Application, sinks, sources
from drivetrain.core.change.change_events import Change
from drivetrain.core.change.change_options import ChangeOptions
from drivetrain.core.change.graph_version import GraphVersion, version_of
from drivetrain.core.change.handover import Handover, HandoverBegun
from drivetrain.core.change.handover_places import HandoverError
from drivetrain.core.plan.planner import plan
from drivetrain.errors import UnavailableError, UserError
from drivetrain.spark.batch.micro_batch_query import MicroBatchQuery
from drivetrain.spark.run import handovers
from drivetrain.spark.run.change_proposal import Proposal, RequestedChange
from drivetrain.spark.run.handovers import Handovers

AT = 5_000


def version(least: int) -> GraphVersion:
    app = Application("shop")
    read = app.read(sources.text("in"), name="read")
    read.filter(f"length(value) > {least}", name="long").sink(sinks.none(), name="out")
    return version_of(plan(app.graph()), lambda _: "")


class World:
    """One query, `read`, whose newest batch is 4; `newest_ms` is how far its messages have come."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        query: Any = MicroBatchQuery.__new__(MicroBatchQuery)
        query.batch_id, query.replay_until, query.is_held = 4, -1, False
        query.turn, self.is_committed = threading.Lock(), True
        query.is_committed = lambda: self.is_committed
        self.query, self.newest_ms, self.now_s = query, AT - 1, 100.0
        driver: Any = SimpleNamespace(query=query, is_recovering=False, is_finished=False)
        self.driver = driver
        known = {1: SimpleNamespace(record=version(1)), 2: SimpleNamespace(record=version(2))}
        versions: Any = SimpleNamespace(notices=deque(), of_number=known.get, rundir=None)
        self.versions = versions
        self.handovers = Handovers(versions, {"read": driver})
        loaded: Any = SimpleNamespace(record=SimpleNamespace(at_ms=AT))
        self.proposal = Proposal(loaded, Change(2, 1, frozenset({"read"})), "update", b"", {}, at=AT)
        monkeypatch.setattr(handovers, "time_of", self.time_of)
        monkeypatch.setattr(handovers.dataclasses, "replace", lambda one, **_: one)
        monkeypatch.setattr(handovers.time, "monotonic", lambda: self.now_s)

    def time_of(self, *_: object) -> int:
        assert self.query.turn.locked() or self.driver.is_finished, "a batch may begin"
        if self.newest_ms >= AT:
            raise HandoverError("processed already")
        return AT

    def is_ready(self) -> bool:
        with self.handovers.paused(self.proposal) as ready:
            if ready is not None:
                assert self.query.turn.locked()
                assert self.query.is_held
            return ready is not None


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_it_waits_until_the_batch_that_runs_has_ended_and_is_committed(world: World) -> None:
    world.query.turn.acquire()
    assert not world.is_ready()
    assert world.query.is_held, "no other batch begins"
    world.query.turn.release()
    world.is_committed = False
    assert not world.is_ready()
    world.is_committed = True
    assert world.is_ready()
    assert not world.query.is_held
    assert not world.query.turn.locked()


def test_a_batch_from_before_this_process_comes_first(world: World) -> None:
    world.query.replay_until = 5
    assert not world.is_ready()
    assert not world.query.is_held, "it has to run"
    world.query.batch_id = 5
    assert world.is_ready()


def test_what_is_started_again_is_waited_for_and_what_has_ended_is_not(world: World) -> None:
    world.driver.is_recovering = True
    assert not world.is_ready()
    world.driver.is_recovering, world.driver.is_finished = False, True

    with world.handovers.paused(world.proposal) as ready:
        assert ready is not None
        assert not world.query.turn.locked(), "it runs no batch any more"


def test_messages_that_have_come_too_far_are_an_error_and_batches_go_on(world: World) -> None:
    world.newest_ms = AT
    with pytest.raises(HandoverError, match="processed already"):
        world.is_ready()
    assert not world.query.is_held
    assert not world.query.turn.locked()


def test_batches_that_do_not_end_are_an_error_after_a_while(world: World) -> None:
    world.query.turn.acquire()
    assert not world.is_ready()
    world.now_s += 1_000
    with pytest.raises(UnavailableError, match="did not end their batches"):
        world.is_ready()
    assert not world.query.is_held


def asked(least: int, at: int | None = None) -> RequestedChange:
    nothing: Any = None
    return RequestedChange(version(least), nothing, b"", "update", 2, ChangeOptions(at=at))


def test_during_a_handover_only_the_version_before_may_come_back_and_at_once(world: World) -> None:
    own = world.handovers
    own.refuse_change(asked(3))
    own._stages.step(HandoverBegun(Handover(2, 1, AT, frozenset({"read"}))))
    own.refuse_change(asked(1))
    for change in (asked(3), asked(1, at=AT + 1)):
        with pytest.raises(UserError, match="version 1 is handing over to version 2") as refused:
            own.refuse_change(change)
        assert "drivetrain rollback" in str(refused.value.remedy)
    assert [own.before("read", number) for number in (1, 2)] == [0, 1]
    own.withdraw()
    own.refuse_change(asked(3))
    assert own.before("read", 2) == 0


def test_a_handover_continues_when_the_return_from_it_is_rolled_back(world: World) -> None:
    record = msgspec.structs.replace(version(2), number=2, follows=1, at_ms=AT)
    world.versions.in_force = SimpleNamespace(record=record)
    world.versions.handing_over = lambda _: version(1)
    query, own = world.query, world.handovers
    query.versions = SimpleNamespace(
        has_run_alone=lambda _: False,
        reached=lambda *_: None,
        note_next=lambda _: None,
    )
    query.settled_clock_ms = AT - 1
    own.begin(record, frozenset({"read"}))
    own.withdraw()  # version 3 is a rollback to version 1, and is cancelled while it is on trial
    own.go_back()
    own.look()
    assert (own.both, own.before("read", 2)) == (("read",), 1), "version 2 would get messages before its time"
    query.settled_clock_ms = AT
    query.versions.wanted = SimpleNamespace(before=0)
    own.look()
    own.go_back()
    assert own.both == (), "it was over"
    assert len(world.versions.notices) == 1

"""The way back to a checkpoint: the leader is asked once at a time, and until it acts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from drivetrain.actor import ActorRef, Message
from drivetrain.cluster.app_master.app_master_messages import AskOutcome, Setup
from drivetrain.cluster.app_master.stream.restore_request import GO_BACK, RestoreRequest
from drivetrain.cluster.messages.applications import ApplicationSpec, FoundApplication, Restart
from drivetrain.config import Config

LEADER: Any = object()


@dataclass
class World:
    """A leader that may be away, and what it was asked."""

    leader: ActorRef | None = LEADER
    asked: list[Message] = field(default_factory=list)
    delays: int = 0
    lines: list[str] = field(default_factory=list)

    def ask(self, what: str, number: int, asked: ActorRef, message: Message, timeout_ms: int) -> None:
        assert (what, asked) == (GO_BACK, LEADER)
        self.asked.append(message)

    def wake(self, delay_ms: int) -> None:
        assert delay_ms > 0
        self.delays += 1


def way_back(world: World) -> RestoreRequest:
    spec: Any = ApplicationSpec
    setup = Setup("app-1", 3, spec, (), Config(), "", lambda: 0, world.lines.append)
    return RestoreRequest(setup, lambda: world.leader, world.ask, world.wake)


def test_the_leader_is_asked_once_for_this_epoch() -> None:
    world = World()
    going = way_back(world)
    going.begin("the state of counts is lost")
    going.begin("the state of counts is lost")
    assert world.asked == [Restart("app-1", epoch=3)]
    assert world.lines == ["asks to be started again: the state of counts is lost"]
    taken: Any = FoundApplication
    going.answered(AskOutcome(GO_BACK, -1, taken))
    assert world.delays == 0


@pytest.mark.parametrize("code", ["timeout", "unreachable", "no-quorum"])
def test_it_is_asked_again_when_nobody_has_answered(code: str) -> None:
    world = World()
    going = way_back(world)
    going.begin("lost")
    going.answered(AskOutcome(GO_BACK, -1, code=code))
    assert world.delays == 1
    going.ask()
    assert len(world.asked) == 2


def test_without_a_leader_it_waits_for_one() -> None:
    world = World(leader=None)
    going = way_back(world)
    going.begin("lost")
    assert (world.asked, world.delays) == ([], 1)
    world.leader = LEADER
    going.ask()
    assert len(world.asked) == 1

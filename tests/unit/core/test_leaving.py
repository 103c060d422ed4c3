"""How fragments leave a running application."""

from __future__ import annotations

from random import Random

import pytest

from drivetrain.core.change.leaving import (
    DeleteFragment,
    EndChannels,
    Leaving,
    LeavingEffect,
    LeavingStage,
    RecordFinished,
)
from drivetrain.errors import InternalError
from drivetrain.simulator.simulate import chosen_seeds, run_seeds

GONE = [RecordFinished("hourly"), DeleteFragment("hourly")]


def leaving(*, drains: bool) -> Leaving:
    made = Leaving()
    made.add("hourly", frozenset({"read"}), drains=drains)
    return made


def test_channels_end_once_their_producers_have_gone_over_and_nothing_is_deleted_before_it_has_finished() -> (
    None
):
    fragment = leaving(drains=True)
    assert fragment.stages == {"hourly": LeavingStage.HELD}
    assert fragment.went_over("hourly") == [EndChannels("hourly")]
    assert fragment.stages == {"hourly": LeavingStage.DRAINING}
    assert fragment.finished("hourly") == GONE
    assert not fragment.stages


def test_a_fragment_that_is_discarded_is_deleted_without_being_read_to_its_end() -> None:
    fragment = leaving(drains=False)
    assert not fragment.drains("hourly")
    assert fragment.went_over("hourly") == GONE
    assert not fragment.stages


def test_a_fragment_waits_for_those_that_write_to_it_and_leave_too() -> None:
    fragments = leaving(drains=True)
    fragments.add("daily", frozenset({"hourly"}), drains=True)
    assert fragments.went_over("daily") == []
    fragments.went_over("hourly")
    assert fragments.went_over("daily") == []
    fragments.finished("hourly")
    assert fragments.went_over("daily") == [EndChannels("daily")]
    fragments.check()


def test_what_cannot_be_changes_nothing() -> None:
    fragment = leaving(drains=True)
    with pytest.raises(InternalError, match="before its channels have ended"):
        fragment.finished("hourly")
    with pytest.raises(InternalError, match="leaves twice"):
        fragment.add("hourly", frozenset(), drains=True)
    with pytest.raises(InternalError, match="does not leave"):
        fragment.went_over("other")
    fragment.went_over("hourly")
    with pytest.raises(InternalError, match="is draining already"):
        fragment.went_over("hourly")
    assert fragment.stages == {"hourly": LeavingStage.DRAINING}


class Chain:
    """Three fragments that read from each other and leave, and what of them survives a crash.

    `how` has those that are not gone, `waiting` what each has not read; a fragment writes to the next one.
    """

    def __init__(self, random: Random) -> None:
        self.random = random
        self.drains = random.random() < 0.7
        self.how = dict.fromkeys(("a", "b", "c"), "leaves")
        self.waiting = {id: random.randrange(0, 4) for id in self.how}
        self.ended: set[str] = set()
        self.written = 0
        self.came = sum(self.waiting.values())

    def upstream(self, id: str) -> str | None:
        return {"a": None, "b": "a", "c": "b"}[id]

    def begun(self) -> Leaving:
        """What a process makes of what it finds; what is only to be deleted it deletes."""
        core = Leaving()
        for id, how in list(self.how.items()):
            if how == "is deleted":
                del self.how[id]
            else:
                up = self.upstream(id)
                core.add(id, frozenset() if up is None else frozenset({up}), drains=self.drains)
        return core

    def perform(self, effect: LeavingEffect) -> None:
        match effect:
            case EndChannels(id):
                assert self.upstream(id) not in self.how, "ended while its producer may write to it"
                self.ended.add(id)
            case RecordFinished(id):
                assert not (self.drains and self.waiting[id]), "it was not read to its end"
                self.how[id] = "is deleted"
            case DeleteFragment(id):
                assert self.how[id] == "is deleted", "deleted before that was noted"
                assert self.upstream(id) not in self.how, "its producer may write to what is deleted"
                del self.how[id]

    def read(self, id: str) -> None:
        """A fragment processes a message, for the one behind it or for its sink."""
        if self.waiting[id]:
            self.waiting[id] -= 1
            following = {"a": "b", "b": "c", "c": None}[id]
            if following is None:
                self.written += 1
            else:
                assert following in self.how, "it writes to a fragment that is gone"
                self.waiting[following] += 1


def test_whatever_is_killed_between_two_effects_all_leave_and_those_that_drain_lose_nothing() -> None:
    def run(seed: int) -> None:
        random = Random(seed)
        chain = Chain(random)
        core = chain.begun()
        for _ in range(2_000):
            if not chain.how:
                break
            id = random.choice(sorted(chain.how))
            effects: list[LeavingEffect] = []
            if id not in core.stages:
                pass
            elif core.stages[id] is LeavingStage.HELD:
                effects = core.went_over(id)
            elif not chain.waiting[id]:
                effects = core.finished(id)
            if id in core.stages:
                chain.read(id)
            core.check()
            for effect in effects:
                if random.random() < 0.2:
                    core = chain.begun()
                    break
                chain.perform(effect)
        assert not chain.how, "a fragment has not left"
        assert chain.written == chain.came or not chain.drains, "a message is lost"

    run_seeds(run, chosen_seeds(200, at_most=5000))

"""The stages of a handover."""

from __future__ import annotations

from random import Random

import pytest

from drivetrain.core.change.handover import (
    ConfirmFragment,
    Effect,
    FragmentCommitted,
    FragmentInputEnded,
    Handover,
    HandoverBegun,
    HandoverStages,
    ReportHandoverEnd,
    RunBothVersions,
    RunNewVersion,
    time_given,
)
from drivetrain.errors import InternalError, UserError
from drivetrain.simulator.simulate import chosen_seeds, run_seeds

AT = 1_000
TWO = Handover(2, 1, AT, frozenset({"a", "b"}))


def begun(*alone: str) -> HandoverStages:
    stages = HandoverStages()
    stages.step(HandoverBegun(TWO, frozenset(alone)))
    return stages


def test_both_run_until_the_clock_has_reached_the_time() -> None:
    stages = HandoverStages()
    assert stages.step(HandoverBegun(TWO)) == [RunBothVersions("a"), RunBothVersions("b")]
    assert stages.step(FragmentCommitted("a", AT - 1, has_new=False)) == []
    assert stages.step(FragmentCommitted("a", AT - 1, has_new=True)) == [ConfirmFragment("a")]
    assert stages.step(FragmentCommitted("a", AT - 1, has_new=True)) == [], "it has proven it already"
    assert stages.step(FragmentCommitted("a", AT, has_new=True)) == [RunNewVersion("a")]
    assert stages.both == ("b",)
    assert stages.step(FragmentCommitted("b", AT, has_new=False)) == [
        ConfirmFragment("b"),
        RunNewVersion("b"),
        ReportHandoverEnd(TWO),
    ]
    assert stages.handover is None


def test_a_fragment_that_has_ended_has_nothing_to_show() -> None:
    stages = begun()
    assert stages.step(FragmentInputEnded("a")) == [ConfirmFragment("a")]
    assert stages.both == ("b",)


def test_without_a_clock_both_run_on() -> None:
    stages = begun()
    assert stages.step(FragmentCommitted("a", None, has_new=False)) == []
    assert stages.both == ("a", "b")


def test_after_a_crash_what_ran_alone_runs_alone() -> None:
    stages = HandoverStages()
    effects = stages.step(HandoverBegun(TWO, frozenset({"a", "of another fragment"})))
    assert effects == [RunBothVersions("b"), ConfirmFragment("a"), RunNewVersion("a")]
    assert stages.step(FragmentCommitted("a", 0, has_new=False)) == [], (
        "its clock is behind: it does not run both again"
    )
    every = HandoverStages()
    assert every.step(HandoverBegun(TWO, TWO.touched))[-1] == ReportHandoverEnd(TWO)


def test_what_takes_no_part_is_an_error_and_changes_nothing() -> None:
    stages = begun()
    with pytest.raises(InternalError, match="c takes no part"):
        stages.step(FragmentCommitted("c", AT, has_new=True))
    with pytest.raises(InternalError, match="begins during that to version 2"):
        stages.step(HandoverBegun(TWO))
    stages.withdraw()
    with pytest.raises(InternalError, match="a takes no part"):
        stages.step(FragmentInputEnded("a"))


@pytest.mark.parametrize(
    ("at", "means"), [("now", None), ("next-window", "next-window"), (5, 5), ("1970-01-01T00:01", 60_000)]
)
def test_the_time_is_given_in_words_or_as_a_moment(at: str | int, means: object) -> None:
    assert time_given(at) == means


def test_a_time_that_is_none_is_an_error() -> None:
    with pytest.raises(UserError, match="not a time"):
        time_given("soon")


class Disk:
    """What survives a crash: the version that each fragment runs from its next batch on, and its clock."""

    def __init__(self) -> None:
        self.alone: set[str] = set()
        self.clock: dict[str, int] = {}
        self.is_new: dict[str, bool] = {}


def test_with_a_crash_between_any_two_effects_no_version_gets_a_message_of_the_other() -> None:
    def run(seed: int) -> None:
        random, disk = Random(seed), Disk()
        fragments = [f for f in "abc" if random.random() < 0.7] or ["a"]
        handover = Handover(2, 1, AT, frozenset(fragments))
        stages = HandoverStages()
        left: list[Effect] = stages.step(HandoverBegun(handover))
        is_over, proven = False, set[str]()
        for turn in range(500):
            if turn < 430 and random.random() < 0.03:  # the process dies, whatever is left to do
                stages, proven = HandoverStages(), set()
                left = stages.step(HandoverBegun(handover, frozenset(disk.alone)))
                is_over = False
            elif left:
                effect = left.pop(0)
                match effect:
                    case RunNewVersion(fragment):
                        assert disk.clock.get(fragment, 0) >= AT, "a message before the time may still come"
                        assert fragment in proven, "the trial does not know of it"
                        disk.alone.add(fragment)
                    case RunBothVersions(fragment):
                        assert fragment not in disk.alone, "it ran alone already"
                    case ConfirmFragment(fragment):
                        assert fragment not in proven, "twice"
                        shows = disk.is_new.get(fragment, False) or disk.clock.get(fragment, 0) >= AT
                        assert shows, "it has shown nothing"
                        proven.add(fragment)
                    case ReportHandoverEnd():
                        assert not is_over, "twice"
                        is_over = True
            elif stages.handover is not None:
                fragment = random.choice(fragments)
                disk.clock[fragment] = disk.clock.get(fragment, 0) + random.randrange(400)
                new = disk.is_new.get(fragment, False) or random.random() < 0.3
                disk.is_new[fragment] = new
                left = stages.step(FragmentCommitted(fragment, disk.clock[fragment], has_new=new))
            stages.check()
        assert is_over
        assert disk.alone == set(fragments)

    run_seeds(run, chosen_seeds(60, at_most=2000))

"""The stages of a change of a running application."""

from __future__ import annotations

from random import Random

import pytest

from drivetrain.core.change.change_events import (
    BatchBegan,
    BatchCommitted,
    BatchFailed,
    Change,
    ChangeGivenUp,
    ChangeProposed,
    ChangeResumed,
    DropFragment,
    Effect,
    Event,
    FragmentEnded,
    FragmentWaited,
    Outcome,
    OutcomeRecorded,
    RecordingFailed,
    RecordOutcome,
    RecordVersion,
    ReportOutcome,
    StartFragment,
    UseVersion,
    VersionRecorded,
)
from drivetrain.core.change.live_change import LiveChange, Stage
from drivetrain.errors import InternalError
from drivetrain.simulator.simulate import chosen_seeds, run_seeds

CHANGE = Change(2, 1, frozenset({"a", "b"}))


def on_trial() -> LiveChange:
    change = LiveChange()
    change.step(ChangeProposed(CHANGE))
    change.step(VersionRecorded())
    return change


def test_nothing_uses_a_version_before_it_is_recorded() -> None:
    change = LiveChange()
    assert change.step(ChangeProposed(CHANGE)) == [RecordVersion(CHANGE)]
    assert change.step(VersionRecorded()) == [UseVersion("a", 2), UseVersion("b", 2)]
    assert change.awaited == ("a", "b")


def test_it_is_done_when_every_touched_fragment_has_committed_a_batch_or_has_ended() -> None:
    change = on_trial()
    change.step(BatchBegan("a", 7))
    assert change.step(BatchCommitted("a")) == []
    assert change.awaited == ("b",)
    assert change.step(FragmentEnded("b")) == [RecordOutcome(CHANGE, Outcome.DONE)]
    assert change.step(OutcomeRecorded()) == [ReportOutcome(CHANGE, Outcome.DONE)]
    assert change.stage is Stage.IDLE


def test_a_fragment_without_messages_is_unproven_when_it_has_waited_long_enough() -> None:
    change = on_trial()
    change.step(BatchBegan("a", 7))
    change.step(BatchCommitted("a"))
    assert change.step(FragmentWaited("b")) == [RecordOutcome(CHANGE, Outcome.DONE)]
    assert change.step(OutcomeRecorded()) == [ReportOutcome(CHANGE, Outcome.DONE, unproven=("b",))]


def test_a_message_may_come_while_others_are_awaited() -> None:
    change = on_trial()
    change.step(FragmentWaited("b"))
    assert change.awaited == ("a",)
    change.step(BatchBegan("b", 3))
    change.step(BatchCommitted("b"))
    change.step(FragmentWaited("b"))
    change.step(FragmentEnded("a"))
    assert change.step(OutcomeRecorded()) == [ReportOutcome(CHANGE, Outcome.DONE)]


def test_a_fragment_that_has_waited_may_still_fail_and_end_the_trial() -> None:
    change = on_trial()
    change.step(FragmentWaited("b"))
    change.step(BatchBegan("b", 3))
    failed = (CHANGE, Outcome.ROLLED_BACK, "b", "why")
    assert change.step(BatchFailed("b", "why")) == [RecordOutcome(*failed)]


def test_a_fragment_that_fails_with_it_takes_all_back_once_that_is_recorded() -> None:
    change = on_trial()
    change.step(BatchBegan("a", 7))
    change.step(BatchCommitted("a"))
    change.step(BatchBegan("b", 3))
    failed = (CHANGE, Outcome.ROLLED_BACK, "b", "why")
    assert change.step(BatchFailed("b", "why")) == [RecordOutcome(*failed)]
    assert change.step(OutcomeRecorded()) == [UseVersion("a", 1), UseVersion("b", 1), ReportOutcome(*failed)]


def test_a_fragment_that_has_not_begun_it_does_not_end_the_trial() -> None:
    change = on_trial()
    assert change.step(BatchFailed("a", "the old code")) == []
    assert change.stage is Stage.ON_TRIAL


def test_a_trial_that_is_given_up_takes_all_back() -> None:
    change = on_trial()
    ended = (CHANGE, Outcome.ROLLED_BACK, None, "given up")
    assert change.step(ChangeGivenUp("given up")) == [RecordOutcome(*ended)]
    assert change.step(OutcomeRecorded()) == [UseVersion("a", 1), UseVersion("b", 1), ReportOutcome(*ended)]


def test_a_version_that_cannot_be_recorded_changes_nothing() -> None:
    change = LiveChange()
    change.step(ChangeProposed(CHANGE))
    assert change.step(RecordingFailed("full")) == [ReportOutcome(CHANGE, Outcome.REFUSED, None, "full")]
    assert change.stage is Stage.IDLE


def test_a_change_that_touches_no_fragment_is_done_at_once() -> None:
    change, nothing = LiveChange(), Change(2, 1, frozenset())
    change.step(ChangeProposed(nothing))
    assert change.step(VersionRecorded()) == [RecordOutcome(nothing, Outcome.DONE)]


def test_a_trial_goes_on_in_another_process() -> None:
    change = LiveChange()
    assert change.step(ChangeResumed(CHANGE)) == [UseVersion("a", 2), UseVersion("b", 2)]


def test_an_event_that_is_illegal_changes_nothing() -> None:
    change = on_trial()
    with pytest.raises(InternalError, match="ChangeProposed while a change is on trial"):
        change.step(ChangeProposed(CHANGE))
    assert change.change == CHANGE
    with pytest.raises(InternalError, match="VersionRecorded while a change is idle"):
        LiveChange().step(VersionRecorded())
    with pytest.raises(InternalError, match="has not begun"):
        change.step(BatchCommitted("a"))
    with pytest.raises(InternalError, match="does not touch c"):
        change.step(BatchBegan("c", 1))


GROWN = Change(2, 1, frozenset({"a", "new"}), starts=("new",), leaves=("old",))


def grown() -> LiveChange:
    change = LiveChange()
    change.step(ChangeProposed(GROWN))
    started = change.step(VersionRecorded())
    assert started == [StartFragment("new"), UseVersion("a", 2), UseVersion("new", 2)]
    return change


def test_a_fragment_leaves_once_it_is_recorded_that_the_change_is_done() -> None:
    change = grown()
    change.step(BatchBegan("a", 7))
    change.step(BatchCommitted("a"))
    assert change.awaited == ("new",), "the trial waits for a batch of the new fragment, too"
    change.step(BatchBegan("new", 0))
    assert change.step(BatchCommitted("new")) == [RecordOutcome(GROWN, Outcome.DONE)]
    assert change.step(OutcomeRecorded()) == [
        DropFragment("old", goes_back=False),
        ReportOutcome(GROWN, Outcome.DONE),
    ]


def test_a_new_fragment_that_fails_before_a_batch_ends_the_trial_and_goes() -> None:
    change = grown()
    failed = (GROWN, Outcome.ROLLED_BACK, "new", "why")
    assert change.step(BatchFailed("new", "why")) == [RecordOutcome(*failed)]
    back = [DropFragment("new", goes_back=True), UseVersion("a", 1), ReportOutcome(*failed)]
    assert change.step(OutcomeRecorded()) == back, "the one that was to leave stays"


def test_a_process_that_resumes_a_trial_starts_no_fragment_again() -> None:
    change = LiveChange()
    assert change.step(ChangeResumed(GROWN)) == [UseVersion("a", 2), UseVersion("new", 2)]


def test_a_fragment_that_leaves_is_not_touched() -> None:
    with pytest.raises(InternalError, match="touches what leaves"):
        LiveChange().step(ChangeProposed(Change(2, 1, frozenset({"a"}), leaves=("a",))))


class Disk:
    """What survives: the version in force, and the change that has no outcome yet."""

    def __init__(self) -> None:
        self.in_force, self.open, self.newest = 1, None, 1


def test_with_a_crash_between_any_two_effects_the_version_in_force_is_a_whole_one() -> None:
    def run(seed: int) -> None:
        random, disk = Random(seed), Disk()
        change = LiveChange()
        used: dict[str, int] = {}
        committed: set[str] = set()
        for _ in range(400):
            event = drawn(random, change, disk, used)
            if event is None:
                continue
            if isinstance(event, BatchCommitted | FragmentEnded | FragmentWaited):
                committed.add(event.fragment)
            effects, died = change.step(event), False
            while effects:
                if random.random() < 0.05:  # the process dies before the effect
                    change, used, died = LiveChange(), {}, True
                    break
                effects = perform(effects, change, disk, used, committed)
            if died:
                committed.clear()
                if disk.open is not None:
                    change.step(ChangeResumed(disk.open))
            change.check()
            assert all(number <= disk.newest for number in used.values()), "used before it was recorded"
            assert not disk.open or disk.open.number == disk.in_force

    run_seeds(run, chosen_seeds(60, at_most=2000))


def drawn(random: Random, change: LiveChange, disk: Disk, used: dict[str, int]) -> Event | None:
    """What may happen now."""
    if change.stage is Stage.IDLE:
        touched = frozenset(f for f in "abc" if random.random() < 0.6)
        return ChangeProposed(Change(disk.newest + 1, disk.in_force, touched))
    if change.stage is not Stage.ON_TRIAL or change.change is None:
        return None
    fragment = random.choice(sorted(change.change.touched))
    return random.choice(
        [
            BatchBegan(fragment, 1),
            FragmentEnded(fragment),
            FragmentWaited(fragment),
            BatchFailed(fragment, "x"),
            ChangeGivenUp("x") if random.random() < 0.1 else None,
        ]
    )


def perform(
    effects: list[Effect], change: LiveChange, disk: Disk, used: dict[str, int], committed: set[str]
) -> list[Effect]:
    """Do the first of the effects; those that are left."""
    effect, *left = effects
    match effect:
        case RecordVersion(of):
            disk.in_force, disk.newest, disk.open = of.number, of.number, of
            committed.clear()
            return [*left, *change.step(VersionRecorded())]
        case RecordOutcome(of, outcome):
            if outcome is Outcome.DONE:
                assert of.touched <= committed, "done before every fragment has committed or waited"
            disk.in_force = of.number if outcome is Outcome.DONE else of.before
            disk.open = None
            return [*left, *change.step(OutcomeRecorded())]
        case UseVersion(fragment, number):
            used[fragment] = number
        case ReportOutcome():
            pass
    return left

"""One fragment in a checkpoint: alignment, the rules of the reference, and what is repeated or late."""

from __future__ import annotations

import itertools
import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain.core.checkpoint.barriers import (
    Acknowledge,
    CommandArrived,
    Effect,
    Forward,
    Hold,
    InputEnded,
    Participant,
    Publish,
    Refuse,
    Release,
    ReportStateLost,
    Restore,
    Resume,
    RollBack,
    SnapshotFailed,
    SnapshotTaken,
    TakeSnapshot,
)
from drivetrain.core.checkpoint.transaction import (
    COORDINATOR,
    Action,
    ActionAcked,
    CheckpointRecord,
    Command,
    Snapshot,
)
from drivetrain.errors import InternalError

SNAPSHOT = Snapshot(5, {}, {"x": 3, "y": 4})
RECORD = CheckpointRecord(0, 1, {"f": SNAPSHOT})


def command(action: Action, txid: int, round: int = 1, life: int = 1) -> Command:
    """A command, with the record where one belongs."""
    with_record = action in (Action.COMMIT, Action.INITSTATE) and txid >= 0
    return Command(action, txid, round, life, RECORD if with_record else None)


def arrive(core: Participant, given: Command, inputs: str | None = None) -> list[Effect]:
    """Copies come by all inputs, or by these; all effects."""
    effects: list[Effect] = []
    for name in sorted(core.inputs) if inputs is None else inputs:
        effects += core.step(CommandArrived(name, given))
        core.check()
    return effects


def ack(given: Command, snapshot: Snapshot | None = None) -> Acknowledge:
    """The acknowledgement of f."""
    return Acknowledge(ActionAcked("f", given.action, given.txid, given.round, given.life, snapshot))


def initialised(inputs: str = "xy", txid: int = -1, round: int = 0) -> Participant:
    """A fragment that goes on from its last batch."""
    core = Participant("f", inputs, life=1)
    arrive(core, command(Action.INITSTATE, txid, round))
    return core


PREPARE = command(Action.PREPARE, 0)
COMMIT = command(Action.COMMIT, 0)
ROLLBACK = command(Action.ROLLBACK, 0)


# -- alignment -------------------------------------------------------------------------------------------


def test_an_input_is_held_at_its_barrier_until_all_inputs_reach_it() -> None:
    core = initialised()
    assert core.step(CommandArrived("x", PREPARE)) == [Hold("x")]
    assert core.held == {"x"}
    assert core.step(CommandArrived("y", PREPARE)) == [TakeSnapshot(PREPARE)]
    assert core.step(SnapshotTaken(1, SNAPSHOT)) == [Forward(PREPARE), Release(1), ack(PREPARE, SNAPSHOT)]
    assert core.held == set()
    assert core.last_txid == 0


def test_sources_are_not_held() -> None:
    core = Participant("f", ["x", COORDINATOR], life=1)
    arrive_init = [CommandArrived(name, command(Action.INITSTATE, -1, 0)) for name in ("x", COORDINATOR)]
    for event in arrive_init:
        core.step(event)
    assert core.step(CommandArrived(COORDINATOR, PREPARE)) == []
    assert core.step(CommandArrived("x", PREPARE)) == [TakeSnapshot(PREPARE)]


def test_nobody_waits_for_a_barrier_in_an_input_that_has_ended() -> None:
    core = initialised("xyz")
    assert core.step(CommandArrived("x", PREPARE)) == [Hold("x")]
    assert core.step(InputEnded("y")) == []
    assert core.step(InputEnded("z")) == [TakeSnapshot(PREPARE)]
    core.step(SnapshotTaken(1, SNAPSHOT))
    # What is no barrier comes from the fragment, which is still there.
    assert arrive(core, COMMIT, "xy") == []
    assert Publish(COMMIT, SNAPSHOT) in arrive(core, COMMIT, "z")
    assert arrive(core, command(Action.PREPARE, 1, 2), "x") == [TakeSnapshot(command(Action.PREPARE, 1, 2))]


def test_a_newer_barrier_releases_the_inputs_that_wait_at_an_older_one() -> None:
    core = initialised()
    core.step(CommandArrived("x", PREPARE))
    newer = command(Action.PREPARE, 0, round=2)
    assert core.step(CommandArrived("y", newer)) == [Release(1), Hold("y")]
    assert core.held == {"y"}
    assert core.step(CommandArrived("x", newer)) == [TakeSnapshot(newer)]


def test_an_input_does_not_stay_at_a_barrier_that_was_given_up() -> None:
    core = initialised()
    core.step(CommandArrived("x", command(Action.PREPARE, 0, round=2)))
    assert core.step(CommandArrived("y", PREPARE)) == [Release(1), ack(PREPARE)]


# -- the reference -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [COMMIT, ROLLBACK, command(Action.INITSTATE, 0)])
def test_only_the_last_copy_of_an_action_is_handled_and_forwarded(given: Command) -> None:
    core = initialised("xyz")
    for name in "xxyyx":
        assert core.step(CommandArrived(name, given)) == []
    effects = core.step(CommandArrived("z", given))
    assert [e for e in effects if isinstance(e, Forward | Acknowledge)] == [Forward(given), ack(given)]


@pytest.mark.parametrize(
    ("given", "last"),
    [(COMMIT, 0), (ROLLBACK, -1), (command(Action.INITSTATE, 0), 0), (command(Action.INITSTATE, -1), -1)],
)
def test_after_rollback_the_last_txid_is_one_less_and_else_the_txid(given: Command, last: int) -> None:
    core = initialised()
    arrive(core, given)
    assert core.last_txid == last


@pytest.mark.parametrize("action", list(Action))
def test_what_is_below_the_last_txid_is_acknowledged_and_not_forwarded(action: Action) -> None:
    core = initialised(txid=3, round=4)
    old = command(action, 2, round=4)
    effects = core.step(CommandArrived("x", old))
    assert [e for e in effects if not isinstance(e, Release)] == [ack(old)]
    assert core.last_txid == 3


def test_prepare_before_initialisation_fails_and_forwards_nothing() -> None:
    core = Participant("f", "xy", life=1)
    effects = arrive(core, PREPARE)
    assert effects == [Hold("x"), Refuse(PREPARE, "it has not been initialised yet")]


def test_who_was_saved_for_a_round_and_started_again_is_not_saved_for_it_twice() -> None:
    core = Participant("f", "xy", life=1, saved=7)
    arrive(core, command(Action.INITSTATE, -1, round=6))  # late: the other process was told it
    again = command(Action.PREPARE, 0, round=7)
    reason = "it was saved for that before it started again"
    assert arrive(core, again) == [Hold("x"), Refuse(again, reason)]
    assert arrive(core, command(Action.ROLLBACK, 0, round=7))[0] == RollBack(0, 7)
    following = command(Action.PREPARE, 0, round=8)
    assert arrive(core, following) == [Hold("x"), TakeSnapshot(following)]


def test_commit_publishes_what_is_in_the_record_also_when_nothing_is_remembered_of_it() -> None:
    for core in (initialised(), Participant("f", "xy", life=1)):
        assert arrive(core, COMMIT) == [Publish(COMMIT, SNAPSHOT), Forward(COMMIT), Release(1), ack(COMMIT)]
        assert arrive(core, COMMIT) == [Publish(COMMIT, SNAPSHOT), Forward(COMMIT), Release(1), ack(COMMIT)]


def test_rollback_leaves_no_trace_of_the_try() -> None:
    for taken in (False, True):
        core = initialised()
        arrive(core, PREPARE)
        if taken:
            core.step(SnapshotTaken(1, SNAPSHOT))
        assert arrive(core, ROLLBACK) == [RollBack(0, 1), Forward(ROLLBACK), Release(1), ack(ROLLBACK)]
        assert core.step(SnapshotTaken(1, SNAPSHOT)) == [], "what was being saved meanwhile"
        again = command(Action.PREPARE, 0, round=2)
        assert arrive(core, again) == [Hold("x"), TakeSnapshot(again)]


def test_a_rollback_releases_what_is_held() -> None:
    core = initialised()
    core.step(CommandArrived("x", PREPARE))
    arrive(core, ROLLBACK)
    assert core.held == set()
    late = core.step(CommandArrived("y", PREPARE))
    assert late == [Release(1), ack(PREPARE)], "a barrier whose round is decided holds nobody"


def test_a_retried_action_is_not_handled_early_by_copies_of_the_try_before() -> None:
    core = initialised("xyz")
    arrive(core, PREPARE, "xy")
    arrive(core, ROLLBACK)
    again = command(Action.PREPARE, 0, round=2)
    assert arrive(core, again, "z") == [Hold("z")]
    assert arrive(core, again, "xy") == [Hold("x"), TakeSnapshot(again)]


def test_initstate_initialises_once_and_is_forwarded_each_time() -> None:
    init = command(Action.INITSTATE, -1, 0)
    core = Participant("f", "xy", life=1)
    assert arrive(core, init) == [Resume(init), Forward(init), Release(0), ack(init)]
    assert arrive(core, init) == [Forward(init), Release(0), ack(init)]


# -- lives ---------------------------------------------------------------------------------------------------


def test_a_fragment_that_never_began_begins_at_the_record_or_at_the_beginning() -> None:
    for txid, snapshot in ((-1, None), (0, SNAPSHOT)):
        assert not Participant("f", "xy").may_run
        core = Participant("f", "xy")
        init = command(Action.INITSTATE, txid)
        assert arrive(core, init)[0] == Restore(init, snapshot)
        assert core.may_run


def test_a_lost_state_is_told_and_goes_back_only_with_everybody_else() -> None:
    assert not Participant("f", "xy", life=1, lost=True).may_run
    core = Participant("f", "xy", life=1, lost=True)
    assert arrive(core, command(Action.INITSTATE, 0)) == [ReportStateLost(1)]
    assert not core.is_initialised
    init = command(Action.INITSTATE, 0, life=2)
    assert arrive(core, init) == [Restore(init, SNAPSHOT), Forward(init), Release(1), ack(init)]
    assert core.may_run
    assert core.step(CommandArrived("x", command(Action.INITSTATE, 0))) == [ack(command(Action.INITSTATE, 0))]


def test_prepare_of_another_life_is_refused() -> None:
    core = initialised()
    (_, refused) = arrive(core, command(Action.PREPARE, 0, life=2))
    assert isinstance(refused, Refuse)


# -- what goes wrong -----------------------------------------------------------------------------------------


def test_a_snapshot_that_cannot_be_had_is_refused_and_inputs_wait_for_the_rollback() -> None:
    core = initialised()
    arrive(core, PREPARE)
    assert core.step(SnapshotFailed(1, "no room")) == [Refuse(PREPARE, "no room")]
    assert core.held == {"x"}
    assert core.step(SnapshotTaken(1, SNAPSHOT)) == []
    assert core.step(SnapshotFailed(1, "no room")) == []


def test_a_prepare_that_is_told_again_is_acknowledged_again_and_not_forwarded_twice() -> None:
    core = initialised()
    arrive(core, PREPARE)
    assert arrive(core, PREPARE, "xy") == [Hold("x")], "the snapshot is on its way"
    core.step(SnapshotTaken(1, SNAPSHOT))
    assert core.step(CommandArrived("x", PREPARE)) == [ack(PREPARE, SNAPSHOT)]


def test_an_input_that_it_has_not_is_refused() -> None:
    core = initialised()
    with pytest.raises(InternalError, match="none of the inputs"):
        core.step(CommandArrived("z", PREPARE))
    with pytest.raises(InternalError, match="without inputs"):
        Participant("f", [])


@given(st.integers(0, 2**32), st.integers(1, 4))
def test_snapshots_are_taken_exactly_when_the_newest_round_is_at_every_input(seed: int, inputs: int) -> None:
    """Against a model that knows, of each input, the newest barrier that it stands at."""
    draw = random.Random(seed)
    names = "wxyz"[:inputs]
    core = initialised(names)
    at = dict.fromkeys(names, 0)
    taken: list[int] = []
    decided, saving = 0, False
    for round in itertools.count(1):
        if round > 12:
            break
        barrier = command(Action.PREPARE, 0, round)
        # Some inputs never see the barrier: who writes them died before.
        for name in draw.sample(names, draw.randint(0, inputs)):
            at[name] = round
            effects = core.step(CommandArrived(name, barrier))
            core.check()
            saving = TakeSnapshot(barrier) in effects
            assert saving == all(newest == round for newest in at.values())
            assert saving or core.held == {n for n in names if at[n] == round}
        if saving:
            taken.append(round)
            if draw.random() < 0.7:
                core.step(SnapshotTaken(round, msgspec.structs.replace(SNAPSHOT, batch_id=round)))
                assert core.held == set()
        if draw.random() < 0.5:
            decided = round
            arrive(core, command(Action.ROLLBACK, 0, round))
            assert core.held == set()
        saving = False
    assert len(taken) == len(set(taken))
    assert decided <= 12

"""The coordinator of checkpoints: each row of the reference, what is persisted, timeouts, and times."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain.core.checkpoint.checkpoint_figures import KEPT_FAILURES
from drivetrain.core.checkpoint.coordinator import (
    CheckpointCoordinator,
    CheckpointPolicy,
    CheckpointRequested,
    Completed,
    Emit,
    ParticipantsChanged,
    Persist,
    StopRequested,
    TimePassed,
)
from drivetrain.core.checkpoint.transaction import (
    NO_TXID,
    TABLE,
    Action,
    ActionAcked,
    ActionFailed,
    CheckpointRecord,
    Command,
    Phase,
    Snapshot,
    StateLost,
    Transaction,
)
from drivetrain.core.state.picture_times import PictureTimes, common_times, times_between
from drivetrain.errors import ConfigError, InternalError, PeerViolationError

POLICY = CheckpointPolicy(interval_ms=1_000, timeout_ms=30_000)
RECORD = CheckpointRecord(4, 7, {"a": Snapshot(1), "b": Snapshot(2)})


class Driven:
    """A coordinator of fragments a and b, what it persisted, and what it told."""

    def __init__(self, saved: Transaction | None = None, fragments: str = "ab") -> None:
        self.core = CheckpointCoordinator(fragments, POLICY, saved)
        self.now = 0
        self.stored = saved
        self.told: list[Command] = []
        self.completed: list[int] = []

    def step(self, event: Any, at: int | None = None) -> list[Command]:
        """Take an event (at a time in ms); the commands that it led to."""
        self.now = self.now if at is None else at
        told: list[Command] = []
        for effect in self.core.step(event, self.now):
            match effect:
                case Persist(transaction):
                    self.stored = transaction
                case Emit(command):
                    assert self.stored is None or command.txid == self.stored.txid, "told before persisted"
                    told.append(command)
                case Completed(record):
                    self.completed.append(record.txid)
        self.core.check()
        self.told += told
        return told

    def ack(self, fragment: str, command: Command | None = None, **changes: Any) -> list[Command]:
        """What is in flight (or `command`) is acknowledged by a fragment, with changes."""
        of = command or self.told[-1]
        snapshot = Snapshot(1, bytes=10) if of.action is Action.PREPARE else None
        acked = ActionAcked(fragment, of.action, of.txid, of.round, of.life, snapshot)
        return self.step(msgspec.structs.replace(acked, **changes))

    def ack_all(self) -> list[Command]:
        """Everybody acknowledges what is in flight."""
        return [command for name in sorted(self.core.participants) for command in self.ack(name)]

    @property
    def state(self) -> tuple[Phase, int, bool]:
        """Where it stands."""
        return self.core.transaction.phase, self.core.transaction.txid, self.core.recovering


def recovered() -> Driven:
    """A coordinator that has just recovered, with no transaction yet; its first is told."""
    driven = Driven()
    driven.step(TimePassed())
    driven.ack_all()
    return driven


# -- the reference, row by row ---------------------------------------------------------------------------

ROWS = [
    # state(txid), recovering; action → on ack: the state, recovering
    (Phase.COMMITTED, 4, True, Action.INITSTATE, (Phase.PREPARING, 5, False)),  # done: the first is immediate
    (Phase.PREPARING, 5, False, Action.PREPARE, (Phase.COMMITTING, 5, False)),
    (Phase.PREPARING, 5, True, Action.ROLLBACK, (Phase.COMMITTED, 4, True)),
    (Phase.COMMITTING, 4, False, Action.COMMIT, (Phase.COMMITTED, 4, False)),
    (Phase.COMMITTING, 4, True, Action.COMMIT, (Phase.COMMITTED, 4, True)),
]


@pytest.mark.parametrize(("phase", "txid", "recovering", "action", "after"), ROWS)
def test_each_row_of_the_table_has_its_action_and_its_next_state(
    phase: Phase, txid: int, recovering: bool, action: Action, after: tuple[Phase, int, bool]
) -> None:
    driven = Driven(Transaction(txid, phase, 8, record=RECORD))
    driven.core.recovering = recovering
    driven.core._started_ms = None if phase is Phase.COMMITTED else 0
    (command,) = driven.step(TimePassed())
    assert (command.action, command.txid) == (action, txid)
    assert driven.ack("a") == []
    driven.ack("b")
    assert driven.state == after
    if after[0] is not phase:
        assert driven.stored == driven.core.transaction


def test_the_table_has_these_rows_and_no_other() -> None:
    assert {(phase, recovering): TABLE[phase, recovering].action for phase, recovering in TABLE} == {
        (phase, recovering): action for phase, _, recovering, action, _ in ROWS
    }


def test_absent_state_starts_at_minus_one_committed_and_opening_always_starts_in_recovery() -> None:
    driven = Driven()
    assert driven.state == (Phase.COMMITTED, NO_TXID, True)
    (command,) = driven.step(TimePassed())
    assert (command.action, command.txid, command.record) == (Action.INITSTATE, -1, None)
    for saved in (Transaction(4, Phase.COMMITTING, 7, record=RECORD), Transaction(0, Phase.PREPARING, 1)):
        assert Driven(saved).core.recovering


def test_the_first_real_transaction_is_zero_and_the_first_checkpoint_is_immediate() -> None:
    driven = recovered()
    assert [(c.action, c.txid) for c in driven.told] == [(Action.INITSTATE, -1), (Action.PREPARE, 0)]


def test_preparing_is_persisted_before_prepare_is_emitted() -> None:
    driven = Driven()
    driven.step(TimePassed())
    driven.ack("a")
    (command,) = (driven.told[-1],)
    effects = driven.core.step(ActionAcked("b", Action.INITSTATE, -1, command.round, command.life), 0)
    begun = Transaction(0, Phase.PREPARING, 1)
    assert effects == [Persist(begun), Emit(Command(Action.PREPARE, 0, 1, 1))]


def test_the_record_is_in_the_one_write_between_all_prepared_and_commit() -> None:
    driven = recovered()
    driven.ack("a")
    effects = driven.core.step(ActionAcked("b", Action.PREPARE, 0, 1, 1, Snapshot(9)), 0)
    record = CheckpointRecord(0, 1, {"a": Snapshot(1, bytes=10), "b": Snapshot(9)})
    committing = Transaction(0, Phase.COMMITTING, 1, record=record)
    commit = Command(Action.COMMIT, 0, 1, 1, record)
    assert effects == [Persist(committing), Emit(commit)]


def test_one_step_is_in_flight_at_a_time() -> None:
    driven = recovered()
    for at in (1, 900, 2_000, 29_000):
        assert driven.step(TimePassed(), at) == []


def test_an_ack_with_another_txid_changes_no_state_but_the_action_is_emitted_again() -> None:
    driven = recovered()
    driven.ack("a")
    before = driven.core.transaction
    assert driven.ack("b", action=Action.INITSTATE, txid=-1, round=0) == []
    assert driven.core.transaction == before
    (again,) = driven.step(TimePassed(), 1_000)
    assert again == driven.told[-2]
    assert [c.action for c in driven.ack("b")] == [Action.COMMIT], "what a had acknowledged still counts"


def test_late_acks_do_not_make_a_storm_of_repetitions() -> None:
    driven = recovered()
    repeated = 0
    for at in range(0, 29_000, 100):
        driven.step(ActionAcked("a", Action.INITSTATE, -1, 0, 1), at)
        repeated += len(driven.step(TimePassed(), at))
    assert repeated == 4  # after 1, 3, 7 and 15 s


@pytest.mark.parametrize(
    "changes", [{"round": 0}, {"life": 0}, {"action": Action.COMMIT}, {"snapshot": None}]
)
def test_what_answers_another_try_life_or_action_does_not_count(changes: dict[str, Any]) -> None:
    driven = recovered()
    driven.ack("a")
    driven.ack("b", **changes)
    driven.ack("gone")
    assert driven.core.waits_for == {"b"}
    assert driven.state == (Phase.PREPARING, 0, False)


@pytest.mark.parametrize("changes", [{"round": 2}, {"life": 2}])
def test_an_answer_to_what_was_never_told_is_refused_and_changes_nothing(changes: dict[str, Any]) -> None:
    driven = recovered()
    with pytest.raises(PeerViolationError, match="never sent"):
        driven.ack("b", **changes)
    assert driven.core.waits_for == {"a", "b"}


def test_any_failure_sets_recovering_and_the_transaction_is_rolled_back_and_tried_in_another_round() -> None:
    driven = recovered()
    driven.step(ActionFailed("a", "it died"))
    assert driven.core.recovering
    (rollback,) = driven.step(TimePassed(), 10)
    assert (rollback.action, rollback.txid, rollback.round) == (Action.ROLLBACK, 0, 1)
    (init,) = driven.ack_all()
    assert (init.action, init.txid) == (Action.INITSTATE, -1)
    assert driven.ack_all() == []
    (prepare,) = driven.step(TimePassed(), 1_001)
    assert (prepare.action, prepare.txid, prepare.round) == (Action.PREPARE, 0, 2)


def test_a_step_that_takes_as_long_as_the_timeout_sets_recovering() -> None:
    driven = recovered()
    driven.ack("a")
    assert driven.step(TimePassed(), 29_999) == []
    (rollback,) = driven.step(TimePassed(), 30_000)
    assert rollback.action is Action.ROLLBACK
    (failure,) = driven.core.figures(30_000).failures
    assert failure.fragments == ("b",)
    assert failure.reason == "no answer for 30000 ms"


def test_a_failure_while_committing_commits_again_and_never_rolls_back() -> None:
    driven = recovered()
    driven.ack_all()
    driven.step(ActionFailed("b", "it died"))
    (again,) = driven.step(TimePassed(), 5)
    assert (again.action, again.txid) == (Action.COMMIT, 0)
    (init,) = driven.ack_all()
    assert (init.action, init.txid, init.record) == (Action.INITSTATE, 0, driven.core.record)


@pytest.mark.parametrize(("took", "due"), [(10, 1_001), (700, 1_001), (5_000, 5_000)])
def test_a_checkpoint_is_due_from_start_to_start_and_without_overlap(took: int, due: int) -> None:
    driven = recovered()
    driven.now = took
    driven.ack_all()
    driven.ack_all()
    assert driven.completed == [0]
    if took < 1_000:
        assert driven.step(TimePassed(), 1_000) == []
    else:
        assert driven.told[-1].txid == 1
        return
    (prepare,) = driven.step(TimePassed(), due)
    assert (prepare.action, prepare.txid) == (Action.PREPARE, 1)


def test_who_wants_a_checkpoint_gets_it_at_once() -> None:
    driven = recovered()
    driven.ack_all()
    driven.ack_all()
    driven.step(CheckpointRequested())
    (prepare,) = driven.step(TimePassed(), 1)
    assert prepare.txid == 1


# -- beyond the reference --------------------------------------------------------------------------------


def test_a_lost_state_begins_another_life_for_all_after_the_transaction_is_decided() -> None:
    driven = Driven(Transaction(4, Phase.COMMITTING, 7, record=RECORD))
    driven.step(StateLost("a", 1, "deleted"))
    assert driven.stored is not None
    assert driven.stored.life == 2
    driven.step(StateLost("b", 1, "deleted, and said late"))
    assert driven.stored.life == 2
    (commit,) = driven.step(TimePassed())
    assert (commit.action, commit.life) == (Action.COMMIT, 2)
    (init,) = driven.ack_all()
    assert (init.action, init.life, init.record) == (Action.INITSTATE, 2, RECORD)


def test_when_the_fragments_change_nobody_waits_for_who_is_gone_and_who_is_new_is_initialised() -> None:
    driven = recovered()
    driven.ack("a")
    driven.step(ParticipantsChanged(frozenset("ac")))
    driven.step(TimePassed(), 1)
    assert driven.core.waits_for == {"a", "c"}
    driven.step(ActionFailed("b", "it was stopped"))
    (init,) = driven.ack_all()
    assert init.action is Action.INITSTATE
    driven.step(ParticipantsChanged(frozenset("ac")))
    assert driven.core.waits_for == {"a", "c"}


def test_fragments_that_change_between_two_transactions_are_no_failure() -> None:
    driven = Driven()
    driven.step(ParticipantsChanged(frozenset("ac")))
    assert driven.core.recovering
    assert driven.core.history.failed == 0
    assert not driven.core.history.failures


def test_time_that_goes_back_is_refused() -> None:
    driven = recovered()
    driven.step(TimePassed(), 10)
    with pytest.raises(InternalError, match="went back"):
        driven.step(TimePassed(), 9)


def test_times_that_make_no_sense_are_refused() -> None:
    for interval_ms, timeout_ms in ((99, 1), (100, 0)):
        with pytest.raises(ConfigError, match="100 ms or more"):
            CheckpointPolicy(interval_ms, timeout_ms)


def test_a_stored_transaction_without_its_record_is_refused() -> None:
    with pytest.raises(InternalError, match="invariant 1"):
        Driven(Transaction(4, Phase.COMMITTED, 7))


def test_figures_tell_duration_size_and_the_time_of_each_fragment() -> None:
    driven = recovered()
    driven.now = 40
    driven.ack("a")
    assert driven.core.figures(60).running_ms == 60
    driven.now = 70
    driven.ack("b")
    driven.now = 90
    driven.ack_all()
    figures = driven.core.figures(100)
    assert figures.last is not None
    last = figures.last
    assert (last.txid, last.duration_ms, last.bytes, last.fragment_ms) == (0, 90, 20, {"a": 40, "b": 70})
    assert (figures.completed, figures.failed, figures.running_ms) == (1, 0, None)
    for _ in range(KEPT_FAILURES + 5):
        driven.step(ActionFailed("a", "no room"))
    figures = driven.core.figures(100)
    assert figures.failed == KEPT_FAILURES + 5
    assert len(figures.failures) == KEPT_FAILURES
    assert msgspec.json.decode(msgspec.json.encode(figures)) is not None


def test_what_is_stored_comes_back_from_disk() -> None:
    saved = Transaction(4, Phase.COMMITTING, 7, 2, RECORD)
    assert msgspec.json.decode(msgspec.json.encode(saved), type=Transaction) == saved
    assert RECORD.channel_positions() == {}


# -- application times -----------------------------------------------------------------------------------


def recorded(*pictures: PictureTimes | None) -> CheckpointRecord:
    return CheckpointRecord(0, 1, {f"f{n}": Snapshot(1, pictures=p) for n, p in enumerate(pictures)})


def test_the_time_of_a_record_is_the_newest_that_all_states_have_a_picture_of() -> None:
    hours, days = PictureTimes(20, 110, 10), PictureTimes(0, 100, 50)
    assert recorded(hours, None, days).as_of_ms == 100
    assert recorded(PictureTimes(110, 190, 10), days).as_of_ms is None, "none has been kept that long"
    assert recorded(hours, PictureTimes(10, 0, 10)).as_of_ms is None, "the clock of one has passed none yet"
    assert recorded(None, None).as_of_ms is None


def test_the_time_of_the_last_checkpoint_is_told() -> None:
    driven = recovered()
    for name in ("a", "b"):
        snapshot = Snapshot(1, pictures=PictureTimes(10, 40, 10))
        driven.step(ActionAcked(name, Action.PREPARE, 0, 1, 1, snapshot))
    driven.ack_all()
    last = driven.core.figures(1).last
    assert last is not None
    assert last.as_of_ms == 40


RANGES = st.builds(times_between, st.integers(-40, 40), st.integers(-40, 80), st.integers(1, 12))


@given(st.lists(RANGES, min_size=1, max_size=4))
def test_common_times_are_those_that_every_range_contains(ranges: list[PictureTimes]) -> None:
    common = common_times(ranges)
    assert common is not None
    exact = [at for at in range(-41, 82) if all(at in times for times in ranges)]
    assert [at for at in range(-41, 82) if at in common] == exact
    assert common.newest_ms == max(exact, default=None)


def preparing() -> tuple[Driven, Command]:
    """A coordinator that has sent PREPARE of transaction 5, and that command."""
    driven = Driven(Transaction(txid=4, phase=Phase.COMMITTED, round=7, record=RECORD))
    driven.step(TimePassed())
    driven.ack_all()
    if not driven.told or driven.told[-1].action is not Action.PREPARE:
        driven.step(TimePassed(), 2_000)
    return driven, driven.told[-1]


def test_after_a_stop_nothing_is_decided() -> None:
    driven, prepare = preparing()
    assert prepare.action is Action.PREPARE
    driven.ack("a")
    driven.step(StopRequested())
    assert driven.core.has_settled
    before = driven.stored
    assert driven.ack("b") == []
    assert driven.step(TimePassed(), 60_000) == []
    assert driven.step(ActionFailed("a", "it has stopped")) == []
    assert driven.stored == before, "it stays undecided"


def test_after_a_stop_what_is_decided_is_committed() -> None:
    driven, _ = preparing()
    (commit,) = driven.ack_all()
    assert commit.action is Action.COMMIT
    driven.step(StopRequested())
    driven.step(CheckpointRequested())
    assert not driven.core.has_settled
    driven.ack("a", commit)
    assert driven.ack("b", commit) == [], "no other begins"
    assert driven.core.has_settled
    assert driven.stored is not None
    assert (driven.stored.txid, driven.stored.phase) == (5, Phase.COMMITTED)
    assert driven.completed == [5]

"""The coordinator of checkpoints: one transaction over all fragments at a time, through any crash.

Problem: all fragments must be saved as of the same barrier, and all sinks must publish exactly the results
before it, or none of them. Every process can die at any moment, the coordinator too, and messages are lost,
late or repeated.

Design: Storm's state machine, one `Transaction` that is persisted at each of its steps. `TABLE` in
`core.checkpoint.transaction` has the command of each state, and what follows when all fragments have
acknowledged:

| state | normal: action → all acknowledged | recovering: action → all acknowledged |
|---|---|---|
| COMMITTED(n) | when due: become PREPARING(n+1) | INITSTATE(n) → recovery done |
| PREPARING(n) | PREPARE → COMMITTING(n), with the record | ROLLBACK(n) → COMMITTED(n−1) |
| COMMITTING(n) | COMMIT → COMMITTED(n) | COMMIT(n) → COMMITTED(n) |

A coordinator begins in recovery. A failure, or a step that takes longer than the timeout, leads there too. A
checkpoint is due when more than the interval has passed since the last one *started*, and immediately when
there was none yet or one is requested (by a savepoint, or at the end). The record is written in the same
write that turns PREPARING into COMMITTING: before it the transaction can only be rolled back, after it only
committed.

| event | result |
|---|---|
| `TimePassed` | a command not in flight is sent (again); a timeout is noticed; a checkpoint may be due |
| `ActionAcked` of the step in flight | counted by fragment; the last one completes the step, see above |
| `ActionAcked` of another transaction | the step is no longer in flight: its command is sent again |
| `ActionAcked` of this one, of another step, round or life | nothing: it is late |
| `ActionFailed` | recovering |
| `StateLost` in the current life | recovering, in the next life: all go back to the record at INITSTATE |
| `ParticipantsChanged` | recovering: removed fragments are no longer awaited, new ones are initialised |
| `CheckpointRequested` | the next one is due |
| `StopRequested` | what is decided is still committed; nothing else begins or is decided, see `has_settled` |

All fragments answer a repeated command, and an answer that is late enough belongs to another transaction, so
the current command is sent again. Unlimited, that loop feeds itself. So a command is repeated only after the
interval has passed, then after twice the interval, and so on.

Effects are performed in order, each before the next: `Persist` returns when the value is durable. If it
fails, the coordinator must be discarded, and a new one created from the persisted state.

Invariants; `check()` verifies the first three, the fourth is the order of effects:

1. There is a record exactly from the first COMMITTING on; it is of transaction n in COMMITTING(n) and
   COMMITTED(n), and of an earlier one in PREPARING(n), each with every fragment's snapshot.
2. Round and life never fall; each start of PREPARE has a new round.
3. One step is in flight at a time; it waits for participants only.
4. Nothing is sent before it is persisted.

Called by the actor `checkpoints` of an application. Source: Apache Storm's CheckpointSpout. Unlike there,
tries are distinguished (`round`), and the whole application can go back to a record (`life`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

import msgspec

from drivetrain.core.checkpoint.checkpoint_figures import (
    CheckpointFailure,
    CheckpointFigures,
    CheckpointHistory,
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
    Transition,
)
from drivetrain.errors import ConfigError, InternalError, PeerViolationError

FLOOR_MS: Final = 100
"""No interval is shorter."""
DEFAULT_INTERVAL_MS: Final = 1_000
DEFAULT_TIMEOUT_MS: Final = 30_000


@dataclass(frozen=True, slots=True)
class TimePassed:
    """Time has passed; sent at least every tenth of the interval."""


@dataclass(frozen=True, slots=True)
class ParticipantsChanged:
    """The application consists of these fragments now."""

    fragments: frozenset[str]


@dataclass(frozen=True, slots=True)
class CheckpointRequested:
    """A checkpoint is requested as soon as possible."""


@dataclass(frozen=True, slots=True)
class StopRequested:
    """The application is about to stop: no further checkpoint is decided."""


Event: TypeAlias = (
    TimePassed
    | ActionAcked
    | ActionFailed
    | StateLost
    | ParticipantsChanged
    | CheckpointRequested
    | StopRequested
)


@dataclass(frozen=True, slots=True)
class Persist:
    """Write this atomically to where the next coordinator reads it, and wait until it is durable."""

    transaction: Transaction


@dataclass(frozen=True, slots=True)
class Emit:
    """Send this to every fragment that has sources; they forward it to the others."""

    command: Command


@dataclass(frozen=True, slots=True)
class Completed:
    """This transaction is committed everywhere: data that only older ones need may be deleted."""

    record: CheckpointRecord


Effect: TypeAlias = Persist | Emit | Completed


@dataclass(frozen=True, slots=True)
class CheckpointPolicy:
    """How often, and how long a step may take; raises ConfigError for times out of range.

    Unless it is `periodic`, checkpoints are only taken on request.
    """

    interval_ms: int = DEFAULT_INTERVAL_MS
    timeout_ms: int = DEFAULT_TIMEOUT_MS
    periodic: bool = True

    def __post_init__(self) -> None:
        if self.interval_ms < FLOOR_MS or self.timeout_ms < 1:
            raise ConfigError(
                "the settings of checkpoints are not possible",
                expected=f"an interval of {FLOOR_MS} ms or more, a timeout of 1 ms or more",
                got=f"{self.interval_ms} ms and {self.timeout_ms} ms",
                remedy="correct checkpoint.interval and checkpoint.timeout",
            )


class CheckpointCoordinator:
    """The checkpoints of one application; `saved` is the persisted transaction, None at the first start."""

    def __init__(
        self, fragments: Iterable[str], policy: CheckpointPolicy, saved: Transaction | None = None
    ) -> None:
        self.transaction = saved if saved is not None else Transaction()
        self.policy = policy
        self.participants = frozenset(fragments)
        self.recovering = True
        self.history: Final = CheckpointHistory()
        self._in_flight: Command | None = None
        self._acked: dict[str, Snapshot | None] = {}
        self._step_since_ms: int | None = None  # when the command of the current step was first sent
        self._sent_ms = 0  # when it was last sent
        self._patience_ms = 0  # how long from then until it may be sent again
        self._started_ms: int | None = None
        self._wanted = False
        self._is_stopping = False
        self._now_ms: int | None = None
        self.check()

    # -- state ----------------------------------------------------------------------------------------

    @property
    def record(self) -> CheckpointRecord | None:
        """The newest record that the application may have to go back to."""
        return self.transaction.record

    @property
    def waits_for(self) -> frozenset[str]:
        """The fragments that have not acknowledged the current step."""
        return self.participants - self._acked.keys() if self._step_since_ms is not None else frozenset()

    @property
    def has_settled(self) -> bool:
        """Whether a stop was requested and all that is decided is committed: from then on no event has an
        effect."""
        return self._is_stopping and self.transaction.phase is not Phase.COMMITTING

    def figures(self, now_ms: int) -> CheckpointFigures:
        """The figures about checkpoints for users."""
        began = self.history.started_ms
        return CheckpointFigures(
            txid=self.transaction.txid,
            phase=self.transaction.phase,
            recovering=self.recovering,
            running_ms=None if began is None else now_ms - began,
            completed=self.history.completed,
            failed=self.history.failed,
            last=self.history.last,
            failures=tuple(self.history.failures),
            interval_ms=self.policy.interval_ms if self.policy.periodic else None,
        )

    # -- events --------------------------------------------------------------------------------------

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        """Handle an event; returns the effects, in order.

        Raises, and changes nothing: PeerViolationError for an answer to a command that was never sent,
        InternalError for a time that goes back. Events of fragments that no longer belong to the application
        are ignored.
        """
        self._refuse(event, now_ms)
        self._now_ms = now_ms
        effects: list[Effect] = []
        if self.has_settled:
            return effects
        match event:
            case TimePassed():
                self._time_out(now_ms)
                self._go_on(now_ms, effects)
            case ActionAcked():
                self._take_ack(event, now_ms, effects)
            case ActionFailed(fragment, reason):
                if fragment in self.participants:
                    self._fail((fragment,), reason, now_ms)
            case StateLost(fragment, life, reason):
                if fragment in self.participants and life == self.transaction.life:
                    self._fail((fragment,), reason, now_ms)
                    self._persist(msgspec.structs.replace(self.transaction, life=life + 1), effects)
            case ParticipantsChanged(fragments):
                self._change_participants(fragments, now_ms)
            case CheckpointRequested():
                self._wanted = True
            case StopRequested():
                self._is_stopping = True
        return effects

    def _change_participants(self, fragments: frozenset[str], now_ms: int) -> None:
        if fragments == self.participants:
            return
        self.participants = fragments
        if self._step_since_ms is None and self.transaction.phase is Phase.COMMITTED:
            self.recovering = True  # nothing is under way that could fail
        else:
            self._fail((), "the fragments of the application have changed", now_ms)

    def _refuse(self, event: Event, now_ms: int) -> None:
        if self._now_ms is not None and now_ms < self._now_ms:
            raise InternalError(f"time went back from {self._now_ms} to {now_ms} ms", where="checkpoints")
        current = self.transaction
        round, life = getattr(event, "round", 0), getattr(event, "life", 0)
        if round > current.round or life > current.life:
            raise PeerViolationError(
                "a fragment answered a message that was never sent",
                where="checkpoints",
                expected=f"at most round {current.round} in life {current.life}",
                got=repr(event),
            )

    def _take_ack(self, ack: ActionAcked, now_ms: int, effects: list[Effect]) -> None:
        if ack.fragment not in self.participants:
            return  # it has left the application meanwhile
        if ack.txid != self.transaction.txid:
            self._in_flight = None  # the command is sent again when time passes
            return
        if self._step_since_ms is None:
            return
        command = self._command()
        if (ack.action, ack.round, ack.life) != (command.action, command.round, command.life):
            return
        if ack.action is Action.PREPARE:
            if ack.snapshot is None:
                return
            self.history.prepared(ack.fragment, now_ms)
        self._acked.setdefault(ack.fragment, ack.snapshot)
        if not self.waits_for:
            self._finish_step(now_ms, effects)
            self._go_on(now_ms, effects)

    def _finish_step(self, now_ms: int, effects: list[Effect]) -> None:
        """All fragments have acknowledged the command of the current state."""
        before, row = self.transaction, self._row()
        snapshots = {f: s for f, s in self._acked.items() if s is not None}
        self._forget_step()
        if row.action is Action.INITSTATE:
            self.recovering = False
            return
        record = before.record
        if row.action is Action.PREPARE:
            record = CheckpointRecord(before.txid, before.round, snapshots)
        after = msgspec.structs.replace(
            before, phase=row.after, txid=before.txid + row.txid_by, record=record
        )
        self._persist(after, effects)
        if row.action is Action.COMMIT:
            assert record is not None
            self.history.committed(record, now_ms)
            effects.append(Completed(record))
        elif row.action is Action.ROLLBACK:
            self.history.rolled_back()

    def _go_on(self, now_ms: int, effects: list[Effect]) -> None:
        """Send the command of the current state, unless it is in flight."""
        if self._in_flight is not None or not self.participants or self.has_settled:
            return
        if not self.recovering and self.transaction.phase is Phase.COMMITTED:
            if not self._is_due(now_ms):
                return
            self._prepare(now_ms, effects)
        if self._step_since_ms is None:
            self._step_since_ms, self._patience_ms = now_ms, self.policy.interval_ms
        elif now_ms - self._sent_ms < self._patience_ms:
            return
        else:
            self._patience_ms *= 2
        self._sent_ms, self._in_flight = now_ms, self._command()
        effects.append(Emit(self._in_flight))

    def _prepare(self, now_ms: int, effects: list[Effect]) -> None:
        current = self.transaction
        begun = msgspec.structs.replace(
            current,
            txid=current.txid + 1,
            phase=Phase.PREPARING,
            round=current.round + 1,
        )
        self._persist(begun, effects)
        self._started_ms = now_ms
        self._wanted = False
        self.history.started(now_ms)

    def _is_due(self, now_ms: int) -> bool:
        if self._wanted or not self.policy.periodic:
            return self._wanted
        return self._started_ms is None or now_ms - self._started_ms > self.policy.interval_ms

    def _time_out(self, now_ms: int) -> None:
        if self._step_since_ms is not None and now_ms - self._step_since_ms >= self.policy.timeout_ms:
            late = tuple(sorted(self.waits_for))
            self._fail(late, f"no answer for {now_ms - self._step_since_ms} ms", now_ms)

    def _fail(self, fragments: tuple[str, ...], reason: str, now_ms: int) -> None:
        action = self._row().action if self._step_since_ms is not None else None
        self.history.failure(CheckpointFailure(self.transaction.txid, action, now_ms, fragments, reason))
        self.recovering = True
        self._forget_step()

    def _forget_step(self) -> None:
        self._in_flight, self._acked, self._step_since_ms = None, {}, None

    def _persist(self, transaction: Transaction, effects: list[Effect]) -> None:
        self.transaction = transaction
        effects.append(Persist(transaction))

    def _row(self) -> Transition:
        return TABLE[self.transaction.phase, self.recovering]

    def _command(self) -> Command:
        current, action = self.transaction, self._row().action
        return Command(
            action,
            current.txid,
            current.round,
            current.life,
            current.record if action in (Action.COMMIT, Action.INITSTATE) else None,
        )

    def check(self) -> None:
        """Raise InternalError when an invariant of the module does not hold."""
        current = self.transaction
        expected = current.txid - 1 if current.phase is Phase.PREPARING else current.txid
        if (NO_TXID if current.record is None else current.record.txid) != expected:
            raise InternalError(f"checkpoint invariant 1: the record of another transaction in {current}")
        if current.round < (0 if current.record is None else current.record.round) or current.life < 1:
            raise InternalError(f"checkpoint invariant 2: {current}")
        if self._step_since_ms is None and (self._in_flight is not None or self._acked):
            raise InternalError("checkpoint invariant 3: no step, but fragments have answered")
        if not self._acked.keys() <= self.participants:
            raise InternalError(f"checkpoint invariant 3: {sorted(self._acked)} have answered")
        if self._in_flight is not None and self._in_flight != self._command():
            raise InternalError(f"checkpoint invariant 3: {self._in_flight} is in flight in {current}")

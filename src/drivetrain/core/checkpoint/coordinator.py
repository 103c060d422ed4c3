"""The coordinator of checkpoints: one transaction over all fragments at a time, through any crash.

Problem: all fragments must be saved as of the same barrier, and all sinks publish exactly what is before it,
or nothing of it. Every process can die at any moment, the coordinator too, and words are lost, late or
repeated.

Design: Storm's state machine, one `Transaction` that is persisted at each of its steps. What is to be told in
which state, and what follows when everybody has acknowledged it, is `TABLE` in `core.checkpoint.transaction`:

| state | normal: action → all acknowledged | recovering: action → all acknowledged |
|---|---|---|
| COMMITTED(n) | when due: become PREPARING(n+1) | INITSTATE(n) → recovery done |
| PREPARING(n) | PREPARE → COMMITTING(n), with the record | ROLLBACK(n) → COMMITTED(n−1) |
| COMMITTING(n) | COMMIT → COMMITTED(n) | COMMIT(n) → COMMITTED(n) |

A coordinator begins in recovery. A failure, or a step that takes longer than the timeout, leads there too. A
checkpoint is due when more than the interval has passed since the last one *started*, at once when there was
none yet or somebody asks for one (a savepoint, the end). The record is written in the one write by which
PREPARING becomes COMMITTING: before it the transaction can only be rolled back, after it only committed.

| event | what comes of it |
|---|---|
| `TimePassed` | what is not in flight is told (again); a timeout is noticed; a checkpoint may be due |
| `ActionAcked` of the step in flight | counted by fragment; the last one makes the step above |
| `ActionAcked` of another transaction | the step is not in flight any more: it is told again |
| `ActionAcked` of this one, of another step, round or life | nothing: it is late |
| `ActionFailed` | recovering |
| `StateLost` in the present life | recovering, in the next life: all go back to the record at INITSTATE |
| `ParticipantsChanged` | recovering: nobody waits for who is gone, and who is new is initialised |
| `CheckpointWanted` | the next one is due |

What is told again is answered again by everybody, and an answer that is late enough is one of another
transaction, so that the present step is told again. Left alone that feeds itself. So a step is told again
only after the interval has passed, then twice the interval, and so on.

Effects are done in order, each before the next: `Persist` returns when the value is durable. If that fails,
the coordinator must be given up, and another made from what is there.

Invariants; `check()` verifies the first three, the fourth is the order of effects:

1. There is a record exactly from the first COMMITTING on; it is of transaction n in COMMITTING(n) and
   COMMITTED(n), and of an earlier one in PREPARING(n), each with every fragment's snapshot.
2. Round and life never fall; each start of PREPARE has a new round.
3. One step is in flight at a time; it waits for participants only.
4. Nobody is told what is not persisted.

Called by the actor `checkpoints` of an application. Source: Apache Storm's CheckpointSpout. Unlike there,
tries are told apart (`round`), and the whole application can go back to a record (`life`).
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
    Row,
    Snapshot,
    StateLost,
    Transaction,
)
from drivetrain.errors import ConfigError, InternalError, PeerViolationError

FLOOR_MS: Final = 100
"""No interval is shorter."""
DEFAULT_INTERVAL_MS: Final = 1_000
DEFAULT_TIMEOUT_MS: Final = 30_000


@dataclass(frozen=True, slots=True)
class TimePassed:
    """Time goes on; told at least every tenth of the interval."""


@dataclass(frozen=True, slots=True)
class ParticipantsChanged:
    """The application consists of these fragments now."""

    fragments: frozenset[str]


@dataclass(frozen=True, slots=True)
class CheckpointWanted:
    """Somebody wants a checkpoint as soon as there can be one."""


Event: TypeAlias = (
    TimePassed | ActionAcked | ActionFailed | StateLost | ParticipantsChanged | CheckpointWanted
)


@dataclass(frozen=True, slots=True)
class Persist:
    """Write this atomically where the next coordinator finds it, and wait until it is durable."""

    transaction: Transaction


@dataclass(frozen=True, slots=True)
class Emit:
    """Tell every fragment that has sources; they tell the others."""

    command: Command


@dataclass(frozen=True, slots=True)
class Completed:
    """This transaction is committed everywhere: what is only needed by older ones may be deleted."""

    record: CheckpointRecord


Effect: TypeAlias = Persist | Emit | Completed


@dataclass(frozen=True, slots=True)
class CheckpointPolicy:
    """How often, and how long a step may take; raises ConfigError for times that make no sense.

    Unless it is `periodic`, checkpoints are only made when they are wanted.
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
    """Of one application; `saved` is what was persisted last, None at the very first start."""

    def __init__(
        self, fragments: Iterable[str], policy: CheckpointPolicy, saved: Transaction | None = None
    ) -> None:
        self.transaction = saved if saved is not None else Transaction()
        self.policy: Final = policy
        self.participants = frozenset(fragments)
        self.recovering = True
        self.history: Final = CheckpointHistory()
        self._in_flight: Command | None = None
        self._acked: dict[str, Snapshot | None] = {}
        self._step_since_ms: int | None = None  # when the present step was first told
        self._told_ms = 0  # when it was told last
        self._patience_ms = 0  # how long from there until it may be told again
        self._started_ms: int | None = None
        self._wanted = False
        self._now_ms: int | None = None
        self.check()

    # -- what there is -------------------------------------------------------------------------------

    @property
    def record(self) -> CheckpointRecord | None:
        """The newest record that the application may have to go back to."""
        return self.transaction.record

    @property
    def waits_for(self) -> frozenset[str]:
        """The fragments that have not acknowledged the present step."""
        return self.participants - self._acked.keys() if self._step_since_ms is not None else frozenset()

    def figures(self, now_ms: int) -> CheckpointFigures:
        """What people are told."""
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
        )

    # -- events --------------------------------------------------------------------------------------

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        """Take an event; what is to be done, in order.

        Raises, and changes nothing: PeerViolationError for an answer to what was never told, InternalError
        for a time that goes back. Fragments that are none of the application's (any more) are not heard.
        """
        self._refuse(event, now_ms)
        self._now_ms = now_ms
        effects: list[Effect] = []
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
                if fragments != self.participants:
                    self.participants = fragments
                    self._fail((), "the fragments of the application have changed", now_ms)
            case CheckpointWanted():
                self._wanted = True
        return effects

    def _refuse(self, event: Event, now_ms: int) -> None:
        if self._now_ms is not None and now_ms < self._now_ms:
            raise InternalError(f"time went back from {self._now_ms} to {now_ms} ms", where="checkpoints")
        present = self.transaction
        told = getattr(event, "round", 0), getattr(event, "life", 0)
        if told[0] > present.round or told[1] > present.life:
            raise PeerViolationError(
                "a fragment answered a message that was never sent",
                where="checkpoints",
                expected=f"at most round {present.round} in life {present.life}",
                got=repr(event),
            )

    def _take_ack(self, ack: ActionAcked, now_ms: int, effects: list[Effect]) -> None:
        if ack.fragment not in self.participants:
            return  # it has left the application meanwhile
        if ack.txid != self.transaction.txid:
            self._in_flight = None  # the step is told again when time passes
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
        """Everybody has acknowledged the action of the present state."""
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
        """Tell what is to be told now, if it is not in flight."""
        if self._in_flight is not None or not self.participants:
            return
        if not self.recovering and self.transaction.phase is Phase.COMMITTED:
            if not self._is_due(now_ms):
                return
            self._prepare(now_ms, effects)
        if self._step_since_ms is None:
            self._step_since_ms, self._patience_ms = now_ms, self.policy.interval_ms
        elif now_ms - self._told_ms < self._patience_ms:
            return
        else:
            self._patience_ms *= 2
        self._told_ms, self._in_flight = now_ms, self._command()
        effects.append(Emit(self._in_flight))

    def _prepare(self, now_ms: int, effects: list[Effect]) -> None:
        present = self.transaction
        begun = msgspec.structs.replace(
            present,
            txid=present.txid + 1,
            phase=Phase.PREPARING,
            round=present.round + 1,
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

    def _row(self) -> Row:
        return TABLE[self.transaction.phase, self.recovering]

    def _command(self) -> Command:
        present, action = self.transaction, self._row().action
        return Command(
            action,
            present.txid,
            present.round,
            present.life,
            present.record if action in (Action.COMMIT, Action.INITSTATE) else None,
        )

    def check(self) -> None:
        """Raise InternalError when an invariant of the module does not hold."""
        present = self.transaction
        expected = present.txid - 1 if present.phase is Phase.PREPARING else present.txid
        if (NO_TXID if present.record is None else present.record.txid) != expected:
            raise InternalError(f"checkpoint invariant 1: the record of another transaction in {present}")
        if present.round < (0 if present.record is None else present.record.round) or present.life < 1:
            raise InternalError(f"checkpoint invariant 2: {present}")
        if self._step_since_ms is None and (self._in_flight is not None or self._acked):
            raise InternalError("checkpoint invariant 3: no step, but fragments have answered")
        if not self._acked.keys() <= self.participants:
            raise InternalError(f"checkpoint invariant 3: {sorted(self._acked)} have answered")
        if self._in_flight is not None and self._in_flight != self._command():
            raise InternalError(f"checkpoint invariant 3: {self._in_flight} is in flight in {present}")

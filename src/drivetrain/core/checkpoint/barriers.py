"""One fragment in a checkpoint: it aligns its inputs, is saved between two batches, and forwards the barrier.

Problem: the barrier of a checkpoint arrives on one input earlier than on another. Messages after it must not
be in the snapshot, those before it must. Copies of a command arrive late, twice, or from an abandoned round;
and the fragment's process may die and start again without its memory.

Design: a `Command` arrives on every input: on each channel from the fragment that writes it, and from the
coordinator if the fragment has sources. A PREPARE is a barrier in the channel; the input is **held** in front
of it until all inputs have reached it. (Sources are not held: their barrier is wherever they are when the
channels' barriers have arrived.) The other commands are messages along the same edges, and overtake held
inputs. A command is handled when its last copy has arrived, and only then forwarded to the outputs. So when a
fragment learns that the application goes back to a record, all fragments that it reads from have already done
so.

| all copies have arrived | effects | then |
|---|---|---|
| PREPARE, not initialised for its life | `Refuse` | not forwarded |
| PREPARE of a round for which an earlier process was saved | `Refuse` | not forwarded |
| PREPARE | `TakeSnapshot`; when taken `Forward`, `Release`, `Acknowledge` | last txid = txid |
| COMMIT | `Publish`, `Forward`, `Release`, `Acknowledge` | last txid = txid |
| ROLLBACK | `RollBack`, `Forward`, `Release`, `Acknowledge` | last txid = txid − 1 |
| INITSTATE of a later life | `Restore`, `Forward`, `Release`, `Acknowledge` | last txid = txid, initialised |
| INITSTATE of this life, whose state is lost | `ReportStateLost` | not forwarded |
| INITSTATE of this life | the first time `Resume`; `Forward`, `Release`, `Acknowledge` | the same |

A command below the last txid, or of an earlier round or life, and a PREPARE whose round is decided, are
stale: they are acknowledged and not forwarded. Every command may arrive again; repetition changes nothing.
Copies are identified by input, so two copies on one input never count as one on each of two inputs.

What a participant must remember is durable elsewhere: its batches in Spark's checkpoint, its barriers in the
channels, the **life** in which it began, and the newest round for which it was **saved**. An earlier process
may have saved a snapshot and died before it acknowledged it. Others may already stand at its barrier, and a
second snapshot for the same round would be of another cut. The shell passes life and round to the
constructor, and repeats the barriers that inputs stand at. On `Restore` it does everything else first, and
records the new life last: after a crash in between the old life is still recorded, and the whole restore is
repeated. `ROLLBACK` undoes the transaction, not the batches: their results stay prepared, and the next
transaction publishes them. Only `Restore` aborts them.

Invariants, checked by `check()`:

1. Inputs are held only for the newest round, until it has its snapshot or is decided.
2. A snapshot is taken once per round, and only by an initialised participant.
3. Copies are kept of the newest round and life only; a decided round is not prepared.

Called by the shell of a fragment's query, which performs the effects in order, between batches: no batch
begins between the arrival of the last barrier and `Release`. A batch that was planned before a crash and is
not committed runs again before the snapshot: the outputs may have it already.

Source: Apache Storm's bolts in checkpoint transactions, with partial counts cleared; barrier alignment as in
Apache Flink.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from drivetrain.core.checkpoint.transaction import (
    COORDINATOR,
    NO_TXID,
    Action,
    ActionAcked,
    Command,
    Snapshot,
)
from drivetrain.errors import InternalError

NO_LIFE: Final = 0
"""The life of a fragment that has never begun."""


@dataclass(frozen=True, slots=True)
class CommandArrived:
    """A copy of a command arrived on an input; everything before the barrier of a PREPARE is taken."""

    input: str
    command: Command


@dataclass(frozen=True, slots=True)
class InputEnded:
    """An input was read to its end: nothing more arrives, and no barrier in it is awaited."""

    input: str


@dataclass(frozen=True, slots=True)
class SnapshotTaken:
    """The requested snapshot is durable."""

    round: int
    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class SnapshotFailed:
    """The requested snapshot cannot be taken; `reason` is text for users."""

    round: int
    reason: str


Event: TypeAlias = CommandArrived | InputEnded | SnapshotTaken | SnapshotFailed


@dataclass(frozen=True, slots=True)
class Hold:
    """Stop reading this input."""

    input: str


@dataclass(frozen=True, slots=True)
class Release:
    """Barriers up to this round no longer hold any input."""

    round: int


@dataclass(frozen=True, slots=True)
class TakeSnapshot:
    """Save the fragment as it is now, prepare its sinks' results, and then send `SnapshotTaken`."""

    command: Command


@dataclass(frozen=True, slots=True)
class Publish:
    """Publish the sinks' results up to this snapshot (None: this fragment has none); idempotent."""

    command: Command
    snapshot: Snapshot | None


@dataclass(frozen=True, slots=True)
class RollBack:
    """Drop what was saved for this round; the batches and their prepared results stay."""

    txid: int
    round: int


@dataclass(frozen=True, slots=True)
class Restore:
    """Go back to this snapshot (None: to the beginning), in a new life, which is recorded last.

    Output channels are cut after the barrier of `command.record`; results that sinks prepared after it are
    aborted.
    """

    command: Command
    snapshot: Snapshot | None


@dataclass(frozen=True, slots=True)
class Resume:
    """Continue after the last committed batch."""

    command: Command


@dataclass(frozen=True, slots=True)
class Forward:
    """Forward this to every output: a PREPARE as a barrier after the last batch, others as messages."""

    command: Command


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """Report to the coordinator that the command is done."""

    ack: ActionAcked


@dataclass(frozen=True, slots=True)
class Refuse:
    """Report to the coordinator that the command cannot be done (`ActionFailed`)."""

    command: Command
    reason: str


@dataclass(frozen=True, slots=True)
class ReportStateLost:
    """Report to the coordinator that the state of this life is lost (`StateLost`)."""

    life: int


Effect: TypeAlias = (
    Hold
    | Release
    | TakeSnapshot
    | Publish
    | RollBack
    | Restore
    | Resume
    | Forward
    | Acknowledge
    | Refuse
    | ReportStateLost
)


class Participant:
    """The checkpoint protocol in one process of one fragment.

    `inputs` are its channels, and COORDINATOR if it has sources.

    `life` is the newest one that the fragment has begun; with `lost`, the fragment's state of that life
    cannot be used. `saved` is the newest round for which an earlier process left a snapshot (0: none).
    """

    def __init__(
        self,
        fragment: str,
        inputs: Iterable[str],
        life: int = NO_LIFE,
        lost: bool = False,
        saved: int = 0,
    ) -> None:
        self.fragment: Final = fragment
        self.inputs: Final = frozenset(inputs)
        self.life = life
        self.lost = lost
        self.last_txid = NO_TXID
        self.is_initialised = False
        self.held: set[str] = set()
        self._saved: Final = saved
        self._round = 0  # the newest known one
        self._decided = 0  # the newest one that was committed or rolled back
        self._copies: dict[tuple[Action, int, int, int], tuple[Command, set[str]]] = {}
        self._ended: set[str] = set()
        self._preparing: Command | None = None  # all inputs have reached its barrier
        self._snapshot: Snapshot | None = None
        if not self.inputs:
            raise InternalError("a fragment without inputs cannot take part in checkpoints", where=fragment)

    @property
    def may_run(self) -> bool:
        """Whether it may run batches: a fragment that has begun its life continues without a command."""
        return self.life > NO_LIFE and not self.lost

    # -- events --------------------------------------------------------------------------------------

    def step(self, event: Event) -> list[Effect]:
        """Handle an event; returns the effects, in order. Raises InternalError for an unknown input."""
        input = getattr(event, "input", None)
        if input is not None and input not in self.inputs:
            raise InternalError(f"{input} is none of the inputs {sorted(self.inputs)}", where=self.fragment)
        match event:
            case CommandArrived(input, command):
                return self._arrived(input, command)
            case InputEnded(input):
                return self._input_ended(input)
            case SnapshotTaken(round, snapshot):
                return self._taken(round, snapshot)
            case SnapshotFailed(round, reason):
                return self._not_taken(round, reason)

    def _arrived(self, input: str, command: Command) -> list[Effect]:
        effects = self._note_round(command)
        if self._is_stale(command):
            if command.action is Action.PREPARE and input != COORDINATOR:
                effects.append(Release(command.round))
            return [*effects, self._acknowledge(command)]
        if self._is_prepared(command):
            # Repeated: an acknowledgement was lost. The barrier is in the outputs already.
            return [*effects, self._acknowledge(command, self._snapshot)]
        _, copies = self._copies.setdefault(command.key, (command, set()))
        copies.add(input)
        missing = self._missing(command, copies)
        if command.action is Action.PREPARE and input != COORDINATOR and missing:
            self.held.add(input)
            effects.append(Hold(input))
        if not missing:
            effects += self._handle(command)
        return effects

    def _note_round(self, command: Command) -> list[Effect]:
        """A newer round has begun, so older ones are decided, even without a command about them here."""
        if command.round <= self._round:
            return []
        effects: list[Effect] = [Release(command.round - 1)] if self.held else []
        self._round = command.round
        self._forget_round()
        return effects

    def _is_stale(self, command: Command) -> bool:
        if command.txid < self.last_txid or command.round < self._round or command.life < self.life:
            return True
        return command.action is Action.PREPARE and command.round <= self._decided

    def _is_prepared(self, command: Command) -> bool:
        return self._snapshot is not None and self._preparing == command

    def _missing(self, command: Command, copies: set[str]) -> frozenset[str]:
        # An ended input still sends commands other than barriers: its channel has ended, not the fragment.
        return self.inputs - copies - (self._ended if command.action is Action.PREPARE else frozenset())

    def _handle(self, command: Command) -> list[Effect]:
        del self._copies[command.key]
        match command.action:
            case Action.PREPARE:
                return self._prepare(command)
            case Action.COMMIT:
                return [Publish(command, self._of(command)), *self._decide(command, command.txid)]
            case Action.ROLLBACK:
                return [RollBack(command.txid, command.round), *self._decide(command, command.txid - 1)]
            case Action.INITSTATE:
                return self._initialise(command)

    def _prepare(self, command: Command) -> list[Effect]:
        if not self.is_initialised or command.life != self.life:
            return [Refuse(command, "it has not been initialised yet")]
        if command.round <= self._saved:
            return [Refuse(command, "it was saved for that before it started again")]
        if self._preparing is not None:
            return []  # the snapshot is being taken
        self._preparing = command
        self.last_txid = command.txid
        return [TakeSnapshot(command)]

    def _taken(self, round: int, snapshot: Snapshot) -> list[Effect]:
        command = self._preparing
        if command is None or command.round != round or self._snapshot is not None:
            return []  # rolled back meanwhile
        self._snapshot = snapshot
        self.held.clear()
        return [Forward(command), Release(round), self._acknowledge(command, snapshot)]

    def _not_taken(self, round: int, reason: str) -> list[Effect]:
        command = self._preparing
        if command is None or command.round != round or self._snapshot is not None:
            return []
        self._preparing = None  # inputs stay where they are until the rollback arrives
        return [Refuse(command, reason)]

    def _input_ended(self, input: str) -> list[Effect]:
        self._ended.add(input)
        effects: list[Effect] = []
        for command, copies in list(self._copies.values()):
            if command.action is Action.PREPARE and not self._missing(command, copies):
                effects += self._handle(command)
        return effects

    def _initialise(self, command: Command) -> list[Effect]:
        if command.life == self.life and self.lost:
            return [ReportStateLost(self.life)]
        effects: list[Effect] = []
        if command.life > self.life:
            self.life, self.lost = command.life, False
            self._ended.clear()
            effects.append(Restore(command, self._of(command)))
        elif not self.is_initialised:
            effects.append(Resume(command))
        self.is_initialised = True
        return [*effects, *self._decide(command, command.txid)]

    def _decide(self, command: Command, last_txid: int) -> list[Effect]:
        self.last_txid = last_txid
        self._decided = max(self._decided, command.round)
        self._forget_round()
        return [Forward(command), Release(self._decided), self._acknowledge(command)]

    def _forget_round(self) -> None:
        """Drop the copies of abandoned rounds; otherwise a retried action would be handled too early."""
        self._copies.clear()
        self.held.clear()
        self._preparing = self._snapshot = None

    def _of(self, command: Command) -> Snapshot | None:
        return None if command.record is None else command.record.fragments.get(self.fragment)

    def _acknowledge(self, command: Command, snapshot: Snapshot | None = None) -> Acknowledge:
        ack = ActionAcked(self.fragment, command.action, command.txid, command.round, command.life, snapshot)
        return Acknowledge(ack)

    def check(self) -> None:
        """Raise InternalError when an invariant of the module does not hold."""
        if not self.held <= self.inputs - {COORDINATOR} or (self.held and self._round <= self._decided):
            self._broken("1", f"{sorted(self.held)} are held")
        if self.held and self._snapshot is not None:
            self._broken("1", f"{sorted(self.held)} are held, and the snapshot is taken")
        if self._preparing is not None and not (self.is_initialised and self._preparing.life == self.life):
            self._broken("2", "a snapshot is taken by who is not initialised")
        if any(key[2] != self._round for key in self._copies):
            self._broken("3", f"copies of {list(self._copies)} in round {self._round}")
        if self._preparing is not None and self._preparing.round <= self._decided:
            self._broken("3", f"round {self._preparing.round} is prepared, and decided")

    def _broken(self, invariant: str, what: str) -> None:
        raise InternalError(f"barrier invariant {invariant}: {what}", where=self.fragment)

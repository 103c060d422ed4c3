"""The messages of a checkpoint between coordinator and participants, and the transaction that is persisted.

Problem: one transaction spans many processes and a long time. A message may arrive late, twice, or after its
sender has died. Each must identify what it is about, and the persisted value alone must be enough to
continue.

Design: plain data. A `Command` goes from the coordinator to the fragments with sources and from there along
the graph; a PREPARE as a **barrier** in the channels. All fragments answer the coordinator directly. Three
numbers identify a message:

- `txid`, the transaction. As in Storm, a transaction that was rolled back is tried again with the same
  number.
- `round`, which is new for each try. A barrier stays in a channel although its try was rolled back;
  its round distinguishes it from a barrier of the next try, and likewise the answers to the two.
- `life`, which is new whenever the whole application goes back to a record because a state was lost.

`Transaction` is what the coordinator writes, atomically, before it sends anything: where it stands, and the
newest `CheckpointRecord` to which the application may have to go back. `TABLE` is the state machine.

Called by `core.checkpoint.coordinator` and `core.checkpoint.barriers`. Source: Apache Storm's checkpoint
stream.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final, TypeAlias

import msgspec

from drivetrain.core.state.picture_times import PictureTimes, common_times

NO_TXID: Final = -1
"""The committed transaction before the first one."""
COORDINATOR: Final = "coordinator"
"""The input on which a fragment with sources receives commands."""


class Action(StrEnum):
    """The actions that a command asks of participants."""

    PREPARE = "prepare"
    COMMIT = "commit"
    ROLLBACK = "rollback"
    INITSTATE = "initstate"


class Phase(StrEnum):
    """Where a transaction stands."""

    PREPARING = "preparing"
    COMMITTING = "committing"
    COMMITTED = "committed"


@dataclass(frozen=True, slots=True)
class Transition:
    """The action of a state; once all have acknowledged it, the next phase, and how the txid changes."""

    action: Action
    after: Phase
    txid_by: int = 0


TABLE: Final[Mapping[tuple[Phase, bool], Transition]] = MappingProxyType(
    {
        (Phase.PREPARING, False): Transition(Action.PREPARE, Phase.COMMITTING),
        (Phase.COMMITTING, False): Transition(Action.COMMIT, Phase.COMMITTED),
        (Phase.PREPARING, True): Transition(Action.ROLLBACK, Phase.COMMITTED, -1),
        (Phase.COMMITTING, True): Transition(Action.COMMIT, Phase.COMMITTED),
        (Phase.COMMITTED, True): Transition(Action.INITSTATE, Phase.COMMITTED),
    }
)
"""By (phase, recovering). COMMITTED and not recovering has none: a due checkpoint begins PREPARING."""


class Snapshot(msgspec.Struct, frozen=True):
    """One fragment at its barrier, between two of its batches.

    `batch_id` is the last batch before it, `sources` the offsets by source as Spark writes them, `channels`
    the positions by input channel (the barrier: the first entry not taken), `sinks` the last batch that
    COMMIT publishes, by sink, `bytes` the size of what was saved for it, `pictures` the application times for
    which the saved states are exact (None: its states are not kept by time).
    """

    batch_id: int
    sources: dict[str, str] = {}
    channels: dict[str, int] = {}
    sinks: dict[str, int] = {}
    bytes: int = 0
    pictures: PictureTimes | None = None


class CheckpointRecord(msgspec.Struct, frozen=True):
    """The whole application at a checkpoint: the snapshots by fragment."""

    txid: int
    round: int
    fragments: dict[str, Snapshot]

    @property
    def as_of_ms(self) -> int | None:
        """Its application time: the newest for which all states that are kept by time can be queried.

        None when no state is kept by time, or they have no such time in common.
        """
        common = common_times(s.pictures for s in self.fragments.values() if s.pictures is not None)
        return None if common is None else common.newest_ms

    @property
    def bytes(self) -> int:
        """The total size of the snapshots."""
        return sum(snapshot.bytes for snapshot in self.fragments.values())

    def channel_positions(self) -> dict[str, int]:
        """By channel, the barrier: earlier entries may go; a restore deletes it and all later ones."""
        return {
            channel: position
            for snapshot in self.fragments.values()
            for channel, position in snapshot.channels.items()
        }


class Transaction(msgspec.Struct, frozen=True):
    """The coordinator's state on disk, as one value; see the module for the numbers.

    `record` belongs to the newest transaction that is decided to commit (COMMITTING or COMMITTED).
    """

    txid: int = NO_TXID
    phase: Phase = Phase.COMMITTED
    round: int = 0
    life: int = 1
    record: CheckpointRecord | None = None


class Command(msgspec.Struct, frozen=True):
    """An action; `record` comes with COMMIT and INITSTATE (None: no transaction has committed)."""

    action: Action
    txid: int
    round: int
    life: int
    record: CheckpointRecord | None = None

    @property
    def key(self) -> tuple[Action, int, int, int]:
        """Identifies the command."""
        return self.action, self.txid, self.round, self.life


class ActionAcked(msgspec.Struct, frozen=True):
    """A fragment has handled a command; a PREPARE without a snapshot was stale, and nothing was saved."""

    fragment: str
    action: Action
    txid: int
    round: int
    life: int
    snapshot: Snapshot | None = None


class ActionFailed(msgspec.Struct, frozen=True):
    """A fragment could not do an action, or has died; `reason` is text for users."""

    fragment: str
    reason: str


class StateLost(msgspec.Struct, frozen=True):
    """A fragment's state of a life cannot be used: the application must go back to its record."""

    fragment: str
    life: int
    reason: str


@dataclass(frozen=True, slots=True)
class BatchesRan:
    """A fragment has run batches since it last reported: there is something new to save."""

    fragment: str


ParticipantEvent: TypeAlias = ActionAcked | ActionFailed | StateLost | BatchesRan
"""The events that a fragment reports to the coordinator."""

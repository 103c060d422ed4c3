"""The words of a checkpoint: what coordinator and participants say to each other, and what is kept.

Problem: one transaction goes over many processes and a lot of time. A word may come late, twice, or after
whoever said it has died. Each must say of itself what it is about, and what is written must be enough to go
on from, alone.

Design: plain data. A `Command` goes from the coordinator to the fragments with sources and from there along
the graph; a PREPARE as a **barrier** in the channels. Everybody answers the coordinator itself. Three numbers
tell words apart:

- `txid`, the transaction. As in Storm, a transaction that was rolled back is tried again by the same number.
- `round`, which is new for each try. A barrier stays in a channel although its try was rolled back; by its
  round nobody takes it for one of the next try, and no answer to the one counts for the other.
- `life`, which is new whenever the whole application goes back to a record, because a state was lost.

`Transaction` is what the coordinator writes, atomically, before it tells anybody: where it stands, and the
newest `CheckpointRecord` to which it may be necessary to go back. `TABLE` is the state machine.

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
"""The input by which a fragment with sources hears of actions."""


class Action(StrEnum):
    """What participants are told to do."""

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
class Row:
    """The action of a state; when all have acknowledged it: the next phase, and what the txid changes by."""

    action: Action
    after: Phase
    txid_by: int = 0


TABLE: Final[Mapping[tuple[Phase, bool], Row]] = MappingProxyType(
    {
        (Phase.PREPARING, False): Row(Action.PREPARE, Phase.COMMITTING),
        (Phase.COMMITTING, False): Row(Action.COMMIT, Phase.COMMITTED),
        (Phase.PREPARING, True): Row(Action.ROLLBACK, Phase.COMMITTED, -1),
        (Phase.COMMITTING, True): Row(Action.COMMIT, Phase.COMMITTED),
        (Phase.COMMITTED, True): Row(Action.INITSTATE, Phase.COMMITTED),
    }
)
"""By (phase, recovering). COMMITTED and not recovering has none: what is due there begins PREPARING."""


class Snapshot(msgspec.Struct, frozen=True):
    """One fragment at its barrier, which is between two of its batches.

    `batch_id` is the last batch before it, `sources` the offsets by source as Spark writes them, `channels`
    the positions by input channel (the barrier: the first entry that it has not taken), `sinks` by sink the
    last batch that COMMIT publishes, `bytes` the size of what was saved for it, `pictures` the application
    times as of which what was saved gives its states exactly (None: its states are not kept by time).
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
        """Its application time: the newest as of which all states that are kept by time can be asked for.

        None when no state is, or no time suits all of them.
        """
        common = common_times(s.pictures for s in self.fragments.values() if s.pictures is not None)
        return None if common is None else common.newest_ms

    @property
    def bytes(self) -> int:
        """The size of all that was saved for it."""
        return sum(snapshot.bytes for snapshot in self.fragments.values())

    def channel_positions(self) -> dict[str, int]:
        """By channel, the barrier: entries before it may go, on a restore it must, and all behind it."""
        return {
            channel: position
            for snapshot in self.fragments.values()
            for channel, position in snapshot.channels.items()
        }


class Transaction(msgspec.Struct, frozen=True):
    """What the coordinator keeps on disk, as one value; see the module for the numbers.

    `record` is that of the newest transaction that is decided to be committed (COMMITTING or COMMITTED).
    """

    txid: int = NO_TXID
    phase: Phase = Phase.COMMITTED
    round: int = 0
    life: int = 1
    record: CheckpointRecord | None = None


class Command(msgspec.Struct, frozen=True):
    """An action; `record` comes with COMMIT and INITSTATE (None: there has been no transaction)."""

    action: Action
    txid: int
    round: int
    life: int
    record: CheckpointRecord | None = None

    @property
    def key(self) -> tuple[Action, int, int, int]:
        """What tells it from other commands."""
        return self.action, self.txid, self.round, self.life


class ActionAcked(msgspec.Struct, frozen=True):
    """A fragment has done an action (or has nothing to do for it any more: a PREPARE without a snapshot)."""

    fragment: str
    action: Action
    txid: int
    round: int
    life: int
    snapshot: Snapshot | None = None


class ActionFailed(msgspec.Struct, frozen=True):
    """A fragment could not do an action, or has died; `reason` is for people."""

    fragment: str
    reason: str


class StateLost(msgspec.Struct, frozen=True):
    """A fragment cannot go on from what it has of a life: the application must go back to its record."""

    fragment: str
    life: int
    reason: str


@dataclass(frozen=True, slots=True)
class BatchesRan:
    """A fragment has run batches since it last said so: there is something new to save."""

    fragment: str


ParticipantEvent: TypeAlias = ActionAcked | ActionFailed | StateLost | BatchesRan
"""What a fragment tells the coordinator."""

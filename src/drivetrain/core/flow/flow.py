"""Flow control and loss detection between a channel's producer and its subscriber.

Problem: a producer that is faster than its subscribers must wait before memory or disk fill up; and a channel
is not complete because it looks complete: a lost entry at its end looks like a quiet producer.

Design: the producer has a `FlowSender` (`core.flow.flow_sender`) for each subscriber, the subscriber a
`FlowReceiver` (`core.flow.flow_receiver`). This module defines what they send each other and the effects that
their shells perform. The messages themselves go only through the log. A sender remembers
what it has appended, independent of the log that the subscriber reads. When what is unacknowledged has grown
by a step, or nothing has happened for a while, it sends an `AckRequest` (every unacknowledged entry, with its
count and checksum). The receiver compares that with the log as it sees it, and answers with an `Ack` after
each batch that it commits until it has all of it: how far it came, and how many messages its batches really
took since a position that both know. Lost requests and answers are repeated; those of an older incarnation of
the producer, or life of the subscriber, change nothing. No wall clock decides which is newer: machines
disagree about the time, and a clock may be set back.

A sender that starts again is created from the log and the position that the subscriber recorded, with a
higher incarnation. A receiver that starts again is created from its last committed batch, with a higher
`Life`. It cannot count what earlier lives committed. It acknowledges that because its checkpoint contains it,
and each batch was verified against checksums when it was read.

Invariants, checked by `check()` of the two:

1. While the window is full no batch may be appended: what is unacknowledged never exceeds the window by
   more than one batch. (An entry without messages is always accepted: it moves the clock, and fills no disk.
   So is the last batch of a producer that ends, which Spark does not number.)
2. The acknowledged position never goes back, and never passes an entry of which fewer messages arrived than
   were sent.
3. Entries are numbered densely; the window counts their sums.
4. After a loss nothing is acknowledged until the subscriber begins a new life.

Called by: `drivetrain.spark.flow.flow_book`, which has one of each for each channel; `tests/simulation`.

Source: Apache Gearpump's AckRequest and Ack, with what it lacks: losses at the tail, 64-bit counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import msgspec

STEPS = 8
"""An acknowledgement is requested whenever another eighth of the window is unacknowledged."""
REMADE = -1
"""The checksum of a repaired entry: its messages are the same, its files are not."""
UNREADABLE = -2
"""The checksum of an entry that its producer cannot read: it does not know how many messages are in it."""

Life: TypeAlias = tuple[int, int, int]
"""A life of a subscriber: the epoch of its application master, its attempt there (embedded: 0 and 0), and how
many queries its process had started before. Later ones are higher."""


class SentEntry(msgspec.Struct, frozen=True, array_like=True):
    """One entry as its producer appended it, or as its subscriber sees it; sizes in bytes."""

    number: int
    rows: int
    bytes: int
    checksum: int
    is_barrier: bool = False
    """A barrier is taken together with the entry after it, so nobody waits for it to be taken."""


class AckRequest(msgspec.Struct, frozen=True, array_like=True):
    """From producer to subscriber: what was sent from entry `start` on, as (messages, checksum) of each."""

    incarnation: int
    seq: int
    start: int
    entries: tuple[tuple[int, int], ...]

    @property
    def end(self) -> int:
        """The number after the last entry in the request."""
        return self.start + len(self.entries)


class Ack(msgspec.Struct, frozen=True, array_like=True):
    """From subscriber to producer: committed batches took `received` messages of entries [start, position).

    An earlier life of the subscriber has committed the entries before `start`.
    """

    incarnation: int
    seq: int
    life: Life
    start: int
    position: int
    received: int


class Loss(msgspec.Struct, frozen=True, array_like=True):
    """Messages of the entries [start, end) are not what was sent; `expected` and `got` describe both."""

    start: int
    end: int
    expected: str
    got: str


class FlowMessage(msgspec.Struct, frozen=True, array_like=True):
    """One of the three messages from one end of a channel to the other, addressed to the fragment `to`."""

    channel: str
    to: str
    request: AckRequest | None = None
    ack: Ack | None = None
    loss: Loss | None = None


@dataclass(frozen=True, slots=True)
class SendAckRequest:
    """Effect: send this to the subscriber."""

    request: AckRequest


@dataclass(frozen=True, slots=True)
class SendAck:
    """Effect: send this to the producer."""

    ack: Ack


@dataclass(frozen=True, slots=True)
class ReportLoss:
    """Effect: the subscriber must go back to its last good position, and the clock waits for it."""

    loss: Loss


SenderEffect: TypeAlias = SendAckRequest | ReportLoss
ReceiverEffect: TypeAlias = SendAck | ReportLoss


@dataclass(frozen=True, slots=True)
class Window:
    """How much may be unacknowledged: messages and bytes (0: any), and entries but barriers (at least 1)."""

    rows: int
    bytes: int
    entries: int

    def filled(self, rows: int, bytes: int, entries: int) -> float:
        """The share of the window that this much takes; from 1 on it is full."""
        shares = [entries / self.entries]
        if self.rows:
            shares.append(rows / self.rows)
        if self.bytes:
            shares.append(bytes / self.bytes)
        return max(shares)

"""Flow control and loss detection between a channel's producer and its subscriber.

Problem: whoever produces faster than others consume must wait before memory or disk fill up; and nobody may
take a channel for complete because it looks complete: a lost entry at its end looks like a quiet producer.

Design: the producer has a `FlowSender` (`core.flow.flow_sender`) for each subscriber, the subscriber a
`FlowReceiver` (`core.flow.flow_receiver`). Here are the words between them and what they ask their shells to
do. They exchange words, never messages: these go through the log. A sender knows what it has appended, from
its own memory, and not from the log that the other side reads. When what is unacknowledged has grown by a
step, or nothing has happened for a while, it says so (`AckRequest`: every entry that is not acknowledged,
with its count and checksum). The receiver compares that with the log as it sees it, and answers (`Ack`) after
each batch that it commits until it has all of it: how far it came, and how many messages its batches really
took since a place that both know. A word that is lost is said again; words of an older incarnation of the
producer, or life of the subscriber, change nothing. No wall clock decides which is newer: machines disagree
about the time, and a clock may be set back.

A sender that starts again is made from the log and the position that the subscriber recorded, with a higher
incarnation. A receiver that starts again is made from its last committed batch, with a higher `Life`; what
earlier lives had committed it cannot count any more and acknowledges on the word of its checkpoint, whose
batches were read against checksums.

Invariants, checked by `check()` of the two:

1. While the window is full no batch may be appended: what is unacknowledged never exceeds the window by
   more than one batch. (An entry without messages is always taken: it moves the clock, and no disk fills up
   by it. So is the last batch of a producer that ends, which Spark does not know of.)
2. The acknowledged position never goes back, and never passes an entry of which fewer messages arrived than
   were sent.
3. Entries are numbered densely; their sums are what the window counts.
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
"""The checksum of an entry that was lost and made again: its messages are the same, its files are not."""
UNREADABLE = -2
"""The checksum of an entry that its producer cannot read: it does not know how many messages are in it."""

Life: TypeAlias = tuple[int, int, int]
"""A life of a subscriber: the epoch of its application master, its attempt there (embedded: 0 and 0), and how
many queries its process had started before. Later ones are higher."""


class Sent(msgspec.Struct, frozen=True, array_like=True):
    """One entry as its producer appended it, or as its subscriber sees it; sizes in bytes."""

    number: int
    rows: int
    bytes: int
    checksum: int
    is_barrier: bool = False
    """A barrier is taken together with what follows it, so nobody waits for it to be taken."""


class AckRequest(msgspec.Struct, frozen=True, array_like=True):
    """From producer to subscriber: what was sent from entry `start` on, as (messages, checksum) of each."""

    incarnation: int
    seq: int
    start: int
    entries: tuple[tuple[int, int], ...]

    @property
    def end(self) -> int:
        """The entry after the last one that it speaks of."""
        return self.start + len(self.entries)


class Ack(msgspec.Struct, frozen=True, array_like=True):
    """From subscriber to producer: committed batches took `received` messages of entries [start, position).

    What is before `start` an earlier life of the subscriber has committed.
    """

    incarnation: int
    seq: int
    life: Life
    start: int
    position: int
    received: int


class Loss(msgspec.Struct, frozen=True, array_like=True):
    """Messages of the entries [start, end) are not what was sent; `expected` and `got` say it in words."""

    start: int
    end: int
    expected: str
    got: str


class Word(msgspec.Struct, frozen=True, array_like=True):
    """What one end of a channel says to the other, addressed to the fragment `to`: one of the three."""

    channel: str
    to: str
    request: AckRequest | None = None
    ack: Ack | None = None
    loss: Loss | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """Effect: send this to the subscriber."""

    request: AckRequest


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """Effect: send this to the producer."""

    ack: Ack


@dataclass(frozen=True, slots=True)
class ReportLoss:
    """Effect: the subscriber must go back to its last good position, and the clock must wait for it."""

    loss: Loss


SenderEffect: TypeAlias = Request | ReportLoss
ReceiverEffect: TypeAlias = Acknowledge | ReportLoss


@dataclass(frozen=True, slots=True)
class Window:
    """How much may be unacknowledged: messages and bytes (0: any), and entries but barriers (at least 1)."""

    rows: int
    bytes: int
    entries: int

    def filled(self, rows: int, bytes: int, entries: int) -> float:
        """The share of the window that so much takes; from 1 on it is full."""
        shares = [entries / self.entries]
        if self.rows:
            shares.append(rows / self.rows)
        if self.bytes:
            shares.append(bytes / self.bytes)
        return max(shares)

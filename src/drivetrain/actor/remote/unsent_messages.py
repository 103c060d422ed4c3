"""The messages that wait to be sent to one other system, and their packing into frames.

Design: entries leave in the order of arrival. Consecutive ordinary messages go together in one `Batch` of
about `BATCH_BYTES`, so that they share a frame's cost; a `SystemMessage` message goes alone. Messages beyond
the limits are refused immediately: an accepted message is never dropped to make space.

Invariants:
1. At most `most` ordinary entries of at most `most_bytes` wait; `SystemMessage` messages always fit, they are
   few and bounded by the watches.
2. Frames are numbered without gaps, in the order in which they leave.

Called by `Association`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from drivetrain.actor.provider import Envelope
from drivetrain.actor.remote.wire import Batch, Item, SystemMessage

BATCH_BYTES: Final = 128 * 1024


@dataclass(slots=True)
class Outgoing:
    """One message to send: the envelope to return if that fails, its form on the wire, and its size.

    `position` is that of a `SystemMessage` message, 0 for an ordinary one. `is_waiting` until it has left.
    """

    envelope: Envelope
    item: Item
    size_bytes: int
    position: int = 0
    is_waiting: bool = True


class Outbox:
    """A bounded queue of outgoing messages; `batch_bytes` is how large a batch may become."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most: Final = most
        self._most_bytes: Final = most_bytes
        self._waiting: deque[Outgoing] = deque()
        self._ordinary = 0
        self._bytes = 0
        self._number = 0
        self.batch_bytes = BATCH_BYTES

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def waiting_bytes(self) -> int:
        """The size of all ordinary messages that wait."""
        return self._bytes

    def put(self, outgoing: Outgoing) -> bool:
        """Append a message; False when it does not fit."""
        if not outgoing.position:
            if self._ordinary >= self._most or self._bytes + outgoing.size_bytes > self._most_bytes:
                return False
            self._ordinary += 1
            self._bytes += outgoing.size_bytes
        self._waiting.append(outgoing)
        return True

    def begin_session(self) -> None:
        """Number frames from 1 again."""
        self._number = 0

    def next_number(self) -> int:
        """The number of the next frame that carries one."""
        self._number += 1
        return self._number

    def frames(self) -> Iterator[Batch | SystemMessage]:
        """Take messages out, packed; stop iterating to leave the rest waiting."""
        waiting = self._waiting
        while waiting:
            if waiting[0].position:
                one = waiting.popleft()
                one.is_waiting = False
                yield SystemMessage(self.next_number(), one.position, one.item)
                continue
            items: list[Item] = []
            size = 0
            while (
                waiting
                and not waiting[0].position
                and (not items or size + waiting[0].size_bytes <= self.batch_bytes)
            ):
                one = waiting.popleft()
                size += one.size_bytes
                items.append(one.item)
            self._ordinary -= len(items)
            self._bytes -= size
            yield Batch(self.next_number(), items)

    def take_out(self, is_wanted: Callable[[Outgoing], bool]) -> list[Outgoing]:
        """Remove and return the messages that `is_wanted` selects, in order."""
        taken = [one for one in self._waiting if is_wanted(one)]
        self._waiting = deque(one for one in self._waiting if not is_wanted(one)) if taken else self._waiting
        self._ordinary -= sum(1 for one in taken if not one.position)
        self._bytes -= sum(one.size_bytes for one in taken if not one.position)
        return taken

"""Messages that must arrive: numbered, acknowledged, and sent again, within one session.

Problem: the sender of an ordinary message has a timeout in case it is lost. A lost `Watch` or `Terminated`
would keep an actor waiting for ever.

Design: the sender numbers such messages and keeps them until they are acknowledged; acknowledgements are
cumulative. The receiver delivers them in the order of their positions and drops repeated ones and those that
come too early; the sender sends everything unacknowledged again, from time to time and on every new
connection. When a new session begins, unacknowledged messages get new numbers: the receiver may get one
twice then, and must tolerate that.

Invariants:
1. Within a session each position is delivered at most once, and in order.
2. An added message is acknowledged or still kept.
3. Positions of kept messages are dense and end with the last assigned one.

Called by `Association`. Source: the system message delivery of Akka's remoting.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from enum import Enum, auto
from typing import Final, Generic, TypeVar

from drivetrain.errors import InternalError

T = TypeVar("T")


class ReliableSender(Generic[T]):
    """Keeps sent messages until they are acknowledged."""

    def __init__(self) -> None:
        self._kept: Final[deque[T]] = deque()
        self._last = 0

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, message: T) -> int:
        """Keep a message; returns its position."""
        self._kept.append(message)
        self._last += 1
        return self._last

    def acknowledged(self, position: int) -> bool:
        """Forget everything up to `position`, unless it was never assigned; returns whether that was any."""
        before = len(self._kept)
        if position <= self._last:
            while self._kept and self._last - len(self._kept) < position:
                self._kept.popleft()
        return len(self._kept) < before

    def unacknowledged(self) -> Iterator[tuple[int, T]]:
        """Positions and messages that are kept, in order."""
        first = self._last - len(self._kept) + 1
        return enumerate(list(self._kept), first)

    def begin_session(self, is_wanted: Callable[[T], bool]) -> None:
        """Keep only what is wanted, and number it from 1."""
        wanted = [message for message in self._kept if is_wanted(message)]
        self._kept.clear()
        self._kept.extend(wanted)
        self._last = len(wanted)

    def clear(self) -> None:
        """Forget everything: the other side is gone."""
        self._kept.clear()

    def check(self) -> None:
        """Verify invariant 3; raises `InternalError`."""
        if len(self._kept) > self._last:
            raise InternalError("reliable invariant 3: more messages are kept than were numbered")


class Verdict(Enum):
    """What to do with an arrived message."""

    DELIVER = auto()
    HAD_IT = auto()
    TOO_EARLY = auto()


class ReliableReceiver:
    """Delivers each position once and in order."""

    def __init__(self) -> None:
        self.delivered = 0
        """The last position that was delivered: what to acknowledge."""

    def receive(self, position: int) -> Verdict:
        """Decide about a message; `DELIVER` counts it as delivered."""
        if position <= self.delivered:
            return Verdict.HAD_IT
        if position > self.delivered + 1:
            return Verdict.TOO_EARLY
        self.delivered = position
        return Verdict.DELIVER

    def begin_session(self) -> None:
        """Expect position 1 again."""
        self.delivered = 0

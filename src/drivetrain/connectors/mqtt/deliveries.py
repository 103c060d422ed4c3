"""Which messages of an MQTT session are duplicates, and which may be acknowledged.

Problem: a broker sends each message until it gets an acknowledgement, by the message's packet identifier,
which it then uses again. It must get one only when the message is stored. It sends again what was not
acknowledged when a connection ends, also messages that still wait here, and those must not count twice. And
if the broker has lost the session, identifiers have a new meaning: an old acknowledgement would let the
broker forget a message that was never stored.

Design: a pure core. Messages are numbered as they come, after those that are stored already; storing
reports how many are stored. An identifier is *open* from its message until its acknowledgement is given to a
connection. A message that the broker marks as sent again, and whose identifier is open, is a duplicate for
certain: the broker cannot have used the identifier for another one. In a new connection an open identifier is
acknowledged only when its message has come again: an acknowledgement that overtakes the message would let the
broker use the identifier for another one, while the duplicate is still on its way.

Invariants:

1. An identifier becomes due only when the message with its number is stored, and in a later connection only
   when the message has come again.
2. A message is a duplicate only if it is sent again while its identifier is open, so none is lost.
3. A new session has no open and no due identifiers.

Called by `mqtt_feed`. Source: sections 2.2.1 and 4.4 of MQTT 5.0.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from drivetrain.errors import InternalError


class Deliveries:
    """The messages of one process; the first `stored` ones came to earlier processes."""

    def __init__(self, stored: int) -> None:
        self._received = stored
        self._open: Final[set[int]] = set()
        self._unstored: Final[deque[tuple[int, int]]] = deque()
        self._stored: Final[dict[int, None]] = {}
        self._awaited: set[int] = set()
        """The open identifiers whose messages have to come again first."""

    def connected(self, *, has_session: bool) -> None:
        """A connection begins; `has_session`: the broker still has the session of the one before."""
        if not has_session:
            self._open.clear()
            self._unstored.clear()
            self._stored.clear()
        self._awaited = set(self._open)

    def received(self, identifier: int | None, *, again: bool) -> bool:
        """A message has come (None: it needs no acknowledgement); False if it is a duplicate.

        `again`: the broker marks it as one that it has sent before.
        """
        if identifier is not None:
            self._awaited.discard(identifier)
            if identifier in self._open:
                if again:
                    return False
                self._forget(identifier)
            self._open.add(identifier)
            self._unstored.append((self._received + 1, identifier))
        self._received += 1
        return True

    def stored(self, count: int) -> None:
        """So many messages are stored, counted over all processes."""
        while self._unstored and self._unstored[0][0] <= count:
            self._stored[self._unstored.popleft()[1]] = None

    @property
    def due(self) -> tuple[int, ...]:
        """The identifiers to acknowledge, in the order in which their messages came."""
        return tuple(identifier for identifier in self._stored if identifier not in self._awaited)

    def acknowledged(self, identifier: int) -> None:
        """The acknowledgement was given to a connection: the broker may use the identifier again."""
        del self._stored[identifier]
        self._open.remove(identifier)

    def check(self) -> None:
        """Raise `InternalError` if an invariant does not hold."""
        waiting = [identifier for _, identifier in self._unstored]
        known = [*waiting, *self._stored]
        if sorted(known) != sorted(self._open) or not self._awaited <= self._open:
            raise InternalError(f"open {self._open}, awaited {self._awaited}, but waiting or stored {known}")

    def _forget(self, identifier: int) -> None:
        """The broker has given up the message of an identifier, and uses it for another one."""
        self._stored.pop(identifier, None)
        waiting = [one for one in self._unstored if one[1] != identifier]
        self._unstored.clear()
        self._unstored.extend(waiting)

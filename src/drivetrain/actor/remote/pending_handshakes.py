"""Connections whose handshake is not done yet, on either side.

Problem: anyone can connect. A stranger must cost little and leave soon, its input must not disturb
anything, and one log line must say what was wrong with it.

Design: accepted connections are counted from the moment they are accepted (with TLS, before its
handshake) and have a deadline. When there are too many, the oldest is closed for the newest: a genuine peer
finishes within a few round trips. Some places are reserved for hosts from which a peer has proved itself
before. `Dial` is the other side: one outgoing attempt, awaited by its association.

Invariants:
1. At most `max_handshakes` accepted connections are in their handshake, and of these at most three quarters
   from unknown hosts.
2. Every accepted connection becomes a session, or ends within the time a handshake may take.
3. Connections from unknown hosts never close one from a known host.

Called by `Remote`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from drivetrain.actor.remote.handshake import Agreement, Handshake
from drivetrain.actor.remote.link import Link
from drivetrain.actor.remote.peer_warnings import PeerWarnings
from drivetrain.actor.remote.remote_errors import ConnectError, HandshakeError
from drivetrain.actor.remote.transport import Connection, Transport
from drivetrain.actor.remote.wire import AnyFrame
from drivetrain.errors import DrivetrainError, PeerViolationError

log = logging.getLogger(__name__)

Opened = Callable[[Link, Agreement], None]

_RESERVED_SHARE: Final = 4
"""One place in this many is reserved for known hosts."""
_MOST_KNOWN_HOSTS: Final = 1024
_NOT_WORTH_A_LINE: Final = frozenset({"crossed", "stopping"})


class PendingHandshakes:
    """The accepted connections in their handshake; `opened` is called with those that have passed."""

    def __init__(self, loop: asyncio.AbstractEventLoop, most: int, deadline_s: float, opened: Opened) -> None:
        self._loop: Final = loop
        self._most: Final = most
        self._deadline_s: Final = deadline_s
        self._opened: Final = opened
        self._most_unknown: Final = most - most // _RESERVED_SHARE
        # The oldest first.
        self._unknown: Final[dict[Link, asyncio.TimerHandle]] = {}
        self._known: Final[dict[Link, asyncio.TimerHandle]] = {}
        self._known_hosts: Final[dict[str, None]] = {}
        self._refused: Final = PeerWarnings(log, loop.time)

    def __len__(self) -> int:
        return len(self._unknown) + len(self._known)

    def accept(self, connection: Connection, handshake: Handshake) -> Link:
        """Add a new connection, and close an old one if there are too many."""
        link = Link(connection, handshake, self)
        is_known = _host(link) in self._known_hosts
        if not is_known and len(self._unknown) >= self._most_unknown:
            self._close_oldest(self._unknown)
        elif len(self) >= self._most:
            self._close_oldest(self._unknown or self._known)
        line = self._known if is_known else self._unknown
        line[link] = self._loop.call_later(self._deadline_s, self._too_late, link)
        return link

    def know(self, link: Link) -> None:
        """Remember that a peer at the other end of this link has proved itself."""
        host = _host(link)
        self._known_hosts.pop(host, None)
        self._known_hosts[host] = None
        if len(self._known_hosts) > _MOST_KNOWN_HOSTS:
            del self._known_hosts[next(iter(self._known_hosts))]

    def close(self) -> None:
        """Close all of them."""
        for link in [*self._unknown, *self._known]:
            link.abort(HandshakeError("this system stops", reason="stopping"))

    def link_opened(self, link: Link, agreement: Agreement) -> None:
        """The handshake is done."""
        self._forget(link)
        self.know(link)
        self._opened(link, agreement)

    def link_frame(self, link: Link, frame: AnyFrame) -> None:
        """Cannot happen: frames come after `link_opened`, which changes the link's owner."""
        link.abort(HandshakeError(f"{type(frame).__name__} before the session", reason="order"))

    def link_closed(self, link: Link, error: DrivetrainError) -> None:
        """It was closed, or refused."""
        self._forget(link)
        if isinstance(error, PeerViolationError) and getattr(error, "reason", "") not in _NOT_WORTH_A_LINE:
            self._refused.warn(f"refused the connection from {link.peer}: {_in_one_line(error)}")
        else:
            log.debug("the connection from %s ended: %s", link.peer, error.what)

    def link_writable(self, link: Link, is_writable: bool) -> None:
        """Ignored: a handshake is small."""

    def _forget(self, link: Link) -> None:
        timer = self._unknown.pop(link, None) or self._known.pop(link, None)
        if timer is not None:
            timer.cancel()

    def _close_oldest(self, line: dict[Link, asyncio.TimerHandle]) -> None:
        oldest = next(iter(line))
        oldest.abort(HandshakeError("too many connections are in their handshake", reason="busy"))

    def _too_late(self, link: Link) -> None:
        link.abort(HandshakeError(f"no handshake within {self._deadline_s:g} s", reason="late"))


class Dial:
    """One outgoing attempt to connect; `opened` is called with the link as the session begins."""

    def __init__(self, transport: Transport, handshake: Handshake, opened: Opened) -> None:
        self._transport: Final = transport
        self._handshake: Final = handshake
        self._opened: Final = opened
        self._link: Link | None = None
        self._outcome: Final[asyncio.Future[Link]] = asyncio.get_running_loop().create_future()

    async def wait_opened(self, host: str, port: int, timeout_s: float) -> Link:
        """Connect and shake hands; raises `ConnectError`, `HandshakeError`, TimeoutError."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._transport.wait_connected(host, port, self._own)
                return await self._outcome
        finally:
            if self._link is not None and not self._link.is_open:
                self._link.abort(ConnectError("the attempt to connect was abandoned"))
            self._outcome.cancel()

    def _own(self, connection: Connection) -> Link:
        self._link = Link(connection, self._handshake, self)
        return self._link

    def link_opened(self, link: Link, agreement: Agreement) -> None:
        """The session begins."""
        self._opened(link, agreement)
        if not self._outcome.done():
            self._outcome.set_result(link)

    def link_frame(self, link: Link, frame: AnyFrame) -> None:
        """Cannot happen, as with `PendingHandshakes`."""
        link.abort(HandshakeError(f"{type(frame).__name__} before the session", reason="order"))

    def link_closed(self, link: Link, error: DrivetrainError) -> None:
        """There will be no session."""
        if not self._outcome.done():
            self._outcome.set_exception(error)

    def link_writable(self, link: Link, is_writable: bool) -> None:
        """Ignored: a handshake is small."""


def _host(link: Link) -> str:
    return link.peer.rpartition(":")[0]


def _in_one_line(error: DrivetrainError) -> str:
    remedy = f" ({error.remedy})" if error.remedy else ""
    got = f", got {error.got}" if error.got else ""
    return f"{error.what}{got}{remedy}"

"""One connection from its handshake to its end.

Design: a `Link` owns the connection. Until the handshake is done it feeds the handshake; afterwards it
verifies the seal, decodes, and passes frames to its owner. It notifies its owner of the beginning, of each
frame, and of the end, once.

Invariants:
1. The owner sees no frame before `link_opened` and none after `link_closed`; each of these is called at most
   once, `link_closed` exactly once.
2. A frame that breaks the protocol only leads to `link_closed` with the reason.

Called by `Remote` and `Association`, which own links.
"""

from __future__ import annotations

from typing import Final, Protocol

from drivetrain.actor.remote.auth import TAG_BYTES
from drivetrain.actor.remote.handshake import Agreement, DialerHandshake, Handshake, HandshakeStep
from drivetrain.actor.remote.remote_errors import ConnectError, HandshakeError, ProtocolViolationError
from drivetrain.actor.remote.transport import UNPROVEN_FRAME_BYTES, Connection, Frame
from drivetrain.actor.remote.wire import AnyFrame, Refusal, decode, encode
from drivetrain.errors import DrivetrainError

FRAME_OVERHEAD_BYTES: Final = 256
"""Bytes of a frame on top of the largest message: tag, numbers, paths and seal."""


class LinkOwner(Protocol):
    """Receives the events of a link."""

    def link_opened(self, link: Link, agreement: Agreement) -> None:
        """The handshake is done."""

    def link_frame(self, link: Link, frame: AnyFrame) -> None:
        """A frame arrived."""

    def link_closed(self, link: Link, error: DrivetrainError) -> None:
        """The connection is lost, or never became a session."""

    def link_writable(self, link: Link, is_writable: bool) -> None:
        """The peer reads slower than we write, or has caught up."""


class Link:
    """One connection and its handshake, on behalf of `owner`."""

    def __init__(self, connection: Connection, handshake: Handshake, owner: LinkOwner) -> None:
        self._connection: Final = connection
        self._handshake: Final = handshake
        self._agreement: Agreement | None = None
        self._is_closed = False
        self._greetings: Final[list[bytes]] = []
        self.owner = owner
        if isinstance(handshake, DialerHandshake):
            connection.send(handshake.begin())

    @property
    def peer(self) -> str:
        """The other end as "host:port" of the socket, for logs."""
        return self._connection.peer

    @property
    def handshake(self) -> Handshake:
        """The handshake, done or not."""
        return self._handshake

    @property
    def is_open(self) -> bool:
        """Whether the session has begun and not ended."""
        return self._agreement is not None and not self._is_closed

    @property
    def buffered_bytes(self) -> int:
        """How many sent bytes have not left this process."""
        return self._connection.buffered_bytes

    def send(self, frame: AnyFrame) -> None:
        """Send a frame of the session."""
        agreement = self._agreement
        if agreement is None or self._is_closed:
            return
        data = encode(frame)
        self._connection.send(data if agreement.seal is None else agreement.seal.close(data))

    def close(self, why: str) -> None:
        """End the session properly."""
        self._end(ConnectError(why))

    def abort(self, error: DrivetrainError) -> None:
        """End immediately, with the reason."""
        self._finish(error)
        self._connection.abort()

    def refuse(self, error: HandshakeError) -> None:
        """Send the peer the reason why there will be no session, and end."""
        self._connection.send(encode(Refusal(error.reason, error.what)))
        self._end(error)

    # ---- ConnectionEvents

    def frame_received(self, frame: Frame) -> None:
        """Handle a frame from the connection."""
        if self._is_closed:
            return
        if self._agreement is None:
            self._shake_hands(frame)
            return
        if len(frame) <= UNPROVEN_FRAME_BYTES and frame in self._greetings:
            return
        opener = self._agreement.opener
        try:
            opened = decode(frame if opener is None else opener.open(frame))
            self.owner.link_frame(self, opened)
        except ProtocolViolationError as error:
            self.abort(error)

    def connection_lost(self, error: Exception | None) -> None:
        """The connection is lost."""
        if isinstance(error, DrivetrainError):
            self._finish(error)
        else:
            self._finish(ConnectError(f"the connection was lost: {error or 'closed by the other side'}"))

    def writing_paused(self) -> None:
        """The connection's buffer is full."""
        if not self._is_closed:
            self.owner.link_writable(self, is_writable=False)

    def writing_resumed(self) -> None:
        """The connection's buffer has drained."""
        if not self._is_closed:
            self.owner.link_writable(self, is_writable=True)

    # ---- internals

    def _shake_hands(self, frame: Frame) -> None:
        # A transport may deliver a frame twice; a repeated one is not the one due now.
        if frame in self._greetings:
            return
        self._greetings.append(bytes(frame))
        try:
            step = self._handshake.receive(frame)
        except HandshakeError as error:
            if isinstance(error.__cause__, ProtocolViolationError):
                self.abort(error)
            elif error.is_from_peer:
                self._end(error)
            else:
                self.refuse(error)
            return
        self._perform(step)

    def _perform(self, step: HandshakeStep) -> None:
        if step.frame is not None:
            self._connection.send(step.frame)
        if step.agreement is not None:
            self._agreement = step.agreement
            self._connection.allow_frames(
                step.agreement.receive_limit_bytes + FRAME_OVERHEAD_BYTES + TAG_BYTES
            )
            self.owner.link_opened(self, step.agreement)

    def _end(self, error: DrivetrainError) -> None:
        self._finish(error)
        self._connection.close()

    def _finish(self, error: DrivetrainError) -> None:
        if not self._is_closed:
            self._is_closed = True
            self.owner.link_closed(self, error)

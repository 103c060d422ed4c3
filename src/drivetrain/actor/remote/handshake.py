"""How two systems agree on a session: who they are, that both know the secret, new or resumed.

Problem: the one who answers at a host and port may be another system, a later life of the one we mean, or
a stranger. And after a broken connection both must know whether they still share the session they had.

Design: two pure state machines, one per role; each takes frames and returns frames to send and, at the
end, an `Agreement`.

    dialer                                   acceptor
      Hello(address, target, nonce, session)  ─▶
      ◀─  Challenge(address, nonce, session)
      Proof(hmac)  ─▶                          session begins here for the acceptor
      ◀─  Welcome(hmac)                        and here for the dialer

If both name the same session, it is resumed; otherwise a new one begins, whose number both derive from the
transcript. The acceptor's incarnation may be another than the one wanted: that is no failure, the dialer
then knows that the wanted one is over.

Invariants:
1. There is an `Agreement` only after the peer proved that it knows the secret, if there is a secret; if
   only one side has one, both refuse.
2. Both sides of one handshake agree on the number of the session and on whether it is new.
3. Any other frame than the expected one raises `HandshakeError`, and the machine takes nothing more.

Called by `Link`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple

from drivetrain.actor.errors import InvalidPathError
from drivetrain.actor.path import Address
from drivetrain.actor.remote.auth import (
    ACCEPTOR,
    DIALER,
    NONCE_BYTES,
    Seal,
    is_proof,
    proof_of,
    transcript_of,
)
from drivetrain.actor.remote.errors import HandshakeError, ProtocolViolationError
from drivetrain.actor.remote.transport import Frame
from drivetrain.actor.remote.wire import (
    PROTOCOL_VERSION,
    AnyFrame,
    Challenge,
    Hello,
    Proof,
    Refusal,
    Welcome,
    decode,
    encode,
)


@dataclass(frozen=True, slots=True)
class Self:
    """What this side says of itself; `secret` is None when it does not authenticate."""

    address: Address
    secret: bytes | None
    frame_limit_bytes: int


@dataclass(frozen=True, slots=True)
class Agreement:
    """What both sides know at the end.

    `send_limit_bytes` is the largest message that the peer takes, `receive_limit_bytes` the largest that we
    do. `seal` and `opener` are None without a secret.
    """

    peer: Address
    session: int
    is_resumed: bool
    send_limit_bytes: int
    receive_limit_bytes: int
    seal: Seal | None
    opener: Seal | None


class Step(NamedTuple):
    """What to do next: send `frame` if there is one, and begin if there is an `agreement`."""

    frame: bytes | None = None
    agreement: Agreement | None = None


class Stage(Enum):
    """Where a handshake stands."""

    HELLO = auto()
    CHALLENGE = auto()
    PROOF = auto()
    WELCOME = auto()
    DONE = auto()


class Handshake(ABC):
    """What both roles share; `stage` says which frame comes next."""

    def __init__(self, me: Self, stage: Stage, nonce: bytes) -> None:
        if len(nonce) != NONCE_BYTES:
            raise ValueError(f"a nonce has {NONCE_BYTES} bytes, not {len(nonce)}")
        self._me: Final = me
        self._nonce: Final = nonce
        self.stage = stage

    def receive(self, data: Frame) -> Step:
        """Take a frame; raises `HandshakeError` when there will be no session."""
        stage, self.stage = self.stage, Stage.DONE
        try:
            frame = decode(data)
        except ProtocolViolationError as error:
            raise HandshakeError(
                "the other side does not speak the actor protocol", reason="garbage", remedy=error.remedy
            ) from error
        if isinstance(frame, Refusal):
            raise HandshakeError(
                f"the other side refused: {_printable(frame.what[:300])}",
                reason=_printable(frame.reason[:40]),
                remedy=_REMEDIES.get(frame.reason),
                is_from_peer=True,
            )
        step = self._take(stage, frame, bytes(data))
        if step is None:
            raise HandshakeError(
                f"the frame {type(frame).__name__} came where another was due", reason="order"
            )
        return step

    @abstractmethod
    def _take(self, stage: Stage, frame: AnyFrame, data: bytes) -> Step | None:
        """Take the frame if it is the one due in `stage`; None when it is not."""

    def _require_same_mode(self, is_authenticating: bool) -> None:
        if is_authenticating != (self._me.secret is not None):
            who = ("the other side", "this side") if is_authenticating else ("this side", "the other side")
            raise _refusal("secret", f"{who[0]} has a shared secret and {who[1]} has none")

    def _proof(self, role: bytes, transcript: bytes) -> bytes:
        return b"" if self._me.secret is None else proof_of(self._me.secret, role, transcript)

    def _require_proof(self, proof: bytes, role: bytes, transcript: bytes) -> None:
        if self._me.secret is not None and not is_proof(proof, self._me.secret, role, transcript):
            raise _refusal("secret", "the shared secrets differ")

    def _agree(
        self, mine: bytes, theirs: bytes, transcript: bytes, hello: Hello, challenge: Challenge
    ) -> Agreement:
        secret = self._me.secret
        is_resumed = hello.session == challenge.session != 0
        return Agreement(
            peer=_address(challenge.address if mine is DIALER else hello.address),
            session=hello.session if is_resumed else int.from_bytes(transcript[:8], "big") >> 1 or 1,
            is_resumed=is_resumed,
            send_limit_bytes=min(hello.frame_limit, challenge.frame_limit),
            receive_limit_bytes=self._me.frame_limit_bytes,
            seal=None if secret is None else Seal(secret, mine, transcript),
            opener=None if secret is None else Seal(secret, theirs, transcript),
        )


class DialerHandshake(Handshake):
    """The side that connected; `session` is the one it could resume with whoever is there (0 for none)."""

    def __init__(self, me: Self, target: Address, session: int, nonce: bytes) -> None:
        super().__init__(me, Stage.CHALLENGE, nonce)
        self._target: Final = target
        self._hello: Final = Hello(
            PROTOCOL_VERSION,
            str(me.address),
            str(target),
            nonce,
            session,
            me.frame_limit_bytes,
            me.secret is not None,
        )
        self._challenge: Challenge | None = None
        self._transcript = b""

    def begin(self) -> bytes:
        """The first frame, to be sent as soon as the connection is there."""
        return encode(self._hello)

    def _take(self, stage: Stage, frame: AnyFrame, data: bytes) -> Step | None:
        if stage is Stage.CHALLENGE and isinstance(frame, Challenge):
            self._require_same_mode(frame.is_authenticating)
            peer, wanted = _address(frame.address), self._target
            if (peer.system, peer.host, peer.port) != (wanted.system, wanted.host, wanted.port):
                raise _refusal("target", f"{peer} answered where {wanted} was expected")
            self._challenge, self._transcript = frame, transcript_of(self.begin(), data)
            self.stage = Stage.WELCOME
            return Step(encode(Proof(self._proof(DIALER, self._transcript))))
        if stage is Stage.WELCOME and isinstance(frame, Welcome) and self._challenge is not None:
            self._require_proof(frame.proof, ACCEPTOR, self._transcript)
            agreement = self._agree(DIALER, ACCEPTOR, self._transcript, self._hello, self._challenge)
            return Step(agreement=agreement)
        return None


Admit = Callable[[Address], int]
"""Asked who may have a session: given the dialer's address, the session that could be resumed (0 for none).

Raises `HandshakeError` to refuse. Called before the dialer has proved anything: it must not change state.
"""


class AcceptorHandshake(Handshake):
    """The side that was connected to."""

    def __init__(self, me: Self, admit: Admit, nonce: bytes) -> None:
        super().__init__(me, Stage.HELLO, nonce)
        self._admit: Final = admit
        self._begun: tuple[Hello, Challenge] | None = None
        self._transcript = b""

    @property
    def claimed(self) -> Address | None:
        """Who the dialer says it is, once it has said so."""
        return None if self._begun is None else _address(self._begun[0].address)

    def _take(self, stage: Stage, frame: AnyFrame, data: bytes) -> Step | None:
        if stage is Stage.HELLO and isinstance(frame, Hello):
            return self._challenge(frame, data)
        if stage is Stage.PROOF and isinstance(frame, Proof) and self._begun is not None:
            self._require_proof(frame.proof, DIALER, self._transcript)
            agreement = self._agree(ACCEPTOR, DIALER, self._transcript, *self._begun)
            return Step(encode(Welcome(self._proof(ACCEPTOR, self._transcript))), agreement)
        return None

    def _challenge(self, hello: Hello, data: bytes) -> Step:
        if hello.version != PROTOCOL_VERSION:
            raise _refusal("version", f"protocol version {hello.version} meets version {PROTOCOL_VERSION}")
        self._require_same_mode(hello.is_authenticating)
        dialer, wanted, me = _address(hello.address), _address(hello.target), self._me.address
        if (wanted.system, wanted.host, wanted.port) != (me.system, me.host, me.port):
            raise _refusal("target", f"{wanted} is wanted, but this is {me}")
        session = self._admit(dialer)
        challenge = Challenge(
            str(me), self._nonce, session, self._me.frame_limit_bytes, self._me.secret is not None
        )
        answer = encode(challenge)
        self._begun, self._transcript = (hello, challenge), transcript_of(data, answer)
        self.stage = Stage.PROOF
        return Step(answer)


_REMEDIES: Final = {
    "secret": "give both systems the same shared secret",
    "version": "run compatible versions of Drivetrain on both sides",
    "target": "use the host, port and system name that the other system gives as its address",
    "stale": "a newer life of this system is known at its host and port: start it again",
}


def _refusal(reason: str, what: str) -> HandshakeError:
    return HandshakeError(what, reason=reason, remedy=_REMEDIES.get(reason))


def _printable(text: str) -> str:
    # It goes into our log, and comes from a stranger.
    return "".join(character if character.isprintable() else "?" for character in text)


def _address(text: str) -> Address:
    try:
        address = Address.parse(text)
    except InvalidPathError as error:
        raise HandshakeError(f"{text[:200]!r} is not the address of a system", reason="garbage") from error
    if not address.is_remote_capable:
        raise HandshakeError(f"nobody can connect to {address}", reason="garbage")
    return address

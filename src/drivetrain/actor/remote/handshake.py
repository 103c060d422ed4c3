"""How two systems agree on a session: their names, proofs of the secret, and whether it is new or resumed.

Problem: the process that answers at a host and port may be another system, a later incarnation of the
expected one, or a stranger. And after a broken connection both must know whether they still share their
session.

Design: two pure state machines, one per role; each takes frames and returns frames to send and, at the
end, an `Agreement`.

    dialer                                   acceptor
      Hello(address, target, nonce, session)  ─▶
      ◀─  Challenge(address, nonce, session)
      Proof(hmac for each key)  ─▶             session begins here for the acceptor
      ◀─  Welcome(hmac)                        and here for the dialer

If both name the same session, it is resumed; otherwise a new one begins, whose number both derive from the
transcript. The acceptor may be another incarnation than the wanted one: that is not a failure, because the
dialer then knows that the wanted one is over.

Invariants:
1. There is an `Agreement` only after the peer proved that it knows a key that this side has for systems of
   its name, if this side has keys; if only one side has keys, both refuse.
2. Both sides of one handshake agree on the number of the session and on whether it is new.
3. Any other frame than the expected one raises `HandshakeError`, and the machine accepts nothing more.

Called by `Link`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple

from drivetrain.actor.actor_errors import InvalidPathError
from drivetrain.actor.path import Address
from drivetrain.actor.remote.auth import (
    ACCEPTOR,
    DIALER,
    NONCE_BYTES,
    Seal,
    proof_of,
    proven_key,
    transcript_of,
)
from drivetrain.actor.remote.keys import MOST_KEYS, Keys
from drivetrain.actor.remote.peer_warnings import printable
from drivetrain.actor.remote.remote_errors import HandshakeError, ProtocolViolationError
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
class LocalIdentity:
    """What this side announces about itself; `keys` is None when it does not authenticate."""

    address: Address
    keys: Keys | None
    frame_limit_bytes: int


@dataclass(frozen=True, slots=True)
class Agreement:
    """The result on both sides.

    `send_limit_bytes` is the largest message that the peer accepts, `receive_limit_bytes` the largest that we
    accept. `seal` and `opener` are None without keys.
    """

    peer: Address
    session: int
    is_resumed: bool
    send_limit_bytes: int
    receive_limit_bytes: int
    seal: Seal | None
    opener: Seal | None


class HandshakeStep(NamedTuple):
    """The next step: send `frame` if there is one, and begin if there is an `agreement`."""

    frame: bytes | None = None
    agreement: Agreement | None = None


class Stage(Enum):
    """The stage of a handshake."""

    HELLO = auto()
    CHALLENGE = auto()
    PROOF = auto()
    WELCOME = auto()
    DONE = auto()


class Handshake(ABC):
    """The common part of both roles; `stage` determines which frame comes next."""

    def __init__(self, me: LocalIdentity, stage: Stage, nonce: bytes) -> None:
        if len(nonce) != NONCE_BYTES:
            raise ValueError(f"a nonce has {NONCE_BYTES} bytes, not {len(nonce)}")
        self._me: Final = me
        self._nonce: Final = nonce
        self.stage = stage

    def receive(self, data: Frame) -> HandshakeStep:
        """Handle a frame; raises `HandshakeError` when there will be no session."""
        stage, self.stage = self.stage, Stage.DONE
        try:
            frame = decode(data)
        except ProtocolViolationError as error:
            raise HandshakeError(
                "the other side does not speak the actor protocol", reason="garbage", remedy=error.remedy
            ) from error
        if isinstance(frame, Refusal):
            raise HandshakeError(
                f"the other side refused: {printable(frame.what, 300)}",
                reason=printable(frame.reason, 40),
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
    def _take(self, stage: Stage, frame: AnyFrame, data: bytes) -> HandshakeStep | None:
        """Handle the frame if it is the one due in `stage`; None when it is not."""

    def _require_same_mode(self, is_authenticating: bool) -> None:
        if is_authenticating != (self._me.keys is not None):
            who = ("the other side", "this side") if is_authenticating else ("this side", "the other side")
            raise _refusal("secret", f"{who[0]} has a shared secret and {who[1]} has none")

    def _keys(self, peer: Address) -> tuple[bytes, ...]:
        """The keys shared with that system; empty without authentication."""
        if self._me.keys is None:
            return ()
        keys = self._me.keys.keys_for(peer.system)[:MOST_KEYS]
        if not keys:
            me = self._me.address.system
            raise _refusal("secret", f"the system {me} has no key for the system {peer.system[:120]}")
        return keys

    def _proven(
        self, claimed: Sequence[bytes], keys: tuple[bytes, ...], role: bytes, transcript: bytes
    ) -> bytes | None:
        """The key that the peer has proved; None without authentication."""
        if self._me.keys is None:
            return None
        key = proven_key(claimed, keys, role, transcript)
        if key is None:
            raise _refusal("secret", "the shared secrets differ")
        return key

    def _agree(
        self,
        mine: bytes,
        theirs: bytes,
        transcript: bytes,
        hello: Hello,
        challenge: Challenge,
        key: bytes | None,
    ) -> Agreement:
        is_resumed = hello.session == challenge.session != 0
        return Agreement(
            peer=_address(challenge.address if mine is DIALER else hello.address),
            session=hello.session if is_resumed else int.from_bytes(transcript[:8], "big") >> 1 or 1,
            is_resumed=is_resumed,
            send_limit_bytes=min(hello.frame_limit, challenge.frame_limit),
            receive_limit_bytes=self._me.frame_limit_bytes,
            seal=None if key is None else Seal(key, mine, transcript),
            opener=None if key is None else Seal(key, theirs, transcript),
        )


class DialerHandshake(Handshake):
    """The side that connected; `session` is the one it could resume with the peer (0 for none)."""

    def __init__(self, me: LocalIdentity, target: Address, session: int, nonce: bytes) -> None:
        super().__init__(me, Stage.CHALLENGE, nonce)
        self._target: Final = target
        self._hello: Final = Hello(
            PROTOCOL_VERSION,
            str(me.address),
            str(target),
            nonce,
            session,
            me.frame_limit_bytes,
            me.keys is not None,
        )
        self._challenge: Challenge | None = None
        self._mine: tuple[bytes, ...] = ()
        self._transcript = b""

    def begin(self) -> bytes:
        """The first frame, to be sent as soon as the connection is open."""
        return encode(self._hello)

    def _take(self, stage: Stage, frame: AnyFrame, data: bytes) -> HandshakeStep | None:
        if stage is Stage.CHALLENGE and isinstance(frame, Challenge):
            self._require_same_mode(frame.is_authenticating)
            peer, wanted = _address(frame.address), self._target
            if (peer.system, peer.host, peer.port) != (wanted.system, wanted.host, wanted.port):
                raise _refusal("target", f"{peer} answered where {wanted} was expected")
            self._mine = self._keys(peer)
            self._challenge, self._transcript = frame, transcript_of(self.begin(), data)
            self.stage = Stage.WELCOME
            return HandshakeStep(
                encode(Proof(tuple(proof_of(k, DIALER, self._transcript) for k in self._mine)))
            )
        if stage is Stage.WELCOME and isinstance(frame, Welcome) and self._challenge is not None:
            key = self._proven([frame.proof], self._mine, ACCEPTOR, self._transcript)
            return HandshakeStep(
                agreement=self._agree(DIALER, ACCEPTOR, self._transcript, self._hello, self._challenge, key)
            )
        return None


Admit = Callable[[Address], int]
"""Decides about a session: takes the dialer's address, returns the session to resume (0 for none).

Raises `HandshakeError` to refuse. Called before the dialer has proved anything: it must not change state.
"""


class AcceptorHandshake(Handshake):
    """The side that was connected to."""

    def __init__(self, me: LocalIdentity, admit: Admit, nonce: bytes) -> None:
        super().__init__(me, Stage.HELLO, nonce)
        self._admit: Final = admit
        self._begun: tuple[Hello, Challenge] | None = None
        self._mine: tuple[bytes, ...] = ()
        self._transcript = b""

    @property
    def claimed(self) -> Address | None:
        """The address that the dialer claims, once it has sent it."""
        return None if self._begun is None else _address(self._begun[0].address)

    def _take(self, stage: Stage, frame: AnyFrame, data: bytes) -> HandshakeStep | None:
        if stage is Stage.HELLO and isinstance(frame, Hello):
            return self._challenge(frame, data)
        if stage is Stage.PROOF and isinstance(frame, Proof) and self._begun is not None:
            key = self._proven(frame.proofs, self._mine, DIALER, self._transcript)
            agreement = self._agree(ACCEPTOR, DIALER, self._transcript, *self._begun, key)
            proof = b"" if key is None else proof_of(key, ACCEPTOR, self._transcript)
            return HandshakeStep(encode(Welcome(proof)), agreement)
        return None

    def _challenge(self, hello: Hello, data: bytes) -> HandshakeStep:
        if hello.version != PROTOCOL_VERSION:
            raise _refusal("version", f"protocol version {hello.version} meets version {PROTOCOL_VERSION}")
        self._require_same_mode(hello.is_authenticating)
        dialer, wanted, me = _address(hello.address), _address(hello.target), self._me.address
        if (wanted.system, wanted.host, wanted.port) != (me.system, me.host, me.port):
            raise _refusal("target", f"{wanted} is wanted, but this is {me}")
        self._mine = self._keys(dialer)
        session = self._admit(dialer)
        challenge = Challenge(
            str(me), self._nonce, session, self._me.frame_limit_bytes, self._me.keys is not None
        )
        answer = encode(challenge)
        self._begun, self._transcript = (hello, challenge), transcript_of(data, answer)
        self.stage = Stage.PROOF
        return HandshakeStep(answer)


_REMEDIES: Final = {
    "secret": "give both systems the same shared secret, or keys that were made from it",
    "version": "run compatible versions of Drivetrain on both sides",
    "target": "use the host, port and system name that the other system gives as its address",
    "stale": "a newer life of this system is known at its host and port: start it again",
}


def _refusal(reason: str, what: str) -> HandshakeError:
    return HandshakeError(what, reason=reason, remedy=_REMEDIES.get(reason))


def _address(text: str) -> Address:
    try:
        address = Address.parse(text)
    except InvalidPathError as error:
        raise HandshakeError(f"{text[:200]!r} is not the address of a system", reason="garbage") from error
    if not address.is_remote_capable:
        raise HandshakeError(f"nobody can connect to {address}", reason="garbage")
    return address

"""The frames that two actor systems exchange, as typed structs in msgpack.

Design: one tagged union, positional fields. A connection begins with `Hello`, `Challenge`, `Proof` and
`Welcome` (or a `Refusal` at any point of these); then come `Batch`, `SystemMessage`, `SystemAck`,
`Heartbeat`, `HeartbeatReply` and, at the end, `Goodbye`. `PROTOCOL_VERSION` changes when an older peer would
misunderstand.

A message is an `Item`: target, sender, tag, body. Paths in it are relative to the two ends of the
connection ("/user/a#7") unless they belong elsewhere, then complete; the body belongs to the codec and is not
decoded here.

Invariants:
1. `decode(encode(frame))` equals the frame; anything else raises `ProtocolViolationError`.
2. Sequence numbers (`number`) start at 1 in each session and grow with every frame that carries one.

Called by handshakes and associations, and by the simulator to describe frames.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeAlias

import msgspec
from msgspec import Meta, Raw

from drivetrain.actor.remote.auth import TAG_BYTES
from drivetrain.actor.remote.keys import MOST_KEYS
from drivetrain.actor.remote.remote_errors import ProtocolViolationError
from drivetrain.actor.remote.transport import Frame

PROTOCOL_VERSION: Final = 2

Item: TypeAlias = tuple[str, str | None, str, Raw]
"""Target path, sender path, tag, and the body as encoded by the codec."""


class _Frame(msgspec.Struct, array_like=True, gc=False):
    pass


class Hello(_Frame, tag=1):
    """Dialer to acceptor: my address, the wanted address, and the session to resume (0 for none)."""

    version: int
    address: str
    target: str
    nonce: bytes
    session: int
    frame_limit: int
    is_authenticating: bool


class Challenge(_Frame, tag=2):
    """Acceptor to dialer: my address, and the session that I could resume (0 for none)."""

    address: str
    nonce: bytes
    session: int
    frame_limit: int
    is_authenticating: bool


class Proof(_Frame, tag=3):
    """Dialer to acceptor: one proof for each known key; empty when neither side authenticates."""

    proofs: Annotated[tuple[bytes, ...], Meta(max_length=MOST_KEYS)]


class Welcome(_Frame, tag=4):
    """Acceptor to dialer: I know one of these keys, which seals the session; the session begins."""

    proof: bytes


class Refusal(_Frame, tag=5):
    """Either side: no session; `reason` is a stable word, `what` a sentence for the log."""

    reason: str
    what: str


class Batch(_Frame, tag=6):
    """Messages, at most once and in order."""

    number: int
    items: list[Item]


class SystemMessage(_Frame, tag=7):
    """One message about watching, delivered exactly once per session: sent again until acknowledged.

    `position` counts these messages from 1.
    """

    number: int
    position: int
    item: Item


class SystemAck(_Frame, tag=8):
    """All `SystemMessage` messages up to `position` have been delivered."""

    position: int


class Heartbeat(_Frame, tag=9):
    """Answer this with a `HeartbeatReply` of the same count."""

    count: int


class HeartbeatReply(_Frame, tag=10):
    """The answer to the heartbeat `count`."""

    count: int


class Goodbye(_Frame, tag=11):
    """This system has stopped; its incarnation has ended."""


AnyFrame: TypeAlias = (
    Hello
    | Challenge
    | Proof
    | Welcome
    | Refusal
    | Batch
    | SystemMessage
    | SystemAck
    | Heartbeat
    | HeartbeatReply
    | Goodbye
)

# Text that is not UTF-8 is not a MsgspecError.
_UNDECODABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final[msgspec.msgpack.Decoder[AnyFrame]] = msgspec.msgpack.Decoder(AnyFrame)


def encode(frame: AnyFrame) -> bytes:
    """The frame as bytes."""
    return _encoder.encode(frame)


def decode(data: Frame) -> AnyFrame:
    """The frame in `data`; bodies refer to `data`. Raises `ProtocolViolationError`."""
    try:
        return _decoder.decode(data)
    except _UNDECODABLE as error:
        raise ProtocolViolationError(
            f"not a frame of the actor protocol: {error}",
            remedy="check that an actor system of the same version is at the other end",
        ) from error


def describe(data: bytes) -> str:
    """Describe a frame in a few words, sealed or not, for traces; other bytes by their size only."""
    frame: Any = None
    for start in (0, TAG_BYTES):
        try:
            frame = _decoder.decode(data[start:])
            break
        except _UNDECODABLE:
            continue
    match frame:
        case Batch(number, items):
            return f"Batch {number} [{', '.join(f'{tag} to {target}' for target, _, tag, _ in items[:4])}" + (
                f", {len(items) - 4} more]" if len(items) > 4 else "]"
            )
        case SystemMessage(_, position, (target, _, tag, _)):
            return f"System {position} [{tag} to {target}]"
        case SystemAck(position):
            return f"SystemAck {position}"
        case Heartbeat(count) | HeartbeatReply(count):
            return f"{type(frame).__name__} {count}"
        case Refusal(reason, _):
            return f"Refusal {reason}"
        case None:
            return f"{len(data)} B"
        case _:
            return type(frame).__name__

"""Authentication with the shared secret: proofs of knowing it, and sealed frames.

Problem: any process that can send messages to a control plane can run code on its machines. Both ends must
prove that they belong, without sending the secret, and nobody between them may add or change messages.

Design: HMAC-SHA256 challenge and response. Both proofs cover the whole `Hello` and `Challenge` as bytes, so
addresses, nonces, versions and limits cannot be changed on the way; the roles differ, so a proof cannot be
sent back. The dialer proves first: a stranger that connects learns nothing that depends on the secret. From
the same transcript both ends derive one key per direction, and every later frame carries a keyed BLAKE2
tag. Replays within a connection are refused by the frames' own numbers, those of another connection by its
keys. Sealing authenticates, it does not encrypt: use TLS for that.

Both sides may know several keys. The dialer sends a proof for each; the acceptor takes the first of its own
keys that one of them proves, and that key seals the session.

Invariants:
1. Proofs and tags are compared in constant time.
2. A frame that was not sealed by the peer in this connection and direction does not open.

Called by handshakes and links. Source: challenge-response as in SCRAM (RFC 5802) and the roles and
transcript of SIGMA.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from typing import Final

from drivetrain.actor.remote.remote_errors import ProtocolViolationError
from drivetrain.actor.remote.transport import Frame

NONCE_BYTES: Final = 32
TAG_BYTES: Final = 16
MIN_SECRET_LENGTH: Final = 16

DIALER: Final = b"drivetrain dialer"
ACCEPTOR: Final = b"drivetrain acceptor"


def transcript_of(hello: bytes, challenge: bytes) -> bytes:
    """The digest of the first two frames of a connection; 32 bytes."""
    return hashlib.sha256(len(hello).to_bytes(4, "big") + hello + challenge).digest()


def proof_of(secret: bytes, role: bytes, transcript: bytes) -> bytes:
    """The proof that the side in this role (`DIALER` or `ACCEPTOR`) knows the secret; 32 bytes."""
    return hmac.digest(secret, b"proof|" + role + b"|" + transcript, "sha256")


def proven_key(
    claimed: Sequence[bytes], keys: Sequence[bytes], role: bytes, transcript: bytes
) -> bytes | None:
    """The first of `keys` that one of the claimed proofs proves; None when there is none."""
    proven: bytes | None = None
    for key in keys:
        right = proof_of(key, role, transcript)
        # All are compared, whichever matches: the duration reveals nothing.
        fits = [hmac.compare_digest(claim, right) for claim in claimed]
        if proven is None and any(fits):
            proven = key
    return proven


class Seal:
    """Seals the frames of one direction of one connection, and opens them."""

    def __init__(self, secret: bytes, role: bytes, transcript: bytes) -> None:
        self._key: Final = hmac.digest(secret, b"seal|" + role + b"|" + transcript, "sha256")

    def close(self, frame: bytes) -> bytes:
        """The frame with its tag in front."""
        return self._tag(frame) + frame

    def open(self, sealed: Frame) -> memoryview:
        """The frame without its tag; raises `ProtocolViolationError` when the tag is wrong."""
        view = memoryview(sealed)
        frame = view[TAG_BYTES:]
        if not hmac.compare_digest(view[:TAG_BYTES], self._tag(frame)):
            raise ProtocolViolationError(
                "a frame was not sealed by the peer", remedy="the connection may be intercepted: use TLS"
            )
        return frame

    def _tag(self, frame: Frame) -> bytes:
        return hashlib.blake2b(frame, key=self._key, digest_size=TAG_BYTES).digest()

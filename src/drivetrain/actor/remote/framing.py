"""Frames in a stream of bytes: a length of four bytes, big-endian, and that many bytes.

Problem: TCP delivers bytes in pieces of any size, from anyone. A peer must not make us hold more than the
limit, nor make us wait for a frame that we would refuse anyway.

Design: `FrameReader.feed` takes pieces and yields whole frames; the length is checked as soon as it is known.
Whole frames within one piece are not copied.

Invariants:
1. Whatever the pieces, the frames are those that were sent.
2. At most one incomplete frame, below the limit, is held.
3. A length of zero or above the limit raises, and the reader yields nothing more.

Called by `TcpConnection`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from drivetrain.actor.remote.remote_errors import ProtocolViolationError

HEADER_BYTES: Final = 4
_LARGEST: Final = 2**32 - 1


def header_of(frame: bytes) -> bytes:
    """The length that precedes the frame on the wire."""
    return len(frame).to_bytes(HEADER_BYTES, "big")


class FrameReader:
    """Cuts a stream into frames of at most `limit_bytes`, which may be changed at any time."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = min(limit_bytes, _LARGEST)
        self._rest = bytearray()
        self._is_broken = False

    @property
    def held_bytes(self) -> int:
        """How much of an incomplete frame is held."""
        return len(self._rest)

    def feed(self, piece: bytes) -> Iterator[memoryview]:
        """Yield the frames that are complete now; each is valid until the next is requested.

        Raises `ProtocolViolationError` at an invalid length. The iterator must be run to its end.
        """
        if self._is_broken:
            return
        view = memoryview(piece)
        if self._rest:
            # Only the missing part is added first: a small tail must not make us copy a large piece twice.
            missing = self._missing()
            while missing:
                self._rest += view[:missing]
                if len(view) < missing:
                    return
                view = view[missing:]
                missing = self._missing()
            # A new buffer for what follows, rather than a copy of the frame in this one.
            frame, self._rest = self._rest, bytearray()
            yield memoryview(frame)[HEADER_BYTES:]
        at, end = 0, len(view)
        while end - at >= HEADER_BYTES:
            size = int.from_bytes(view[at : at + HEADER_BYTES], "big")
            self._judge(size)
            if end - at - HEADER_BYTES < size:
                break
            at += HEADER_BYTES
            yield view[at : at + size]
            at += size
        self._rest += view[at:]

    def _missing(self) -> int:
        """How many bytes the incomplete frame lacks: at first of its length, then of the whole frame."""
        held = len(self._rest)
        if held < HEADER_BYTES:
            return HEADER_BYTES - held
        size = int.from_bytes(self._rest[:HEADER_BYTES], "big")
        if held == HEADER_BYTES:
            self._judge(size)
        return HEADER_BYTES + size - held

    def _judge(self, size: int) -> None:
        if not 0 < size <= self.limit_bytes:
            self._is_broken = True
            self._rest.clear()
            raise ProtocolViolationError(
                "not a frame, or one that is too large",
                expected=f"a length from 1 to {self.limit_bytes} bytes",
                got=f"{size} bytes",
                remedy="check that an actor system of the same version and frame limit is at the other end",
            )

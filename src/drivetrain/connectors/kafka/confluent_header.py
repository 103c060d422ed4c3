"""The header that Confluent's serializers put before a message: a zero, a schema's number, perhaps an index.

The schema is the user's own: no registry is asked, and the number is not looked at.

Called by the binary formats, on Spark's workers; JSON is decoded by Spark itself, in the same way. Source:
Confluent's wire format.
"""

from __future__ import annotations

HEADER_BYTES = 5
NO_HEADER = "it does not begin with Confluent's header: a zero and four bytes"


def without_header(value: bytes) -> bytes:
    """The message behind the header; raises ValueError when there is none."""
    if len(value) < HEADER_BYTES or value[0] != 0:
        raise ValueError(NO_HEADER)
    return value[HEADER_BYTES:]


def without_index(value: bytes) -> bytes:
    """What follows the path to a message's type in its file, which Protobuf's header has as well."""
    count, at = _number(value, 0)
    for _ in range(count):
        _, at = _number(value, at)
    return value[at:]


def _number(value: bytes, at: int) -> tuple[int, int]:
    """A variable-length signed integer, and where it ends."""
    found = shift = 0
    while True:
        if at >= len(value) or shift > 28:
            raise ValueError("Confluent's header has no end")
        byte = value[at]
        found |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not byte & 0x80:
            return (found >> 1) ^ -(found & 1), at

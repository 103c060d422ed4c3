"""The header that Confluent's serializers put before a message: a zero, a schema's number, perhaps an index.

The user gives the schema: no registry is queried, and the number is ignored.

Called by the binary formats, on Spark's workers; JSON is decoded by Spark itself, in the same way. Source:
Confluent's wire format.
"""

from __future__ import annotations

HEADER_BYTES = 5
NO_HEADER = "it does not begin with Confluent's header: a zero and four bytes"


def without_header(value: bytes) -> bytes:
    """The message after the header; raises ValueError if there is none."""
    if len(value) < HEADER_BYTES or value[0] != 0:
        raise ValueError(NO_HEADER)
    return value[HEADER_BYTES:]


def without_index(value: bytes) -> bytes:
    """The bytes after the path to a message's type in its file, which Protobuf's header also has."""
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

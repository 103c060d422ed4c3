"""The replicated map on disk: a log of records with checksums, which begins with a snapshot.

Problem. A crash may leave any prefix of what was not synced, the last record in part. That is normal and must
be tolerated; a record that was durable once and is damaged now must be noticed, as going on without it would
forget an acknowledged write.

Design. A record is a header (magic, length, checksum of the body, checksum of the header) and a body in
msgpack. The header has a checksum of its own, so that a damaged length is told from a record that ends too
early. The file is a sequence of records; reading them in order gives the map. When the log has grown to
several times the map, it is written anew (`snapshot`) beside the old one, which it replaces atomically.

Invariants:
1. `decode(encode(a) + encode(b))` gives both, and `decode` of any prefix gives a prefix of the records.
2. A tail that a crash may have left (cut off within a record, or zeros where a file was extended) is left
   out; any other damage raises `CorruptLogError`.

Called by `drivetrain.cluster.master.replica` and, for term and vote, by `.election`.
Source: record framing as in LevelDB's and Kafka's logs.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from typing import Final

import msgspec

from drivetrain.core.replicated_map import MapDigest, MapEntry, ReplicatedMap
from drivetrain.errors import DrivetrainError

_MAGIC: Final = b"DT1\n"
_HEADER: Final = struct.Struct("<4sII")  # magic, length of the body, its checksum
_CHECKSUM: Final = struct.Struct("<I")
_HEADER_BYTES: Final = _HEADER.size + _CHECKSUM.size


class CorruptLogError(DrivetrainError):
    """A file that was durable is damaged: not by a crash, but by the disk or by somebody."""

    code = "corrupt-log"
    exit_code = 74


class Written(msgspec.Struct, frozen=True, array_like=True, tag="written"):
    """Entries that were taken."""

    entries: tuple[MapEntry, ...]


class Fenced(msgspec.Struct, frozen=True, array_like=True, tag="fenced"):
    """The fence was raised."""

    term: int


class Rebased(msgspec.Struct, frozen=True, array_like=True, tag="rebased"):
    """The base was raised: entries of older terms are void."""

    base: int


class Voted(msgspec.Struct, frozen=True, array_like=True, tag="voted"):
    """Term and vote of a master; of several the last counts."""

    term: int
    voted_for: str | None


Record = Written | Fenced | Rebased | Voted

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Record)


def encode(record: Record) -> bytes:
    """Return the bytes of a record."""
    body = _encoder.encode(record)
    header = _HEADER.pack(_MAGIC, len(body), zlib.crc32(body))
    return header + _CHECKSUM.pack(zlib.crc32(header)) + body


def decode(data: bytes, where: str) -> tuple[list[Record], int]:
    """Return the records of a file, and the length of what they take; the rest is a torn tail.

    Raises `CorruptLogError` naming the file `where` for any other damage.
    """
    records: list[Record] = []
    at = 0
    while at < len(data):
        rest = len(data) - at
        if rest < _HEADER_BYTES or not any(data[at:]):
            break
        header = data[at : at + _HEADER.size]
        (checksum,) = _CHECKSUM.unpack_from(data, at + _HEADER.size)
        magic, length, body_checksum = _HEADER.unpack(header)
        if magic != _MAGIC or checksum != zlib.crc32(header):
            raise _corrupt(where, at, "the header of a record is damaged")
        end = at + _HEADER_BYTES + length
        if end > len(data):
            break
        body = data[at + _HEADER_BYTES : end]
        if zlib.crc32(body) != body_checksum:
            if not any(data[end:]) and body.rstrip(b"\0") != body:
                break  # the file was extended, but not all of its end was written
            raise _corrupt(where, at, "a record's checksum is wrong")
        try:
            records.append(_decoder.decode(body))
        except msgspec.MsgspecError as error:
            raise _corrupt(where, at, f"a record cannot be read: {error}") from error
        at = end
    return records, at


def snapshot(replica: ReplicatedMap) -> bytes:
    """Return the whole map as records."""
    records: Iterable[Record] = (
        Fenced(replica.fence),
        Written(tuple(replica.entries.values())),
        Rebased(replica.base),
    )
    return b"".join(map(encode, records))


def restore(records: Iterable[Record], where: str) -> ReplicatedMap:
    """Return the map that the records make; raises `CorruptLogError` for one that does not belong here."""
    replica = ReplicatedMap()
    for record in records:
        match record:
            case Written(entries):
                replica.merge(entries)
            case Fenced(term):
                replica.fence_off(max(term, replica.fence))
            case Rebased(base):
                # Everything of the base came before it in the log.
                replica.rebase(MapDigest(base, {}))
            case Voted():
                raise _corrupt(where, 0, "it holds a vote, not a map")
    return replica


def last_vote(records: Iterable[Record], where: str) -> Voted | None:
    """Return the last vote of the records, None when there is none; raises `CorruptLogError`."""
    vote: Voted | None = None
    for record in records:
        if not isinstance(record, Voted):
            raise _corrupt(where, 0, "it holds a map, not a vote")
        vote = record
    return vote


def _corrupt(where: str, at: int, what: str) -> CorruptLogError:
    return CorruptLogError(
        f"{what}, at byte {at}",
        where=where,
        remedy="if the other masters run, move this master's directory away and start it again: it gets "
        "everything from them; never do that on a majority of masters",
    )

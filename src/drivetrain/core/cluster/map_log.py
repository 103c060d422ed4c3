"""The replicated map on disk: a log of frames with checksums, which begins with a snapshot.

Problem. A crash may leave any prefix of unsynced data, with the last record incomplete. That is normal and
must be tolerated; but damage to a record that was durable must be noticed, because continuing without it
would forget an acknowledged write.

Design. Records that are appended together form one frame: a header (magic, length, checksum of the body,
checksum of the header) and a body in msgpack, a list of records. The header has its own checksum, to
distinguish a damaged length from a frame that ends too early. The file is a sequence of frames; reading them
in order gives the map. A frame is appended only when the one before it is durable, so a frame with a
successor was complete. When the log has grown to several times the map's size, the map is written to a new
file (`snapshot`), which replaces the old one atomically.

Invariants:
1. `decode(encode(a) + encode(b))` gives both, and `decode` of any prefix gives a prefix of the records.
2. A tail that a crash may have left (cut off within a frame, header included, or with zeros where the file
   was extended and a sector not written) is left out; any other damage raises `CorruptLogError`.

Called by `registry.replica` and, for term and vote, by `registry.election_actor`.
Source: record framing as in LevelDB's and Kafka's logs.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from typing import Final

import msgspec

from drivetrain.core.cluster.replicated_map import Base, MapEntry, ReplicatedMap
from drivetrain.errors import DrivetrainError

_MAGIC: Final = b"DT1\n"
_HEADER: Final = struct.Struct("<4sII")  # magic, length of the body, its checksum
_CHECKSUM: Final = struct.Struct("<I")
_HEADER_BYTES: Final = _HEADER.size + _CHECKSUM.size
_SECTOR_BYTES: Final = 512


class CorruptLogError(DrivetrainError):
    """A durable file is damaged: not by a crash, but by the disk or by someone who changed it."""

    code = "corrupt-log"
    exit_code = 74


class Written(msgspec.Struct, frozen=True, array_like=True, tag="written"):
    """Entries that were taken."""

    entries: tuple[MapEntry, ...]


class Fenced(msgspec.Struct, frozen=True, array_like=True, tag="fenced"):
    """The fence was raised."""

    term: int


class Rebased(msgspec.Struct, frozen=True, array_like=True, tag="rebased"):
    """The base was raised: entries of older terms are void, and so are the entries of these keys."""

    base: Base
    gone: tuple[str, ...] = ()


class Voted(msgspec.Struct, frozen=True, array_like=True, tag="voted"):
    """Term and vote of a master; the last one counts."""

    term: int
    voted_for: str | None


Record = Written | Fenced | Rebased | Voted

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(list[Record])


def encode(*records: Record) -> bytes:
    """Encode records that are appended together."""
    body = _encoder.encode(records)
    header = _HEADER.pack(_MAGIC, len(body), zlib.crc32(body))
    return header + _CHECKSUM.pack(zlib.crc32(header)) + body


def decode(data: bytes, where: str) -> tuple[list[Record], int]:
    """Return the records of a file, and how many bytes they take; the rest is a torn tail.

    Raises `CorruptLogError` naming the file `where` for any other damage.
    """
    records: list[Record] = []
    at = 0
    while at < len(data):
        header = _header_at(data, at)
        end = len(data) if header is None else at + _HEADER_BYTES + header[0]
        body = data[at + _HEADER_BYTES : end]
        if header is None or end > len(data) or zlib.crc32(body) != header[1]:
            if _is_torn(data, at, end, is_header_whole=header is not None):
                break
            what = "the header of a record is damaged" if header is None else "a record's checksum is wrong"
            raise _corrupt(where, at, what)
        try:
            records += _decoder.decode(body)
        except msgspec.MsgspecError as error:
            raise _corrupt(where, at, f"a record cannot be read: {error}") from error
        at = end
    return records, at


def _header_at(data: bytes, at: int) -> tuple[int, int] | None:
    """The length and checksum of the body whose header is there; None when there is no complete header."""
    if len(data) - at < _HEADER_BYTES:
        return None
    magic, length, body_checksum = _HEADER.unpack_from(data, at)
    (checksum,) = _CHECKSUM.unpack_from(data, at + _HEADER.size)
    is_whole = magic == _MAGIC and checksum == zlib.crc32(data[at : at + _HEADER.size])
    return (length, body_checksum) if is_whole else None


def _is_torn(data: bytes, at: int, end: int, *, is_header_whole: bool) -> bool:
    """Whether the record from `at` to `end` may be the last append, of which a crash left a part.

    Nothing was appended after it, and part of it is missing: the file is too short, or holds zeros from
    within the record to its end, or in a whole sector. File systems leave such zeros when they have extended
    the file but not written all of it.
    """
    later = data.find(_MAGIC, at + 1)
    while later >= 0:
        if _header_at(data, later) is not None:
            return False
        later = data.find(_MAGIC, later + 1)
    if len(data) - at < _HEADER_BYTES or end > len(data):
        return True
    written = len(data.rstrip(b"\0"))
    if written < (end if is_header_whole else at + _HEADER_BYTES):
        return True
    begin = at
    while begin < end:
        next_sector = min(end, begin - begin % _SECTOR_BYTES + _SECTOR_BYTES)
        is_sector = begin == at or next_sector - begin == _SECTOR_BYTES
        if is_sector and not any(data[begin:next_sector]):
            return True
        begin = next_sector
    return False


def snapshot(replica: ReplicatedMap) -> bytes:
    """Return the whole map as records."""
    return encode(
        Fenced(replica.fence),
        Written(tuple(replica.entries.values())),
        Rebased(replica.base),
    )


def restore(records: Iterable[Record], where: str) -> ReplicatedMap:
    """Rebuild the map from the records; raises `CorruptLogError` for a record that does not belong here."""
    replica = ReplicatedMap()
    for record in records:
        match record:
            case Written(entries):
                replica.merge(entries)
            case Fenced(term):
                replica.fence_off(max(term, replica.fence))
            case Rebased(base, gone):
                replica.drop(base, gone)
            case Voted():
                raise _corrupt(where, 0, "it holds a vote, not a map")
    return replica


def last_vote(records: Iterable[Record], where: str) -> Voted | None:
    """Return the last vote of the records, None without one; raises `CorruptLogError`."""
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

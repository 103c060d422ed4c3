"""Master to master: elections, the replicated registry, code archives.

All go to `/user/master`, with the asking actor as the sender. `list_id` is a checksum of the
sender's list of masters: masters with different lists ignore each other.
"""

from __future__ import annotations

from drivetrain.actor import Message
from drivetrain.cluster.messages.numbers import Count
from drivetrain.core.cluster.replicated_map import Base, MapDigest, MapEntry

CHUNK_BYTES = 1024 * 1024
"""The approximate limit for bytes of entries or of a digest in one message; see `MasterSettings`."""


class GetMasterList(Message, frozen=True, tag="masters.get-list"):
    """Asks a master which masters it knows; answered with `MasterList`.

    The asking master sends its name, its own list and its uptime, so that the answering one compares, too.
    """

    asker: str | None = None
    masters: tuple[str, ...] = ()
    age_ms: int = 0


class MasterList(Message, frozen=True, tag="masters.list"):
    """The masters as `cluster.masters` names them, and the uptime of the answering one."""

    masters: tuple[str, ...]
    age_ms: int = 0


# ---- elections, see `core.cluster.election`; `sender` is the address of the sending master


class VoteRequest(Message, frozen=True, tag="masters.ask-vote"):
    """Asks for a vote, or whether the receiver would give one (`is_trial`)."""

    sender: str
    list_id: int
    term: Count
    is_trial: bool


class VoteReply(Message, frozen=True, tag="masters.vote"):
    """The answer to `VoteRequest`."""

    sender: str
    list_id: int
    term: Count
    known_term: Count
    is_trial: bool
    granted: bool


class LeaseRequest(Message, frozen=True, tag="masters.ask-lease"):
    """A leader asks for its lease."""

    sender: str
    list_id: int
    term: Count
    sent_ms: int


class LeaseReply(Message, frozen=True, tag="masters.lease"):
    """The answer to `LeaseRequest`."""

    sender: str
    list_id: int
    term: Count
    known_term: Count
    sent_ms: int
    granted: bool


class ReleaseLease(Message, frozen=True, tag="masters.release-lease"):
    """A leader has resigned in this term: its lease is over."""

    sender: str
    list_id: int
    term: Count


# ---- the registry, see `core.cluster.replicated_map`


class ReadDigest(Message, frozen=True, tag="masters.read-digest"):
    """From a new leader: asks for the digest of a replica, and fences off older terms; answered with `Digest`
    or `TermRefused`."""

    term: Count


class Digest(Message, frozen=True, tag="masters.digest"):
    """Piece number `piece` (from 0) of `pieces` of the answering replica's digest; `term` is that of the
    request. A higher `series` is a later answer."""

    master: str
    term: Count
    series: int
    piece: int
    pieces: int
    digest: MapDigest


class ReadEntries(Message, frozen=True, tag="masters.read-entries"):
    """Asks for entries; answered with `Entries`, perhaps fewer than requested."""

    keys: tuple[str, ...]


class Entries(Message, frozen=True, tag="masters.entries"):
    """Entries of the answering replica."""

    entries: tuple[MapEntry, ...]


class WriteEntries(Message, frozen=True, tag="masters.write-entries"):
    """A leader's write, number `round` of its term; answered with `EntriesWritten`, `TermRefused` or
    `WriteFailed`. Round 0 brings the entries that a `WriteBase` found missing, and is not answered."""

    term: Count
    round: Count
    entries: tuple[MapEntry, ...]


class WriteBase(Message, frozen=True, tag="masters.write-base"):
    """Piece number `piece` (from 0) of `pieces` of the map's new base, chosen by the leader; answered like
    `WriteEntries` once all pieces have arrived."""

    term: Count
    round: Count
    piece: int
    pieces: int
    digest: MapDigest


class EntriesWritten(Message, frozen=True, tag="masters.entries-written"):
    """The whole round is durable on `master`."""

    master: str
    term: Count
    round: Count


class WriteFailed(Message, frozen=True, tag="masters.write-failed"):
    """`master` could not make the round durable, or lacks entries of the base: `missing` lists the first
    ones."""

    master: str
    term: Count
    round: Count
    why: str
    missing: tuple[str, ...] = ()


class TermRefused(Message, frozen=True, tag="masters.term-refused"):
    """A leader of a higher term has fenced off the sender's."""

    master: str
    term: Count
    fence: Count


class Gossip(Message, frozen=True, tag="masters.gossip"):
    """Sent to another master regularly: if that holds different entries, it sends a `GossipDigest` and asks
    for the entries that it lacks."""

    master: str
    base: Base
    summary: int


class GossipDigest(Message, frozen=True, tag="masters.gossip-digest"):
    """A piece, as in `Digest`, of the answer to a differing `Gossip`; its receiver reads what it lacks."""

    master: str
    series: int
    piece: int
    pieces: int
    digest: MapDigest


# ---- code archives


class ReplicateCode(Message, frozen=True, tag="masters.replicate-code"):
    """A chunk of an archive from the leader; answered with `CodeStored`, like `PutCode`."""

    sha256: str
    offset: Count
    size_bytes: Count
    data: bytes

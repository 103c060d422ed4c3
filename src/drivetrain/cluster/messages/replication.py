"""Master to master: elections, the replicated registry, code archives.

All are told or asked to `/user/master`, with the asking actor as the sender. `list_id` is a checksum of the
sender's list of masters: masters with different lists do not deal with each other.
"""

from __future__ import annotations

from drivetrain.actor import Message
from drivetrain.core.replicated_map import MapDigest, MapEntry

CHUNK_BYTES = 1024 * 1024
"""About how many bytes of entries go into one message."""


class GetMasterList(Message, frozen=True, tag="masters.get-list"):
    """Asks a master which masters it knows; answered with `MasterList`.

    A master says which one it is, its own list, and how long it has been running: who is asked compares, too.
    """

    asker: str | None = None
    masters: tuple[str, ...] = ()
    age_ms: int = 0


class MasterList(Message, frozen=True, tag="masters.list"):
    """The masters as `cluster.masters` names them, and how long the answering one has been running."""

    masters: tuple[str, ...]
    age_ms: int = 0


# ---- elections, see `core.election`; `sender` is the address of the master that says it


class AskVote(Message, frozen=True, tag="masters.ask-vote"):
    """Asks for a vote, or whether there would be one (`is_trial`)."""

    sender: str
    list_id: int
    term: int
    is_trial: bool


class Vote(Message, frozen=True, tag="masters.vote"):
    """The answer to `AskVote`."""

    sender: str
    list_id: int
    term: int
    known_term: int
    is_trial: bool
    granted: bool


class AskLease(Message, frozen=True, tag="masters.ask-lease"):
    """A leader asks for its lease."""

    sender: str
    list_id: int
    term: int
    sent_ms: int


class Lease(Message, frozen=True, tag="masters.lease"):
    """The answer to `AskLease`."""

    sender: str
    list_id: int
    term: int
    known_term: int
    sent_ms: int
    granted: bool


# ---- the registry, see `core.replicated_map`


class ReadDigest(Message, frozen=True, tag="masters.read-digest"):
    """A new leader asks what a replica holds, and fences off older terms; answered with `Digest`, or
    `TermRefused`."""

    term: int


class Digest(Message, frozen=True, tag="masters.digest"):
    """What the answering replica holds; `term` is that of the question, 0 in gossip."""

    master: str
    term: int
    digest: MapDigest


class ReadEntries(Message, frozen=True, tag="masters.read-entries"):
    """Asks for entries; answered with `Entries`, perhaps with fewer than asked for."""

    keys: tuple[str, ...]


class Entries(Message, frozen=True, tag="masters.entries"):
    """Entries of the answering replica."""

    entries: tuple[MapEntry, ...]


class WriteEntries(Message, frozen=True, tag="masters.write-entries"):
    """A leader's write, number `round` of its term; answered with `EntriesWritten`, `TermRefused` or
    `WriteFailed` if `is_last` of its round. `base` makes the entries so far the base of the term."""

    term: int
    round: int
    entries: tuple[MapEntry, ...]
    is_last: bool = True
    base: MapDigest | None = None


class EntriesWritten(Message, frozen=True, tag="masters.entries-written"):
    """The whole round is durable on `master`."""

    master: str
    term: int
    round: int


class WriteFailed(Message, frozen=True, tag="masters.write-failed"):
    """`master` could not make the round durable, or has not got all of it."""

    master: str
    term: int
    round: int
    why: str


class TermRefused(Message, frozen=True, tag="masters.term-refused"):
    """A leader of a higher term has fenced off the sender's."""

    master: str
    term: int
    fence: int


class Gossip(Message, frozen=True, tag="masters.gossip"):
    """Told now and then to another master: who holds something else sends its `Digest`, and asks for what
    it lacks."""

    master: str
    base: int
    summary: int


class GossipDigest(Message, frozen=True, tag="masters.gossip-digest"):
    """The answer to a `Gossip` that differs; who gets it reads what it lacks."""

    master: str
    digest: MapDigest


# ---- code archives


class ReplicateCode(Message, frozen=True, tag="masters.replicate-code"):
    """A chunk of an archive from the leader; answered with `CodeStored` as `PutCode` is."""

    sha256: str
    offset: int
    size_bytes: int
    data: bytes

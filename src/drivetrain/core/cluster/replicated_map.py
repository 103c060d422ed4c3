"""A last-writer-wins map that a majority of masters holds, fenced by terms.

Problem. The registry of applications must survive the loss of any minority of masters. A leader that was cut
off without noticing must not change it, and a write that was abandoned long ago must not reappear. What was
deleted must stay deleted, without keeping a trace of every deletion for ever.

Design. Every entry has a stamp (term, counter, master); of two entries for one key the higher stamp wins, so
copies can be merged in any order, any number of times. A deletion is an entry without a value (a
*tombstone*). Only the leader of a term writes, one write after the other, each to a majority. Before its
first write it takes over: it raises the *fence* of a majority to its term (`fence_off`), reads what they
hold, takes the newest entry of each key, stamps it with its own term, writes it to a majority, and makes it
their *base* (`rebase`): whatever is older than the base and not part of it is void, on every replica and for
ever. So a write that reached only a minority, and that no majority read has seen, cannot reappear later.

Within its term the leader raises the base again when there are many tombstones: the new base is a counter of
its own term, and consists of the live entries, whose stamps stay. Tombstones below it are dropped, because
the base replaces them: a late copy of an entry that they deleted is older than the base and not part of it.

Invariants:
1. Entries of a key only ever give way to entries with a higher stamp; merging is idempotent, commutative and
   associative.
2. A write of a term below the fence is refused and changes nothing; the fence never decreases.
3. An entry below the base is part of the base, and of its term; the base never decreases, and its term is
   never above the fence.
4. A base is taken over only by a replica that has all of it (`rebase` names every key with its stamp).
5. `summary` follows from base and stamps alone, in whatever order they came.

So if every acknowledged write had reached a majority, the next leader's base contains it.

Called by the shells in `drivetrain.cluster.master` (`replica`, `registry`), which make changes durable before
they answer; the format on disk is in `core.cluster.map_log`.
Source: the map is Akka Distributed Data's LWWMap as Gearpump's masters use it, majority reads and writes
included; fence and base take the place of Raft's log matching.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from hashlib import blake2b
from types import MappingProxyType
from typing import Final

import msgspec

from drivetrain.errors import DrivetrainError, InternalError

_MODULUS: Final = 2**64
_KEY_BYTES: Final = 8
_STAMP_BYTES: Final = 32


class StaleTermError(DrivetrainError):
    """A write or read came from a term that a newer leader has fenced off; `fence` is the newer term."""

    code = "stale-term"

    def __init__(
        self,
        what: str,
        *,
        fence: int = 0,
        where: str | None = None,
        expected: str | None = None,
        got: str | None = None,
        remedy: str | None = None,
    ) -> None:
        super().__init__(what, where=where, expected=expected, got=got, remedy=remedy)
        self.fence = fence


class IncompleteBaseError(DrivetrainError):
    """A base was announced before all of its entries have arrived."""

    code = "incomplete-base"


class Stamp(msgspec.Struct, frozen=True, order=True, array_like=True):
    """When and by whom an entry was written; compared in this order."""

    term: int
    counter: int
    master: str


class Base(msgspec.Struct, frozen=True, order=True, array_like=True):
    """Of the entries with lower stamps, only those in the base count; compared in this order."""

    term: int = 0
    counter: int = 0

    def is_above(self, stamp: Stamp) -> bool:
        """Whether the stamp is older than the base."""
        return (stamp.term, stamp.counter) < (self.term, self.counter)


class MapEntry(msgspec.Struct, frozen=True, array_like=True):
    """The newest entry of a key; `value` None is a tombstone."""

    key: str
    value: bytes | None
    stamp: Stamp


class MapDigest(msgspec.Struct, frozen=True, array_like=True):
    """The contents of a replica: its base, and the stamp of each key, tombstones included."""

    base: Base
    stamps: dict[str, Stamp]


class ReplicatedMap:
    """One replica."""

    def __init__(self) -> None:
        self._entries: dict[str, MapEntry] = {}
        self._fence = 0
        self._base = Base()
        self._sum = 0

    @property
    def fence(self) -> int:
        """The lowest term whose writes are accepted."""
        return self._fence

    @property
    def base(self) -> Base:
        """The newest base known here; term 0 before the first takeover."""
        return self._base

    @property
    def entries(self) -> Mapping[str, MapEntry]:
        """The newest entry of each key, tombstones included."""
        return MappingProxyType(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def values(self) -> dict[str, bytes]:
        """The live values by key."""
        return {key: entry.value for key, entry in self._entries.items() if entry.value is not None}

    def summary(self) -> int:
        """A checksum of the contents, equal on replicas with equal contents; 0 to 2⁶⁴ − 1."""
        return (self._sum + _hash(f"{self._base.term}\0{self._base.counter}")) % _MODULUS

    def digest(self) -> MapDigest:
        """The contents, without the values."""
        return MapDigest(self._base, {key: entry.stamp for key, entry in self._entries.items()})

    # ---- changes; each returns what changed, for the caller to make durable

    def fence_off(self, term: int) -> bool:
        """Refuse writes older than `term` from now on; returns whether it is new. Raises `StaleTermError`."""
        self._require_current(term)
        is_new = term > self._fence
        self._fence = term
        return is_new

    def write(self, entries: Iterable[MapEntry], term: int) -> list[MapEntry]:
        """Apply a leader's write; returns the entries that are new here. Raises `StaleTermError`."""
        self.fence_off(term)
        return self.merge(entries)

    def merge(self, entries: Iterable[MapEntry]) -> list[MapEntry]:
        """Apply entries of another replica; returns those that are new here."""
        new = []
        for entry in entries:
            mine = self._entries.get(entry.key)
            if not self._base.is_above(entry.stamp) and (mine is None or mine.stamp < entry.stamp):
                self._put(entry)
                new.append(entry)
        return new

    def rebase(self, base: MapDigest) -> list[str] | None:
        """Drop the entries that are older than a base and not part of it; None when the base is not new.

        Returns the dropped keys that have a stamp of the base's own term: with them `drop` repeats the
        change. Raises `IncompleteBaseError`, changing nothing, when an entry of the base is missing here.
        """
        if base.base <= self._base:
            return None
        missing = self.missing(base)
        if missing:
            raise IncompleteBaseError(
                "entries of the base have not come yet",
                where=f"term {base.base.term}",
                got=f"{len(missing)} missing",
            )
        gone = [
            key
            for key, entry in self._entries.items()
            if entry.stamp.term == base.base.term
            and base.base.is_above(entry.stamp)
            and key not in base.stamps
        ]
        self.drop(base.base, gone)
        return gone

    def drop(self, base: Base, gone: Iterable[str]) -> None:
        """Raise the base, dropping these keys and all entries of older terms."""
        self._base = max(self._base, base)
        self._fence = max(self._fence, base.term)
        older = [key for key, entry in self._entries.items() if entry.stamp.term < base.term]
        for key in (*older, *gone):
            entry = self._entries.pop(key, None)
            if entry is not None:
                self._sum -= _hash_of(entry)

    # ---- comparing

    def missing(self, other: MapDigest) -> list[str]:
        """The keys whose entries are newer on another replica, sorted."""
        return sorted(
            key
            for key, stamp in other.stamps.items()
            if not self._base.is_above(stamp)
            and (key not in self._entries or self._entries[key].stamp < stamp)
        )

    def take(self, keys: Sequence[str], limit_bytes: int) -> list[MapEntry]:
        """The entries of `keys` in their order, as many as fit in the limit, one at least."""
        taken: list[MapEntry] = []
        size = 0
        for key in keys:
            entry = self._entries.get(key)
            if entry is None:
                continue
            size += entry_size(entry)
            if taken and size > limit_bytes:
                break
            taken.append(entry)
        return taken

    def check(self) -> None:
        """Verify the invariants; raise `InternalError` naming the first broken."""
        for key, entry in self._entries.items():
            if entry.key != key:
                raise InternalError(f"invariant 1: the entry of {entry.key} is filed under {key}")
            if entry.stamp.term < self._base.term:
                raise InternalError(f"invariant 3: {key} is of term {entry.stamp.term}, base {self._base}")
        if self._base.term > self._fence:
            raise InternalError(f"invariant 3: base {self._base} above fence {self._fence}")
        if sum(map(_hash_of, self._entries.values())) % _MODULUS != self._sum % _MODULUS:
            raise InternalError("invariant 5: the checksum is not that of the entries")

    def _put(self, entry: MapEntry) -> None:
        before = self._entries.get(entry.key)
        if before is not None:
            self._sum -= _hash_of(before)
        self._entries[entry.key] = entry
        self._sum += _hash_of(entry)

    def _require_current(self, term: int) -> None:
        if term < self._fence:
            raise StaleTermError(
                "a newer leader has taken over",
                fence=self._fence,
                expected=f"term {self._fence} or higher",
                got=f"term {term}",
            )


class Stamper:
    """Creates the stamps of one master's writes in one term: each higher than all before it."""

    def __init__(self, term: int, master: str) -> None:
        self.term: Final = term
        self._master: Final = master
        self._counter = 0

    @property
    def base(self) -> Base:
        """The base that is newer than all stamps so far."""
        return Base(self.term, self._counter + 1)

    def entry(self, key: str, value: bytes | None) -> MapEntry:
        """Stamp a write, or a deletion (None)."""
        self._counter += 1
        return MapEntry(key, value, Stamp(self.term, self._counter, self._master))


def newest(digests: Sequence[MapDigest]) -> dict[str, Stamp]:
    """The newest stamp of each key over a majority's digests.

    Entries older than the newest base count only on replicas with that base: elsewhere they are void.
    """
    base = max((digest.base for digest in digests), default=Base())
    found: dict[str, Stamp] = {}
    for digest in digests:
        for key, stamp in digest.stamps.items():
            counts = digest.base == base or not base.is_above(stamp)
            if counts and (key not in found or found[key] < stamp):
                found[key] = stamp
    return found


def in_chunks(entries: Iterable[MapEntry], limit_bytes: int) -> list[tuple[MapEntry, ...]]:
    """Split entries into groups that stay below the limit, if each entry does."""
    chunks: list[list[MapEntry]] = []
    size = 0
    for entry in entries:
        size += entry_size(entry)
        if not chunks or size > limit_bytes:
            chunks.append([])
            size = entry_size(entry)
        chunks[-1].append(entry)
    return [tuple(chunk) for chunk in chunks]


def first_keys(keys: Iterable[str], limit_bytes: int) -> tuple[str, ...]:
    """As many keys from the beginning as fit in the limit, one at least."""
    taken: list[str] = []
    size = 0
    for key in keys:
        size += len(key.encode()) + _KEY_BYTES
        if taken and size > limit_bytes:
            break
        taken.append(key)
    return tuple(taken)


def in_pieces(digest: MapDigest, limit_bytes: int) -> list[MapDigest]:
    """Split a digest into pieces with the same base that stay below the limit; one at least."""
    pieces: list[dict[str, Stamp]] = [{}]
    size = 0
    for key, stamp in digest.stamps.items():
        each = len(key.encode()) + len(stamp.master.encode()) + _STAMP_BYTES
        size += each
        if pieces[-1] and size > limit_bytes:
            pieces.append({})
            size = each
        pieces[-1][key] = stamp
    return [MapDigest(digest.base, piece) for piece in pieces]


class DigestCollector:
    """Puts the pieces of digests together; for each source it keeps only the latest series."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[Hashable, dict[int, MapDigest]]] = {}

    def add(
        self, source: str, series: Hashable, piece: int, pieces: int, digest: MapDigest
    ) -> MapDigest | None:
        """Add a piece, numbered from 0; returns the digest once its series is complete.

        A piece of another series discards the previous one: a source finishes one before it begins the next.
        """
        if not 0 <= piece < pieces:
            return None
        this = (series, pieces, digest.base)
        known, found = self._found.get(source, (None, {}))
        if known != this:
            found = {}
        found[piece] = digest
        if len(found) < pieces:
            self._found[source] = (this, found)
            return None
        self._found.pop(source, None)
        return MapDigest(digest.base, {k: s for each in found.values() for k, s in each.stamps.items()})


def entry_size(entry: MapEntry) -> int:
    """About how many bytes an entry takes on the wire and on disk."""
    return len(entry.key.encode()) + len(entry.value or b"") + 64


def _hash_of(entry: MapEntry) -> int:
    stamp = entry.stamp
    return _hash(f"{entry.key}\0{stamp.term}\0{stamp.counter}\0{stamp.master}")


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")

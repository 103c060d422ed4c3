"""A last-writer-wins map that a majority of masters holds, fenced by terms.

Problem. The registry of applications must survive any minority of masters, and a leader that was cut off and
does not know it must not change it, nor may a write that was given up long ago come back to life.

Design. Every entry has a stamp (term, counter, master); of two entries for one key the higher stamp wins,
so copies can be merged in any order, as often as one likes. A deletion is an entry without a value (a
*tombstone*). Only the leader of a term writes, and it writes to a majority. Before its first write it takes
over: it raises the *fence* of a majority to its term (`fence_off`), reads what they hold, takes the newest of
each, stamps it anew with its own term, writes it to a majority, and makes it their *base* (`rebase`):
whatever is older than the base and not part of it is void, on every replica and for ever. So a write that
reached a minority only, and that no majority read has seen, cannot reappear behind the leader's back.

Invariants:
1. Entries of a key only ever give way to entries with a higher stamp; merging is idempotent, commutative and
   associative.
2. A write of a term below the fence is refused and changes nothing; the fence never decreases.
3. No entry has a stamp whose term is below the base; the base never decreases, and is never above the fence.
4. A base is taken over only by who has all of it (`rebase` names every key with its stamp).

So if every write that was answered as done had reached a majority, the next leader's base contains it.

Called by the shells in `drivetrain.cluster.master` (`replica`, `registry`), which make changes durable before
they answer; the format on disk is in `core.map_log`.
Source: the map is Akka Distributed Data's LWWMap as Gearpump's masters use it, majority reads and writes
included; fence and base take the place of Raft's log matching.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec

from drivetrain.errors import DrivetrainError, InternalError


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
    """A base was announced before all of its entries have come."""

    code = "incomplete-base"


class Stamp(msgspec.Struct, frozen=True, order=True, array_like=True):
    """When and by whom an entry was written; compared in this order."""

    term: int
    counter: int
    master: str


class MapEntry(msgspec.Struct, frozen=True, array_like=True):
    """The newest of a key; `value` None is a tombstone."""

    key: str
    value: bytes | None
    stamp: Stamp


class MapDigest(msgspec.Struct, frozen=True, array_like=True):
    """What a replica holds: its base, and the stamp of each key, tombstones included."""

    base: int
    stamps: dict[str, Stamp]


class ReplicatedMap:
    """One replica."""

    def __init__(self) -> None:
        self._entries: dict[str, MapEntry] = {}
        self._fence = 0
        self._base = 0

    @property
    def fence(self) -> int:
        """The lowest term whose writes are taken."""
        return self._fence

    @property
    def base(self) -> int:
        """The term of the last takeover that is known here; 0 before the first."""
        return self._base

    @property
    def entries(self) -> Mapping[str, MapEntry]:
        """The newest entry of each key, tombstones included."""
        return MappingProxyType(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def values(self) -> dict[str, bytes]:
        """What is there, keyed by key."""
        return {key: entry.value for key, entry in self._entries.items() if entry.value is not None}

    def summary(self) -> int:
        """A checksum of what is here, equal on replicas that hold the same."""
        total = self._base
        for entry in self._entries.values():
            stamp = entry.stamp
            text = f"{entry.key}\0{stamp.term}\0{stamp.counter}\0{stamp.master}"
            total ^= zlib.crc32(text.encode()) << 16
        return total

    def digest(self) -> MapDigest:
        """What is here, without the values."""
        return MapDigest(self._base, {key: entry.stamp for key, entry in self._entries.items()})

    # ---- changes; each returns what changed, to be made durable

    def fence_off(self, term: int) -> bool:
        """Refuse what is older than `term` from now on; tell whether that is new. Raises `StaleTermError`."""
        self._require_current(term)
        is_new = term > self._fence
        self._fence = term
        return is_new

    def write(self, entries: Iterable[MapEntry], term: int) -> list[MapEntry]:
        """Take a leader's write; returns what is new here. Raises `StaleTermError`."""
        self.fence_off(term)
        return self.merge(entries)

    def merge(self, entries: Iterable[MapEntry]) -> list[MapEntry]:
        """Take entries of another replica; returns those that are new here."""
        new = []
        for entry in entries:
            mine = self._entries.get(entry.key)
            if entry.stamp.term >= self._base and (mine is None or mine.stamp < entry.stamp):
                self._entries[entry.key] = entry
                new.append(entry)
        return new

    def rebase(self, base: MapDigest) -> bool:
        """Let go of everything older than `base`; tell whether that is new.

        Raises `IncompleteBaseError`, changing nothing, when an entry of the base is missing here.
        """
        if base.base <= self._base:
            return False
        missing = self.missing(base)
        if missing:
            raise IncompleteBaseError(
                "entries of the base have not come yet",
                where=f"term {base.base}",
                got=f"{len(missing)} missing",
            )
        self._base = base.base
        self._fence = max(self._fence, base.base)
        self._entries = {k: e for k, e in self._entries.items() if e.stamp.term >= base.base}
        return True

    # ---- comparing

    def missing(self, other: MapDigest) -> list[str]:
        """The keys that another replica has newer than this one, sorted."""
        return sorted(
            key
            for key, stamp in other.stamps.items()
            if stamp.term >= self._base and (key not in self._entries or self._entries[key].stamp < stamp)
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
            if entry.stamp.term < self._base:
                raise InternalError(f"invariant 3: {key} is of term {entry.stamp.term}, base {self._base}")
        if self._base > self._fence:
            raise InternalError(f"invariant 3: base {self._base} above fence {self._fence}")

    def _require_current(self, term: int) -> None:
        if term < self._fence:
            raise StaleTermError(
                "a newer leader has taken over",
                fence=self._fence,
                expected=f"term {self._fence} or higher",
                got=f"term {term}",
            )


class Stamper:
    """Makes the stamps of one master's writes in one term: each higher than all before it."""

    def __init__(self, term: int, master: str) -> None:
        self.term: Final = term
        self._master: Final = master
        self._counter = 0

    def entry(self, key: str, value: bytes | None) -> MapEntry:
        """Stamp a write, or a deletion (None)."""
        self._counter += 1
        return MapEntry(key, value, Stamp(self.term, self._counter, self._master))


def newest(digests: Sequence[MapDigest]) -> dict[str, Stamp]:
    """The newest stamp of each key over a majority's digests; what is older than the newest base is void."""
    base = max((digest.base for digest in digests), default=0)
    found: dict[str, Stamp] = {}
    for digest in digests:
        for key, stamp in digest.stamps.items():
            if stamp.term >= base and (key not in found or found[key] < stamp):
                found[key] = stamp
    return found


def in_chunks(entries: Iterable[MapEntry], limit_bytes: int) -> list[tuple[MapEntry, ...]]:
    """Cut entries into groups that stay below the limit, if each of them does."""
    chunks: list[list[MapEntry]] = []
    size = 0
    for entry in entries:
        size += entry_size(entry)
        if not chunks or size > limit_bytes:
            chunks.append([])
            size = entry_size(entry)
        chunks[-1].append(entry)
    return [tuple(chunk) for chunk in chunks]


def entry_size(entry: MapEntry) -> int:
    """About how many bytes an entry takes on the wire and on disk."""
    return len(entry.key) + len(entry.value or b"") + 64

"""The set of paths that were seen before, for years of files, in a few bytes each.

The problem: a directory is listed repeatedly, and a file that was read must be recognised among
millions. A Python set of paths takes some 200 bytes for each.

The design: 16 bytes of a hash of each path, sorted, in two arrays; the newest ones wait in a small set. Two
paths with the same hash are not expected before 10^17 files.

Invariants:

1. A path that was added is seen; any other path is new.

Called by the file log.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

_RECENT = 16_384


class SeenPaths:
    """A growing set of paths; 16 bytes each."""

    def __init__(self) -> None:
        self._high: npt.NDArray[np.uint64] = np.empty(0, np.uint64)
        self._low: npt.NDArray[np.uint64] = np.empty(0, np.uint64)
        self._recent: set[bytes] = set()

    def add(self, paths: Iterable[str]) -> None:
        """Mark paths as seen."""
        self._recent.update(map(_digest, paths))
        if len(self._recent) >= max(_RECENT, len(self._high) // 16):
            self._sort_in([b"".join(self._recent)])
            self._recent = set()

    def add_many(self, parts: Iterable[Iterable[str]]) -> None:
        """Mark the paths of all parts as seen; sorts only once."""
        self._sort_in([b"".join(map(_digest, paths)) for paths in parts])

    def are_new(self, paths: Sequence[str]) -> list[bool]:
        """For each path, whether it was not seen before."""
        digests = [_digest(path) for path in paths]
        high, low = _halves(b"".join(digests))
        at = np.searchsorted(self._high, high)
        known = np.zeros(len(digests), np.bool_)
        while True:  # once, except for hashes that share one half
            inside = at < len(self._high)
            same = inside.copy()
            same[inside] = self._high[at[inside]] == high[inside]
            hit = same.copy()
            hit[same] = self._low[at[same]] == low[same]
            known |= hit
            if not (same & ~known).any():
                break
            at = at + 1
        return [
            not (known_there or digest in self._recent)
            for known_there, digest in zip(known, digests, strict=True)
        ]

    @property
    def nbytes(self) -> int:
        """The memory that the sorted hashes take."""
        return self._high.nbytes + self._low.nbytes

    def _sort_in(self, digests: list[bytes]) -> None:
        high, low = _halves(b"".join(digests))
        high, low = np.concatenate((self._high, high)), np.concatenate((self._low, low))
        order = np.argsort(high, kind="stable")
        self._high, self._low = high[order], low[order]


def _digest(path: str) -> bytes:
    return blake2b(path.encode("utf-8", "surrogateescape"), digest_size=16).digest()


def _halves(digests: bytes) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    both = np.frombuffer(digests, "<u8").reshape(-1, 2)
    return both[:, 0].astype(np.uint64), both[:, 1].astype(np.uint64)

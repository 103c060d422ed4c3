"""Which small pieces of a log to merge, so that there are few pieces and no record is rewritten often.

The problem: every batch appends a file of its own; after a month there are millions. Merging all of them
now and then would rewrite the whole log each time.

The design: pieces have a level. Once `fan` neighbours have the same level, they become one piece of the next,
so each record is rewritten once per level, and the number of levels is logarithmic in the number of appends.
A piece of half the largest size is final. The pieces before it can grow no more, and are merged as far as
sizes allow.

Invariants:

1. Only neighbours are merged, so order stays.
2. No merged piece is larger than `most`; nothing final is merged again.
3. When nothing is to be merged, there are fewer than `fan` pieces of a level after the last final one, and
   before it no two neighbours fit into one.

Called by the file log and by the dead letters, which carry out one merge at a time.
Source: log-structured merge trees (O'Neil et al., 1996), with sizes bounded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Piece:
    """The records [first, end) of a log, in one file of `size` (in whatever unit sizes are bounded)."""

    first: int
    end: int
    level: int
    size: int

    def holds(self, other: Piece) -> bool:
        """Whether this piece contains `other`."""
        within = self.first <= other.first and other.end <= self.end
        return within and (self.level, self.end - self.first) > (other.level, other.end - other.first)


def counting(pieces: Iterable[Piece]) -> list[Piece]:
    """The effective pieces, in order: those that no other piece contains."""
    kept: list[Piece] = []
    for piece in sorted(pieces, key=lambda one: (one.first, -one.end, -one.level)):
        if not (kept and kept[-1].holds(piece)):
            kept.append(piece)
    return kept


def next_merge(pieces: Sequence[Piece], *, fan: int, most: int) -> list[Piece]:
    """Neighbours to merge into one piece, of `merged_level`; empty when there is nothing to do.

    `pieces` are those that `counting` returns.
    """
    section: list[Piece] = []
    for piece in pieces:
        if 2 * piece.size < most:
            section.append(piece)
            continue
        if len(run := _fitting(section, most)) > 1:
            return run
        section = []
    level = max((piece.level for piece in section), default=0)
    while level >= 0:
        run = [piece for piece in section if piece.level == level]
        if len(run) >= fan:
            return _prefix(run[:fan], most)
        level -= 1
    return []


def merged_level(run: Sequence[Piece]) -> int:
    """The level of the piece that `run` is merged into."""
    return max(piece.level for piece in run) + 1


def _fitting(section: Sequence[Piece], most: int) -> list[Piece]:
    """The first two or more neighbours that fit into one piece."""
    for start in range(len(section) - 1):
        if len(run := _prefix(section[start:], most)) > 1:
            return run
    return []


def _prefix(run: Sequence[Piece], most: int) -> list[Piece]:
    size = 0
    for count, piece in enumerate(run):
        size += piece.size
        if size > most:
            return list(run[:count])
    return list(run)

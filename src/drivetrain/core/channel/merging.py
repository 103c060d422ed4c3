"""Which of many small pieces of a log are merged, so that there are few and none is written often.

The problem: something is appended for every batch, each time a file of its own. After a month there are
millions. To merge all of them now and then writes the whole log again each time.

The design: pieces have a level. Once `fan` neighbours have the same one they become one piece of the next, so
each record is written once per level, and the levels are few: logarithmic in the number of appends. A piece
of half the largest size is final. What lies before it can grow no more, and is merged as far as sizes allow.

Invariants:

1. Only neighbours are merged, so order stays.
2. No merged piece is larger than `most`; nothing final is merged again.
3. When nothing is to be merged, there are fewer than `fan` pieces of a level behind the last final one, and
   before it no two neighbours fit into one piece.

Called by the file log and by the dead letters, which do what it says, one merge at a time.
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
        """Whether `other` was merged into this one."""
        within = self.first <= other.first and other.end <= self.end
        return within and (self.level, self.end - self.first) > (other.level, other.end - other.first)


def counting(pieces: Iterable[Piece]) -> list[Piece]:
    """The pieces that count, in order: those that no other one holds."""
    kept: list[Piece] = []
    for piece in sorted(pieces, key=lambda one: (one.first, -one.end, -one.level)):
        if not (kept and kept[-1].holds(piece)):
            kept.append(piece)
    return kept


def next_merge(pieces: Sequence[Piece], *, fan: int, most: int) -> list[Piece]:
    """Neighbours that are to become one piece, of `merged_level`; none when there is nothing to do.

    `pieces` are those that count, in order.
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
    """The level of what `run` is merged to."""
    return max(piece.level for piece in run) + 1


def _fitting(section: Sequence[Piece], most: int) -> list[Piece]:
    """The first neighbours of which several fit into one piece."""
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

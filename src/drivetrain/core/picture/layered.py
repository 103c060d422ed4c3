"""Places boxes in rows: chooses their order and positions, so that links are short and rarely cross.

Problem: a graph drawn naively has crossing lines and overlapping boxes, and users should not have to install
a drawing program.

Design: the second half of Sugiyama's method (rows are given). Order: sweeps up and down, each box moving to
the mean position of its neighbours in the previous row. Position: the target of each box is the mean of its
neighbours; the nearest placement that keeps order and distance is found exactly by pooling neighbours that
would overlap (isotonic regression). Finally every chain of boxes is put on one vertical line where there is
enough space.

Invariants:
1. Boxes of a row never overlap: their edges are at least `gap` apart, in the order of the row.
2. The same input gives the same picture.

Called by `core.picture.scene`, first for the processors inside a fragment, then for the fragments. Sources:
Sugiyama, Tagawa and Toda (1981) for the sweeps; Barlow et al. (1972) for pooling.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)

_ORDER_SWEEPS: Final = 6
_POSITION_SWEEPS: Final = 90
_NEARLY_STRAIGHT: Final = 6.0
_HARDLY: Final = 0.01


@dataclass(frozen=True, slots=True)
class Link(Generic[K]):
    """A line from a box to one in the next row.

    `upper_dx` and `lower_dx` are its attachment points relative to the centres of the boxes; the larger its
    `weight`, the straighter it is.
    """

    upper: K
    lower: K
    upper_dx: float = 0.0
    lower_dx: float = 0.0
    weight: float = 1.0


def arrange(
    rows: Sequence[Sequence[K]], widths: Mapping[K, float], links: Iterable[Link[K]], gap: float
) -> dict[K, float]:
    """Return the x of every box's centre, keyed by box; the leftmost edge is at 0.

    `links` must join neighbouring rows only. Raises ValueError when one does not.
    """
    row_of = {key: number for number, row in enumerate(rows) for key in row}
    joined = sorted(links, key=lambda link: row_of[link.upper])
    for link in joined:
        if row_of[link.lower] != row_of[link.upper] + 1:
            raise ValueError(f"a link joins rows {row_of[link.upper]} and {row_of[link.lower]}")
    above, below = _neighbours(joined)
    ordered = _order([list(row) for row in rows], widths, above, below, gap)
    x: dict[K, float] = {}
    for row in ordered:
        x.update(_packed(row, widths, gap))
    for sweep in range(_POSITION_SWEEPS):
        downwards = sweep % 2 == 0
        # First one side at a time, which moves boxes far; then both, which evens positions out.
        even_out = sweep >= _POSITION_SWEEPS // 3
        for row in ordered if downwards else reversed(ordered):
            sides = [above, below] if even_out else [above] if downwards else [below]
            x.update(_settle(row, widths, [_wanted(key, sides, x) for key in row], gap))
    for chain in _chains(joined):
        _straighten(chain, ordered, row_of, widths, gap, x)
    left = min((x[key] - widths[key] / 2 for row in ordered for key in row), default=0.0)
    return {key: position - left for key, position in x.items()}


# For every box its neighbours in one direction, each with the distance at which the line between them is
# straight, and the weight of that line.
_Neighbours = dict[K, list[tuple[K, float, float]]]


def _neighbours(links: Iterable[Link[K]]) -> tuple[_Neighbours[K], _Neighbours[K]]:
    above: _Neighbours[K] = {}
    below: _Neighbours[K] = {}
    for link in links:
        shift = link.upper_dx - link.lower_dx
        above.setdefault(link.lower, []).append((link.upper, shift, link.weight))
        below.setdefault(link.upper, []).append((link.lower, -shift, link.weight))
    return above, below


def _order(
    rows: list[list[K]], widths: Mapping[K, float], above: _Neighbours[K], below: _Neighbours[K], gap: float
) -> list[list[K]]:
    best, fewest = [list(row) for row in rows], _crossings(rows, below)
    for sweep in range(_ORDER_SWEEPS):
        downwards = sweep % 2 == 0
        side = above if downwards else below
        x: dict[K, float] = {}
        for row in rows:
            x.update(_packed(row, widths, gap))
        for row in rows if downwards else reversed(rows):
            wanted = {key: _wanted(key, [side], x) for key in row}
            row.sort(key=wanted.__getitem__)
            x.update(_packed(row, widths, gap))
        crossings = _crossings(rows, below)
        if crossings < fewest:
            best, fewest = [list(row) for row in rows], crossings
    return best


def _crossings(rows: Sequence[Sequence[K]], below: _Neighbours[K]) -> int:
    count = 0
    for upper, lower in pairwise(rows):
        place = {key: number for number, key in enumerate(lower)}
        ends = [end for key in upper for end in sorted(place[other] for other, *_ in below.get(key, ()))]
        count += sum(one > other for number, one in enumerate(ends) for other in ends[number + 1 :])
    return count


def _wanted(key: K, sides: Sequence[_Neighbours[K]], x: Mapping[K, float]) -> tuple[float, float]:
    """The target position of a box and its weight: the weighted mean of its neighbours' targets.

    A nearly straight line counts for more, so that a line bends once instead of slightly everywhere.
    """
    wishes = []
    for side in sides:
        for other, shift, weight in side.get(key, ()):
            wish = x[other] + shift
            wishes.append((wish, weight / (abs(wish - x[key]) + _NEARLY_STRAIGHT)))
    total = sum(weight for _, weight in wishes)
    return (sum(wish * weight for wish, weight in wishes) / total, total) if wishes else (x[key], _HARDLY)


def _packed(row: Sequence[K], widths: Mapping[K, float], gap: float) -> dict[K, float]:
    """The row side by side, centred on 0."""
    x: dict[K, float] = {}
    left = -(sum(widths[key] for key in row) + gap * (len(row) - 1)) / 2
    for key in row:
        x[key] = left + widths[key] / 2
        left += widths[key] + gap
    return x


def _settle(
    row: Sequence[K], widths: Mapping[K, float], wanted: Sequence[tuple[float, float]], gap: float
) -> dict[K, float]:
    """The positions nearest to the wanted ones, in the least-squares sense, that keep order and distance."""
    offsets: list[float] = []
    offset = 0.0
    for number, key in enumerate(row):
        if number:
            offset += (widths[row[number - 1]] + widths[key]) / 2 + gap
        offsets.append(offset)
    # Without their offsets, positions must not decrease: pool those that would.
    pools: list[tuple[float, float, int]] = []
    for (wish, wish_weight), shift in zip(wanted, offsets, strict=True):
        mean, weight, size = wish - shift, wish_weight, 1
        while pools and pools[-1][0] > mean:
            other, other_weight, count = pools.pop()
            mean = (mean * weight + other * other_weight) / (weight + other_weight)
            weight, size = weight + other_weight, size + count
        pools.append((mean, weight, size))
    levels = [mean for mean, _, size in pools for _ in range(size)]
    return {key: level + shift for key, level, shift in zip(row, levels, offsets, strict=True)}


def _chains(links: Sequence[Link[K]]) -> list[list[Link[K]]]:
    """The longest runs of links whose inner boxes have one link above and one below."""
    downwards: dict[K, list[Link[K]]] = {}
    upwards: dict[K, list[Link[K]]] = {}
    for link in links:
        downwards.setdefault(link.upper, []).append(link)
        upwards.setdefault(link.lower, []).append(link)
    chains: dict[K, list[Link[K]]] = {}
    for link in links:  # links are ordered by row, so a chain is found at its top
        if len(downwards[link.upper]) > 1 or len(upwards[link.lower]) > 1:
            continue
        chain = chains.pop(link.upper, [])
        chains[link.lower] = [*chain, link]
    return list(chains.values())


def _straighten(
    chain: Sequence[Link[K]],
    rows: Sequence[Sequence[K]],
    row_of: Mapping[K, int],
    widths: Mapping[K, float],
    gap: float,
    x: dict[K, float],
) -> None:
    """Move a chain to a position where its links are straight, as near as neighbours allow."""
    shifts = {chain[0].upper: 0.0}
    for link in chain:
        shifts[link.lower] = shifts[link.upper] + link.upper_dx - link.lower_dx
    least, most = float("-inf"), float("inf")
    for key, shift in shifts.items():
        row = rows[row_of[key]]
        place = row.index(key)
        if place > 0:
            before = row[place - 1]
            least = max(least, x[before] + (widths[before] + widths[key]) / 2 + gap - shift)
        if place + 1 < len(row):
            after = row[place + 1]
            most = min(most, x[after] - (widths[after] + widths[key]) / 2 - gap - shift)
    if least > most:
        return
    middle = sorted(x[key] - shift for key, shift in shifts.items())[len(shifts) // 2]
    for key, shift in shifts.items():
        x[key] = min(most, max(least, middle)) + shift

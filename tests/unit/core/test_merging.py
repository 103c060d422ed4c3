from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from drivetrain.core.channel.merging import Piece, counting, merged_level, next_merge


def merged(run: list[Piece]) -> Piece:
    return Piece(run[0].first, run[-1].end, merged_level(run), sum(piece.size for piece in run))


def test_equal_pieces_become_few_and_each_record_is_written_a_few_times() -> None:
    fan, most, count = 4, 1 << 30, 5_000
    pieces: list[Piece] = []
    written = 0
    for number in range(count):
        pieces.append(Piece(number, number + 1, 0, 1))
        while run := next_merge(pieces, fan=fan, most=most):
            whole = merged(run)
            written += whole.size
            pieces = counting([*pieces, whole])
        assert len(pieces) < fan * (math.log(number + 1, fan) + 2)
    assert written <= count * (math.log(count, fan) + 1)


@given(
    st.lists(st.one_of(st.integers(1, 5), st.integers(1, 300)), max_size=150),
    st.integers(2, 6),
    st.integers(20, 200),
)
def test_whatever_the_sizes_order_stays_and_pieces_are_few(sizes: list[int], fan: int, most: int) -> None:
    pieces: list[Piece] = []
    for number, size in enumerate(sizes):
        pieces.append(Piece(number, number + 1, 0, size))
        while run := next_merge(pieces, fan=fan, most=most):
            assert len(run) > 1
            assert all(2 * piece.size < most for piece in run)
            whole = merged(run)
            assert whole.size <= most
            pieces = counting([*pieces, whole])
    assert [n for piece in pieces for n in range(piece.first, piece.end)] == list(range(len(sizes)))
    assert sum(piece.size for piece in pieces) == sum(sizes)
    large = 2 * sum(sizes) // most + 1
    assert len(pieces) <= 4 * large + fan * (math.log(len(sizes) + 1, 2) + 1)


@given(st.lists(st.integers(1, 5), min_size=3, max_size=60), st.data())
def test_after_a_crash_between_a_merge_and_its_deletions_only_the_merged_piece_counts(
    sizes: list[int], data: st.DataObject
) -> None:
    pieces: list[Piece] = []
    for number, size in enumerate(sizes):
        pieces.append(Piece(number, number + 1, 0, size))
        while run := next_merge(counting(pieces), fan=3, most=40):
            kept = data.draw(st.sets(st.sampled_from(run)))  # not deleted yet
            pieces = [piece for piece in pieces if piece not in run or piece in kept] + [merged(run)]
    assert [n for piece in counting(pieces) for n in range(piece.first, piece.end)] == list(range(len(sizes)))

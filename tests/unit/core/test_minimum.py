"""The smallest of many numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain.core.clock.minimum import Minimum
from drivetrain.errors import InternalError

numbers = st.integers(-5, 5)


@given(st.lists(numbers, min_size=1, max_size=20), st.lists(st.tuples(st.integers(0, 19), numbers)))
def test_it_always_says_what_a_scan_says(start: list[int], changes: list[tuple[int, int]]) -> None:
    minimum = Minimum(start)
    for position, number in changes:
        position %= len(start)
        start[position] = number
        minimum.put(position, number)
        minimum.check()
        assert minimum.smallest == min(start)
        assert minimum.first == start.index(min(start))
        assert minimum[position] == number


def test_no_numbers_are_refused() -> None:
    with pytest.raises(InternalError, match="no numbers"):
        Minimum([])

"""The account of a channel says what adding everything up would say."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drivetrain.core.channel.channel_lag import ChannelLag, EntrySize
from drivetrain.errors import InternalError

SIZES = st.builds(EntrySize, st.integers(0, 9), st.integers(0, 99), st.none() | st.integers(-5, 50))
STEPS = st.lists(
    st.tuples(st.just("add"), SIZES)
    | st.tuples(st.just("take"), st.integers(0, 40))
    | st.tuples(st.just("trim"), st.integers(0, 40)),
    max_size=60,
)


@dataclass
class Naive:
    """Keeps every entry and adds up when asked."""

    start: int
    position: int
    entries: dict[int, EntrySize] = field(default_factory=dict)
    taken: list[int] = field(default_factory=list)

    def take(self, position: int) -> None:
        for number in range(self.position, position):
            newest = self.entries[number].newest_ms
            if newest is not None:
                self.taken.append(newest)
        self.position = max(self.position, position)

    def sums(self) -> tuple[int, int, int]:
        waiting = [s for n, s in self.entries.items() if n >= max(self.position, self.start)]
        kept = [s for n, s in self.entries.items() if n >= self.start]
        return sum(s.rows for s in waiting), sum(s.bytes for s in waiting), sum(s.bytes for s in kept)


@given(start=st.integers(0, 5), steps=STEPS)
@settings(max_examples=100)
def test_the_sums_are_those_of_a_model_that_adds_everything_up(
    start: int, steps: list[tuple[str, object]]
) -> None:
    lag, naive = ChannelLag(start), Naive(start, start)
    for step, value in steps:
        if step == "add":
            assert isinstance(value, EntrySize)
            naive.entries[lag.end] = value
            lag.add(value)
        elif step == "take":
            assert isinstance(value, int)
            if value > lag.end:
                with pytest.raises(InternalError):
                    lag.take(value)
                continue
            lag.take(value)
            naive.take(value)
        else:
            assert isinstance(value, int)
            lag.trim(value)
            naive.start = max(naive.start, value)
            naive.position = max(naive.position, value)
        lag.check()
        assert (lag.lag_rows, lag.lag_bytes, lag.kept_bytes) == naive.sums()
        assert (lag.start, lag.position) == (naive.start, naive.position)
        assert lag.newest_taken_ms == max(naive.taken, default=None)


def test_an_entry_of_negative_size_is_refused() -> None:
    lag = ChannelLag(3)
    with pytest.raises(InternalError, match="entry 3 has a negative size"):
        lag.add(EntrySize(-1, 0, None))
    lag.check()
    assert lag.end == 3

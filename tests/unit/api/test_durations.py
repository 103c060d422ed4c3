"""Durations as they are written in a graph."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain.api.durations import duration_text, microseconds, milliseconds
from drivetrain.errors import GraphError


@pytest.mark.parametrize(
    ("text", "ms"),
    [("0 s", 0), ("5 ms", 5), ("10 s", 10_000), ("1.5 min", 90_000), ("2h", 7_200_000), ("1 d", 86_400_000)],
)
def test_a_duration_is_read_with_its_unit(text: str, ms: int) -> None:
    assert milliseconds(text, "the gap") == ms


@pytest.mark.parametrize("text", ["", "10", "s", "-1 s", "1 fortnight", "0.5 ms", "1 s 2", None, 10])
def test_what_is_no_duration_is_refused_saying_what_it_was_for(text: object) -> None:
    with pytest.raises(GraphError, match="cannot read the gap") as caught:
        milliseconds(text, "the gap")  # type: ignore[arg-type]
    assert caught.value.got == repr(text)
    assert '"10 s"' in str(caught.value)


@pytest.mark.parametrize("read", [milliseconds, microseconds])
def test_a_duration_of_more_than_ten_thousand_years_is_refused(read: Callable[[str, str], int]) -> None:
    assert read("3652500 d", "max_disorder") < 2**63
    for text in ("3652501 d", "1000000000000 d"):
        with pytest.raises(GraphError, match="max_disorder is too long") as caught:
            read(text, "max_disorder")
        assert (caught.value.got, caught.value.expected) == (repr(text), "at most 3652500 d (10,000 years)")


@given(st.integers(0, 10**12))
def test_what_is_told_is_read_again_as_the_same(ms: int) -> None:
    assert milliseconds(duration_text(ms), "x") == ms


@pytest.mark.parametrize(
    ("text", "us"), [("100 us", 100), ("0.5 ms", 500), ("1 microsecond", 1), ("1 h", 3_600_000_000)]
)
def test_a_short_duration_is_read_in_microseconds(text: str, us: int) -> None:
    assert microseconds(text, "every") == us


@pytest.mark.parametrize("text", ["0.5 us", "10", 10, "-1 us"])
def test_what_is_no_whole_number_of_microseconds_is_refused(text: object) -> None:
    with pytest.raises(GraphError, match="cannot read every") as caught:
        microseconds(text, "every")  # type: ignore[arg-type]
    assert '"100 us"' in str(caught.value)

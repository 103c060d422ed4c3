"""The models of curves, and what is drawn and written of them."""

from pathlib import Path

import pytest
from benchmarks.curves.curve import Curve, Figure, fitted
from benchmarks.curves.drawing import draw, points_of
from hypothesis import given
from hypothesis import strategies as st

X = (1, 7, 40, 900, 20_000)


@given(st.floats(0, 1e6), st.floats(0, 1e3))
def test_a_model_finds_the_parts_that_points_were_made_of(fixed: float, each: float) -> None:
    points = [(x, fixed + each * x) for x in X]
    if all(y > 1e-6 for _, y in points):
        model = fitted(points)
        assert all(model.at(x) == pytest.approx(y, rel=1e-3) for x, y in points)
        assert model.worst < 1e-3


def test_no_part_of_a_model_is_below_zero() -> None:
    falling, steep = fitted([(1, 10), (10, 8), (100, 6)]), fitted([(1, 1), (10, 100), (100, 10_000)])
    assert (falling.each, steep.fixed) == (0, 0)
    assert falling.fixed > 0
    assert steep.each > 0


def test_a_deviation_counts_by_its_share() -> None:
    # Half as much at the small end weighs as much as half as much at the large end.
    small_is_off, large_is_off = fitted([(1, 1.0), (1e6, 1e6)]), fitted([(1, 2.0), (1e6, 1e6)])
    assert small_is_off.at(1) == pytest.approx(1.0)
    assert large_is_off.at(1) == pytest.approx(2.0)


def test_a_picture_is_the_same_for_the_same_figures(tmp_path: Path) -> None:
    figures = (Figure("ms", "milliseconds"), Figure("absent", "not measured"))
    curve = Curve("some", "Some cost", "things", (1, 10), (1,), figures, lambda x, work: {})
    measured = {10: {"ms": 20.0}, 1: {"ms": 3.0}, 100: {"ms": 0.0}}
    assert points_of(figures[0], measured) == [(1, 3.0), (10, 20.0)]
    draw(curve, measured, tmp_path / "a" / "one.svg")
    draw(curve, measured, tmp_path / "a" / "two.svg")
    one = (tmp_path / "a" / "one.svg").read_bytes()
    assert one == (tmp_path / "a" / "two.svg").read_bytes()
    assert b"Some cost" in one or one.count(b"<path") > 10

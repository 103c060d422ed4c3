"""Boxes in rows never overlap, whatever the graph, and simple graphs come out straight."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain.core.picture.layered import Link, arrange
from drivetrain.core.picture.lettering import fitted, text_width


@st.composite
def layered_graphs(draw: st.DrawFn) -> tuple[list[list[int]], dict[int, float], list[Link[int]]]:
    sizes = draw(st.lists(st.integers(0, 5), min_size=1, max_size=5))
    rows: list[list[int]] = []
    for size in sizes:
        first = sum(len(row) for row in rows)
        rows.append(list(range(first, first + size)))
    widths = {key: draw(st.floats(1, 300)) for row in rows for key in row}
    links = [
        Link(
            upper,
            lower,
            draw(st.floats(-50, 50)),
            draw(st.floats(-50, 50)),
            draw(st.sampled_from([1.0, 8.0])),
        )
        for above, below in pairwise(rows)
        for upper in above
        for lower in below
        if draw(st.booleans())
    ]
    return rows, widths, links


@given(layered_graphs(), st.floats(0, 50))
def test_boxes_of_a_row_never_overlap_and_nothing_is_left_of_zero(
    graph: tuple[list[list[int]], dict[int, float], list[Link[int]]], gap: float
) -> None:
    rows, widths, links = graph
    x = arrange(rows, widths, links, gap)
    assert set(x) == set(widths)
    for row in rows:
        for one, other in pairwise(sorted(row, key=x.__getitem__)):
            assert x[other] - x[one] >= (widths[one] + widths[other]) / 2 + gap - 1e-6
    assert all(x[key] - widths[key] / 2 >= -1e-6 for key in x)


@given(layered_graphs())
def test_same_graph_gives_the_same_picture(
    graph: tuple[list[list[int]], dict[int, float], list[Link[int]]],
) -> None:
    rows, widths, links = graph
    assert arrange(rows, widths, links, 10) == arrange(rows, widths, links, 10)


def test_chain_of_boxes_is_straight() -> None:
    x = arrange([["a"], ["b"], ["c"]], {"a": 10, "b": 200, "c": 60}, [Link("a", "b"), Link("b", "c")], 10)
    assert x["a"] == pytest.approx(x["b"])
    assert x["b"] == pytest.approx(x["c"])


def test_chain_beside_a_wide_box_is_straight_too() -> None:
    rows = [["top"], ["a", "lane1"], ["b", "lane2"], ["c", "lane3"]]
    widths = {"top": 50.0, "a": 60.0, "b": 60.0, "c": 300.0, "lane1": 10.0, "lane2": 10.0, "lane3": 10.0}
    ends = [("top", "a"), ("a", "b"), ("b", "c"), ("top", "lane1"), ("lane1", "lane2"), ("lane2", "lane3")]
    x = arrange(rows, widths, [Link(*pair) for pair in ends], 20)
    assert x["a"] == pytest.approx(x["b"])
    assert x["b"] == pytest.approx(x["c"])
    assert x["lane1"] == pytest.approx(x["lane3"])


def test_rows_are_reordered_so_that_two_chains_do_not_cross() -> None:
    x = arrange([["a", "b"], ["d", "c"]], dict.fromkeys("abcd", 10.0), [Link("a", "c"), Link("b", "d")], 10)
    assert (x["a"] < x["b"]) == (x["c"] < x["d"])


def test_link_is_straight_where_it_is_attached() -> None:
    x = arrange([["a"], ["b"]], {"a": 100, "b": 100}, [Link("a", "b", upper_dx=30, lower_dx=-10)], 10)
    assert x["a"] + 30 == pytest.approx(x["b"] - 10)


def test_link_that_skips_a_row_is_refused() -> None:
    with pytest.raises(ValueError, match="joins rows 0 and 2"):
        arrange([["a"], ["b"], ["c"]], dict.fromkeys("abc", 1.0), [Link("a", "c")], 1)


def test_a_text_that_is_too_wide_is_cut_where_its_ellipsis_still_fits() -> None:
    assert fitted("short", 12, 500) == "short"
    cut = fitted("the name of a processor", 12, 70)
    kept = len(cut) - 1
    assert cut == "the name of a processor"[:kept].rstrip() + "…"
    assert text_width(cut, 12) <= 70 < text_width("the name of a processor"[: kept + 2] + "…", 12)
    assert fitted("x", 12, 0) == "…"

"""Aggregations: what they record and how the plan tells them."""

from __future__ import annotations

import pytest

from drivetrain.api import agg, col
from drivetrain.api.states.monoids import Aggregation


@pytest.mark.parametrize(
    ("aggregation", "told", "column"),
    [
        (agg.count(), "count()", "count(1)"),
        (agg.count("delay"), "count(delay)", "count(delay)"),
        (agg.sum("delay"), "sum(delay)", "sum(delay)"),
        (agg.min(col("delay")), "min(delay)", "min(delay)"),
        (agg.max("delay + 1"), "max(delay + 1)", "max(delay + 1)"),
        (agg.mean("delay"), "mean(delay)", "avg(delay)"),
        (agg.variance("delay"), "variance(delay)", "var_samp(delay)"),
        (agg.variance("delay", sample=False), "variance(delay)", "var_pop(delay)"),
        (agg.collect_set("c"), "collect_set(c)", "array_sort(collect_set(c))"),
        (agg.first("c"), "first(c)", "min_by(c, struct(__ts, c))"),
        (agg.last("c"), "last(c)", "max_by(c, struct(__ts, c))"),
        (agg.distinct_count("c"), "distinct_count(c)", "hll_sketch_estimate(hll_sketch_agg(c, 12))"),
        (agg.frequent("c", 3), "frequent(c, 3)", "call_function('approx_top_k', c, 3)"),
    ],
)
def test_an_aggregation_records_sparks_and_is_told_in_the_users_words(
    aggregation: Aggregation, told: str, column: str
) -> None:
    assert str(aggregation) == told
    assert str(aggregation.column) == column


def test_a_ratio_divides_without_failing_on_zero() -> None:
    ratio = agg.sum("a") / agg.count()
    assert str(ratio) == "sum(a) / count()"
    assert str(ratio.column) == "try_divide(sum(a), count(1))"


def test_the_largest_k_are_kept_with_what_they_were_ordered_by() -> None:
    assert str(agg.top_k("name", by="delay", k=3)) == "top_k(name by delay, 3)"
    assert "max_by" in str(agg.top_k("name", by="delay", k=3).column)


def test_quantiles_are_asked_at_their_ranks() -> None:
    assert "[0.5, 0.9]" in str(agg.quantiles("delay", [0.5, 0.9]).column).replace(
        "array(0.5, 0.9)", "[0.5, 0.9]"
    )

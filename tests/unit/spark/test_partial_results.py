"""Which aggregations may be computed from partial results."""

from __future__ import annotations

import pytest

from drivetrain import F, agg, col, windows
from drivetrain.api.operations import Aggregate
from drivetrain.api.states.monoids import Aggregation
from drivetrain.api.windows import Window
from drivetrain.spark.compile.partial_results import partial_values, plain_name
from drivetrain.spark.connector.reduction import PartialValue

HOUR = windows.tumbling("1 h")


def of(*aggregations: Aggregation, window: Window = HOUR) -> tuple[PartialValue, ...] | None:
    named = tuple((f"a{n}", aggregation) for n, aggregation in enumerate(aggregations))
    return partial_values(Aggregate((), window, named))


def test_counts_sums_and_extremes_of_columns_have_partial_results() -> None:
    assert of(agg.count(), agg.count("k"), agg.sum("n"), agg.min(col("n")), agg.max("N_2")) == (
        PartialValue("count"),
        PartialValue("count", "k"),
        PartialValue("sum", "n"),
        PartialValue("min", "n"),
        PartialValue("max", "N_2"),
    )
    assert of(Aggregation(F.sum("n"), "sum")) == (PartialValue("sum", "n"),)


@pytest.mark.parametrize(
    "other",
    [
        agg.mean("n"),
        agg.sum("n * 2"),
        agg.sum("a.b"),
        agg.sum("n") / agg.count(),
        agg.max("current_timestamp"),
        agg.count("null"),
        Aggregation(F.count(F.lit(None)), "count"),
    ],
    ids=str,
)
def test_one_other_aggregation_leaves_all_to_messages(other: Aggregation) -> None:
    assert of(agg.count(), other) is None


def test_only_tumbling_windows_have_partial_results() -> None:
    for window in (windows.sliding("1 h", "30 min"), windows.session("1 h"), windows.everything()):
        assert of(agg.count(), window=window) is None


def test_a_plain_name_is_a_column_and_nothing_else() -> None:
    names = [
        plain_name(column) for column in (col("k"), col("__ts"), col("a b"), col("k") + 1, 3, lambda k: k)
    ]
    assert names == ["k", "__ts", None, None, None, None]

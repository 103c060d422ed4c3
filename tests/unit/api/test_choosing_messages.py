"""Top, sample and union as they are declared: their place in the plan, and what they refuse."""

from __future__ import annotations

from typing import Any

import pytest

from drivetrain import Application, F, Stream, sinks, sources, windows
from drivetrain.api.operations import Sample, Top, Union
from drivetrain.core.plan.planner import plan
from drivetrain.core.plan.realtime import require_realtime
from drivetrain.errors import GraphError


def sales() -> tuple[Application, Stream[Any]]:
    app = Application("sales")
    schema = "item string, price double, sold timestamp"
    return app, app.read(sources.csv("in/", schema=schema, event_time="sold"))


def test_top_is_a_stateful_native_operator_with_late_messages() -> None:
    app, stream = sales()
    top = stream.group_by(day=F.to_date("sold")).window(windows.tumbling("1 d")).top(3, by="price * 2")
    top.sink(sinks.none(), name="out")
    top.late.sink(sinks.none(), name="too_late")
    made = plan(app.graph())
    operation = made.graph.nodes["top"].operation
    assert isinstance(operation, Top)
    assert operation.keeps_state
    assert not operation.emits_only_at_end
    shown = made.operators["top"]
    assert (shown.how, shown.text) == ("native", "top 3 by price * 2 by day in tumbling(1 d)")
    assert made.graph.nodes["late"].inputs == ("read",)


@pytest.mark.parametrize("tasks", [0, -1, 2.5, True, "3", 10**9])
def test_repartition_needs_a_number_of_tasks(tasks: Any) -> None:
    _, stream = sales()
    with pytest.raises(GraphError, match=r"whole number from 1 to 100000") as caught:
        stream.repartition(tasks)
    assert __file__.rsplit("/", 1)[-1] in str(caught.value)


def test_repartition_is_native_and_an_obstacle_to_real_time() -> None:
    app, stream = sales()
    stream.repartition(4, "item").sink(sinks.none())
    made = plan(app.graph())
    shown = made.operators["repartition"]
    assert (shown.how, shown.text) == ("native", "over 4 tasks by item")
    app = Application("quick", latency="realtime")
    kafka = app.read(sources.kafka("broker:1", topic="t", schema="item string", format="json"))
    kafka.repartition(4).sink(sinks.kafka("broker:1", topic="u", guarantee="at least once"))
    made = plan(app.graph())
    with pytest.raises(GraphError, match="moves messages between tasks"):
        require_realtime(made, made.fragments[0])


@pytest.mark.parametrize("n", [0, -1, 10_001, 2.5, True, "3"])
def test_top_needs_a_number_of_messages(n: Any) -> None:
    _, stream = sales()
    with pytest.raises(GraphError, match=r"whole number from 1 to 10000") as caught:
        stream.window(windows.tumbling("1 d")).top(n, by="price")
    assert __file__.rsplit("/", 1)[-1] in str(caught.value)


def test_a_key_of_top_cannot_have_the_name_of_a_column_that_it_adds() -> None:
    _, stream = sales()
    with pytest.raises(GraphError, match="both called 'rank'"):
        stream.group_by(rank="price").top(1, by="price")


def test_top_in_a_window_with_lateness_is_refused_by_the_planner() -> None:
    app, stream = sales()
    patient = windows.tumbling("1 d", allowed_lateness="1 h", emission="accumulating")
    stream.window(patient).top(3, by="price").sink(sinks.none())
    with pytest.raises(GraphError, match="top cannot allow lateness"):
        plan(app.graph())


def test_a_sample_is_described_and_counted() -> None:
    app, stream = sales()
    stream.sample(0.05, "item", seed=3).sample(1, name="all").sink(sinks.none())
    made = plan(app.graph())
    assert made.operators["sample"].text == "0.05 of the keys of item, seed 3"
    assert made.operators["all"].text == "1 of the messages, seed 0"
    operation = made.graph.nodes["sample"].operation
    assert isinstance(operation, Sample)
    assert operation.is_counted


@pytest.mark.parametrize("fraction", [-0.1, 1.1, True, "0.1", float("nan")])
def test_a_sample_is_a_part_of_the_messages(fraction: Any) -> None:
    _, stream = sales()
    with pytest.raises(GraphError, match="not a part of the messages"):
        stream.sample(fraction)


@pytest.mark.parametrize("seed", [2**63, -(2**63) - 1, 1.5, True])
def test_a_seed_is_a_number_of_64_bits(seed: Any) -> None:
    _, stream = sales()
    with pytest.raises(GraphError, match="not a seed"):
        stream.sample(0.5, seed=seed)


def test_a_sample_takes_names_of_columns() -> None:
    _, stream = sales()
    with pytest.raises(GraphError, match="sample needs names of columns"):
        stream.sample(0.5, F.lower("item"))  # type: ignore[arg-type]


def test_a_union_fills_columns_with_null_or_not_at_all() -> None:
    app, stream = sales()
    fewer = stream.drop("price")
    stream.union(fewer, missing="null", name="filled").sink(sinks.none())
    assert app.graph().nodes["filled"].operation == Union(fills=True)
    assert plan(app.graph()).operators["filled"].text == "all inputs, missing columns null"
    with pytest.raises(GraphError, match='missing="null", or nothing'):
        stream.union(fewer, missing="zero")  # type: ignore[arg-type]

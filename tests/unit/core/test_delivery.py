"""The delivery mode of an application, and what its sinks give in it."""

from __future__ import annotations

import pytest

from drivetrain.api import Application, sinks, sources
from drivetrain.api.graphs.graph import Delivery, Graph
from drivetrain.core.plan.plan import Plan
from drivetrain.core.plan.planner import plan
from drivetrain.errors import GraphError


def test_a_delivery_mode_limits_what_every_sink_gives() -> None:
    def graph(delivery: Delivery) -> Graph:
        app = Application("modes", delivery=delivery)
        stream = app.read(sources.generate(rows=1))
        stream.sink(sinks.parquet("out"), name="files")
        stream.sink(sinks.console(), name="screen")
        return app.graph()

    def given(plan: Plan) -> list[str]:
        return [*(sink.guarantee for sink in plan.sinks), plan.guarantee]

    assert given(plan(graph("exactly once"))) == ["exactly once", "at least once", "at least once"]
    assert given(plan(graph("at least once"))) == ["at least once"] * 3
    assert given(plan(graph("at most once"))) == ["at most once"] * 3
    overruled = plan(graph("exactly once"), delivery="at most once")
    assert given(overruled) == ["at most once"] * 3
    assert (overruled.delivery, overruled.as_dict()["delivery"]) == ("at most once", "at most once")
    assert "at most once" in overruled.sinks[0].why
    with pytest.raises(GraphError, match="unknown delivery"):
        Application("modes", delivery="perhaps")  # type: ignore[arg-type] # that is the mistake

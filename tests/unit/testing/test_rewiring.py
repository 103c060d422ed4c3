"""A test runs the application's own plan: nothing that is listed changes where fragments are cut."""

from __future__ import annotations

from typing import Any

import pytest

from drivetrain import Application, agg, partitioners, sinks, sources, windows
from drivetrain.api.operations import Write
from drivetrain.api.sinks import MemorySink
from drivetrain.connectors.in_process.sent_messages import SentMessages
from drivetrain.core.plan.planner import plan
from drivetrain.crash_points import CrashPoint, maybe_crash
from drivetrain.errors import UserError
from drivetrain.testing import TestRun
from drivetrain.testing.failures import Failures, InjectedFailureError
from drivetrain.testing.rewiring import Setup, rewired

SCHEMA = "at timestamp, item string, amount bigint"


def columns_of(source: Any, id: str) -> str:
    return str(source.schema)


def shop() -> Application:
    app = Application("shop")
    orders = app.read(
        sources.json("orders/", schema=SCHEMA, event_time="at", max_disorder="1 min"), name="orders"
    )
    paid = orders.filter("amount > 0", name="paid")
    hourly = paid.group_by("item").window(windows.tumbling("1 h")).aggregate(step="hourly", n=agg.count())
    hourly.sink(sinks.parquet("out/"), name="out")
    hourly.filter("n > 3", name="busy").group_by("item").count(name="counts").sink(
        sinks.none(), name="counted"
    )
    kinds = app.table(sources.csv("kinds.csv", schema="item string, kind string"), name="kinds")
    hourly.join(kinds, on="item", name="kinded").sink(sinks.console(), name="shown")
    return app


def trunks(graph: Any) -> list[Any]:
    return [(f.id, f.trunk) for f in plan(graph).fragments]


def test_the_plan_stays_and_what_it_shows_is_listed() -> None:
    graph = shop().graph()
    made = rewired(graph, Setup({"kinds": [("tea", "drink")]}), columns_of, "/in", "t")
    assert trunks(made.graph) == trunks(graph)
    assert made.lists == {
        "out": "t/out",
        "counted": "t/counted",
        "shown": "t/shown",
        "hourly": "t/out",
        "busy": "t/busy",
        "counts": "t/counted",
        "kinded": "t/shown",
    }
    assert made.columns == {"orders": SCHEMA}
    for id, node in made.graph.nodes.items():
        operation = node.operation
        if operation.stream_source is not None:
            assert isinstance(operation.stream_source, SentMessages), id
            assert repr(operation.assigned_time) == repr(graph.nodes[id].operation.assigned_time)
        if isinstance(operation, Write):
            assert isinstance(operation.sink, MemorySink), id


def test_what_is_watched_is_listed_though_the_plan_changes() -> None:
    graph = shop().graph()
    tables = {"kinds": [("tea", "drink")]}
    made = rewired(graph, Setup(tables, watched=frozenset({"paid"})), columns_of, "/in", "t")
    assert made.lists["paid"] == "t/paid"
    assert trunks(made.graph) != trunks(graph)
    late = rewired(graph, Setup(tables, late=frozenset({"hourly"})), columns_of, "/in", "t")
    assert late.late_lists == {"hourly": "t/late-of-hourly"}


def test_real_sinks_and_tables_stay() -> None:
    graph = shop().graph()
    made = rewired(graph, Setup(real=frozenset({"kinds", "out"})), columns_of, "/in", "t")
    assert made.graph.nodes["kinds"].operation == graph.nodes["kinds"].operation
    assert made.graph.nodes["out"].operation == graph.nodes["out"].operation
    assert made.lists["out"] == "t/out"
    assert plan(made.graph).fragments


def test_a_sink_keeps_its_partitioner() -> None:
    app = Application("routed")
    from drivetrain import Processor

    read = Processor(sources.text("in/"), name="read")
    write = Processor(sinks.none(), parallelism=3, name="write")
    app.connect(read, write, partitioners.hash("value"))
    made = rewired(app.graph(), Setup(), lambda source, id: "value string", "/in", "t")
    operation = made.graph.nodes["write"].operation
    assert isinstance(operation, Write)
    assert (operation.parallelism, operation.partitioner) == (3, partitioners.hash("value"))


def test_names_that_the_application_does_not_have_are_errors() -> None:
    graph = shop().graph()
    with pytest.raises(UserError, match=r"no processor 'hurly'[\s\S]*hourly"):
        rewired(graph, Setup(watched=frozenset({"hurly"})), columns_of, "/in", "t")
    with pytest.raises(UserError, match=r"no source or table 'order'[\s\S]*orders, kinds"):
        TestRun(shop(), {"order": []})
    with pytest.raises(UserError, match="not open"):
        TestRun(shop()).send("orders", [])


def test_a_failure_happens_once_at_its_time() -> None:
    failures = Failures()
    failures.arm("after-sink", 2)
    maybe_crash(CrashPoint.AFTER_SINK)
    maybe_crash(CrashPoint.BEFORE_SINK)
    with pytest.raises(UserError, match="never reached after-sink"):
        failures.require_all_happened()
    with pytest.raises(InjectedFailureError) as caught:
        maybe_crash(CrashPoint.AFTER_SINK)
    maybe_crash(CrashPoint.AFTER_SINK)
    failures.require_all_happened()
    assert failures.explains(caught.value)
    assert not failures.explains(RuntimeError("after-sink"))
    failures.close()


def test_a_failure_that_was_taken_back_does_not_happen() -> None:
    failures = Failures()
    failures.arm("before-commit")
    failures.close()
    maybe_crash(CrashPoint.BEFORE_COMMIT)
    for point, time in (("at-noon", 1), ("before-commit", 0)):
        with pytest.raises(UserError):
            failures.arm(point, time)

"""The order in which a trunk opens its inputs is that of the leaves of Spark's plan."""

from __future__ import annotations

from drivetrain import Application, Stream, agg, sinks, sources, windows
from drivetrain.core.plan.planner import plan
from drivetrain.spark.prepare.plan_order import in_plan_order


def order_of(app: Application, last: Stream) -> list[str]:
    """The order in the fragment that `last` is in."""
    last.sink(sinks.none())
    made = plan(app.graph())
    fragment = next(one for one in made.fragments if last.id in one.trunk)
    return [channel or node.id for node, channel in in_plan_order(made, fragment)]


def read(app: Application, name: str) -> Stream:
    return app.read(sources.items([(1, 2)], schema="k bigint, ts bigint"), name=name)


def test_a_union_is_read_in_the_order_of_its_inputs_not_in_that_of_the_program() -> None:
    app = Application("order")
    first, second = read(app, "first"), read(app, "second")
    assert order_of(app, second.union(first, name="both")) == ["second", "first", "both"]


def test_event_time_is_given_before_the_next_input_is_opened() -> None:
    app = Application("order")
    first, second = (read(app, name) for name in ("first", "second"))
    timed = [stream.event_time("ts", name=f"timed-{i}") for i, stream in enumerate((first, second))]
    counts = (
        timed[0]
        .union(timed[1], name="both")
        .window(windows.tumbling("1 s"))
        .aggregate(step="n", n=agg.count())
    )
    assert order_of(app, counts) == ["first", "timed-0", "second", "timed-1", "both", "n"]


def test_a_channel_is_opened_where_the_plan_reads_it() -> None:
    app = Application("order")
    plain = read(app, "plain").event_time("ts", name="timed")
    cut = read(app, "cut").event_time("ts").select("k", m="1").cut()
    found = order_of(app, cut.join(plain, on="k", within="1 s", name="joined"))
    assert found == ["select--joined", "timed--joined", "joined"]

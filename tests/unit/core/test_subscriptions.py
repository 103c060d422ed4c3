"""The subscriptions of other applications, while an application changes."""

from __future__ import annotations

import pytest

from drivetrain.api import Application, agg, sinks, sources, windows
from drivetrain.api.graphs.graph import Graph
from drivetrain.code.fingerprint import fingerprint
from drivetrain.core.change.change_options import ChangeOptions
from drivetrain.core.change.difference import ChangeKind, difference, touched
from drivetrain.core.change.graph_version import GraphVersion, SubscriptionRecord, version_of
from drivetrain.core.change.subscriptions import (
    carried_over,
    is_stream,
    refuse_checkpoints,
    refuse_read,
    with_subscription,
    without_subscriptions,
)
from drivetrain.core.plan.planner import plan
from drivetrain.errors import UserError

HOURS = SubscriptionRecord("report-1.hours", "hourly", "report-1", "hours", "k1")


def shop(more: str = "n > 0", *, has_hourly: bool = True) -> Graph:
    app = Application("shop")
    read = app.read(
        sources.json("in", schema="at timestamp, n long", event_time="at", watch=True), name="read"
    )
    read.filter("n > 5", name="large").sink(sinks.none(), name="large_out")
    if has_hourly:
        hourly = read.window(windows.tumbling("1 h")).aggregate(n=agg.count(), step="hourly")
        hourly.filter(more, name="some").sink(sinks.none(), name="out")
    return app.graph()


def version(graph: Graph) -> GraphVersion:
    return version_of(plan(graph), fingerprint)


def test_a_subscription_is_a_channel_of_the_fragment_of_its_stream() -> None:
    made = plan(with_subscription(shop(), HOURS))
    (channel,) = made.subscriptions
    assert (channel.id, channel.producer, channel.producer_fragment, channel.consumer_fragment) == (
        "hourly--report-1.hours.k1",
        "hourly",
        "hourly",
        "report-1.hours",
    )
    assert channel in made.outputs("hourly")
    assert channel not in made.channels
    assert made.channel(channel.id) is channel
    assert version(made.graph).subscriptions == (HOURS,)
    assert [f.id for f in made.fragments] == [f.id for f in plan(shop()).fragments]


def test_subscribing_touches_only_the_fragment_of_the_stream() -> None:
    before, after = version(shop()), version(with_subscription(shop(), HOURS))
    assert touched(before, after) == {"hourly"}
    found = difference(before, after, options=ChangeOptions(even_if_read=True))
    assert {c.id: c.fate for c in found.changes if c.fate is not ChangeKind.KEPT} == {
        HOURS.id: ChangeKind.STARTED
    }


def test_a_graph_from_a_file_gets_the_subscriptions_in_force_and_no_others() -> None:
    other = SubscriptionRecord("report-1.hours", "hourly", "report-1", "hours", "k2", 60_000)
    made = carried_over(with_subscription(shop(), HOURS), [other])
    assert version(made).subscriptions == (other,)
    assert carried_over(made, []).nodes.keys() == shop().nodes.keys()
    assert without_subscriptions(made, [HOURS.id]).nodes.keys() == shop().nodes.keys()


def test_a_stream_that_others_read_does_not_go_unless_it_is_said() -> None:
    with pytest.raises(UserError, match="no longer there") as refused:
        carried_over(shop(has_hourly=False), [HOURS])
    assert refused.value.where == "hourly"
    assert "report-1/hours reads hourly" in str(refused.value.got)
    made = carried_over(shop(has_hourly=False), [HOURS], even_if_read=True)
    assert version(made).subscriptions == ()


def test_what_a_stream_is_made_of_does_not_change_unless_it_is_said() -> None:
    some = SubscriptionRecord("report-1.some", "some", "report-1", "some", "k1")
    before = version(with_subscription(shop(), some))
    beside = version(with_subscription(shop("n > 0"), some))
    refuse_read(before, beside)
    changed = version(with_subscription(shop("n > 1"), some))
    with pytest.raises(UserError, match="would be made in another way"):
        refuse_read(before, changed)
    shown = difference(before, version(shop("n > 1")))
    assert {c.id for c in shown.refused} == {some.id}
    assert not difference(before, version(shop("n > 1")), options=ChangeOptions(even_if_read=True)).refused


def test_an_application_that_others_read_does_not_begin_checkpoints() -> None:
    refuse_checkpoints(shop())
    with pytest.raises(UserError, match="cannot begin to publish with checkpoints") as refused:
        refuse_checkpoints(with_subscription(shop(), HOURS))
    assert refused.value.got == "it is read by report-1"
    assert 'checkpoint.mode="off"' in str(refused.value.remedy)


def test_a_comparison_with_a_file_knows_the_readers_that_the_file_does_not_name() -> None:
    before = version(with_subscription(shop(), HOURS))
    assert difference(before, version(shop())).is_empty
    gone = difference(before, version(shop(has_hourly=False)))
    assert HOURS.id in {c.id for c in gone.refused}


def test_only_processors_that_emit_are_streams() -> None:
    nodes = with_subscription(shop(), HOURS).nodes
    assert [id for id in nodes if is_stream(nodes, id)] == ["read", "large", "hourly", "some"]
    assert not is_stream(nodes, "nowhere")

"""What becomes of processors between two versions, and when state does not allow it."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import msgspec
from graph_shapes import aggregate, filter_, graph, graphs, map_, node, read, write
from hypothesis import given, settings
from hypothesis import strategies as st

from drivetrain import Application, KeyedTask, ValueState, sinks, sources
from drivetrain.api import col, windows
from drivetrain.api.graph_edits import replaced
from drivetrain.api.graphs.graph import Graph, Node
from drivetrain.api.operations import EventTime, JoinStream, Operation
from drivetrain.core.change.change_options import ChangeOptions
from drivetrain.core.change.difference import (
    ChangeKind,
    Difference,
    difference,
    live_change,
    touched,
)
from drivetrain.core.change.graph_version import GraphVersion, shapes_fit, state_fits, state_shape, version_of
from drivetrain.core.change.trunks import has_same_trunk
from drivetrain.core.plan.planner import plan
from nightly_run import examples


def kind_of(operation: Operation) -> str:
    return type(operation).__name__


def version(given: Graph) -> GraphVersion:
    return version_of(plan(given), kind_of)


def shop(*more: Node, counted: Operation | None = None, through: Operation | None = None) -> Graph:
    return graph(
        node("read", read()),
        node("counted", counted or aggregate(), "read"),
        node("shown", through or map_(), "counted"),
        node("out", write(), "shown"),
        *more,
    )


def fates(found: Difference) -> dict[str, ChangeKind]:
    return {change.id: change.fate for change in found.changes}


def test_the_same_graph_keeps_everything() -> None:
    found = difference(version(shop()), version(shop()))
    assert found.is_empty
    assert not found.refused


def test_a_branch_may_be_new_and_another_one_gone() -> None:
    found = difference(version(shop()), version(shop(node("more", write(), "counted"))))
    assert fates(found)["more"] is ChangeKind.STARTED
    assert not found.refused
    back = difference(version(shop(node("more", write(), "counted"))), version(shop()))
    assert fates(back)["more"] is ChangeKind.STOPPED
    assert not back.refused
    assert back.changes[-1].after is None


def test_a_branch_is_swapped_for_its_kind_its_arguments_its_code_or_its_input() -> None:
    assert fates(difference(version(shop()), version(shop(through=filter_()))))["shown"] is ChangeKind.SWAPPED
    coded = version_of(plan(shop()), lambda operation: kind_of(operation) + "!")
    by_code = difference(version(shop()), coded)
    assert {id for id, fate in fates(by_code).items() if fate is ChangeKind.SWAPPED} == {"shown", "out"}
    assert {id for id, fate in fates(by_code).items() if fate is ChangeKind.RESTARTED} == {"read", "counted"}
    assert not by_code.refused
    assert "its state stays" in next(c.why for c in by_code.changes if c.id == "counted")
    elsewhere = shop(node("more", write(), "shown"))
    moved = difference(version(shop(node("more", write(), "counted"))), version(elsewhere))
    assert (
        next(c for c in moved.changes if c.id == "more").why == "it reads from shown, no longer from counted"
    )


def test_other_state_is_refused_and_names_what_the_state_was_made_with() -> None:
    found = difference(version(shop()), version(shop(counted=aggregate(windows.tumbling("2 h")))))
    assert [change.id for change in found.refused] == ["counted"]
    assert "tumbling(1 h)" in found.refused[0].why
    assert "tumbling(2 h)" in str(found.refused[0].after)


def test_a_new_query_starts_while_the_application_runs_and_one_that_is_gone_drains() -> None:
    more = (node("again", aggregate(), "counted"), node("end", write(), "again"))
    old, new = version(shop()), version(shop(*more))
    found = difference(old, new)
    assert {change.id: change.fragment for change in found.while_it_runs} == {
        "again": "again",
        "end": "again",
    }
    assert {change.fate for change in found.while_it_runs} == {ChangeKind.STARTED}
    back = difference(new, old)
    assert {change.id for change in back.changes if change.fate is ChangeKind.DRAINED} == {"again", "end"}
    assert not found.refused
    assert not back.refused
    assert touched(old, new) == {"counted"}, "its producer gets a channel, though none of its code differs"
    change = live_change(old, msgspec.structs.replace(new, number=2))
    assert (change.starts, change.leaves, change.touched) == (("again",), (), {"again", "counted"})
    assert new.channel_producers("again") == {"counted--again": "counted"}


def test_other_keys_or_windows_under_another_name_drain_the_old_fragment_and_start_a_new_one() -> None:
    def counting(name: str, size: str) -> GraphVersion:
        again = node(name, aggregate(windows.tumbling(size)), "counted")
        return version(shop(again, node(f"{name}_out", write(), name)))

    found = difference(counting("daily", "1 d"), counting("weekly", "7 d"))
    assert not found.refused
    assert fates(found) | {"read": ChangeKind.KEPT} == {
        "read": ChangeKind.KEPT,
        "counted": ChangeKind.KEPT,
        "shown": ChangeKind.KEPT,
        "out": ChangeKind.KEPT,
        "weekly": ChangeKind.STARTED,
        "weekly_out": ChangeKind.STARTED,
        "daily": ChangeKind.DRAINED,
        "daily_out": ChangeKind.DRAINED,
    }
    assert [c.id for c in difference(counting("daily", "1 d"), counting("daily", "7 d")).refused] == ["daily"]


def test_no_fragment_starts_or_goes_in_an_application_that_makes_checkpoints() -> None:
    more = (node("again", aggregate(), "counted"), node("end", write(), "again"))
    found = difference(version(shop()), version(shop(*more)), has_checkpoints=True)
    assert {change.id for change in found.refused} == {"again", "end"}
    assert all("checkpoints" in change.why for change in found.refused)


def test_a_source_or_a_sink_does_not_move_to_another_fragment() -> None:
    alone = graph(node("read", read()), node("kept", filter_(), "read"), node("out", write(), "kept"))
    counted = graph(
        node("read", read()), node("kept", filter_(), "read"), node("n", aggregate(), "kept"),
        node("out", write(), "n"),
    )  # fmt: skip
    found = difference(version(alone), version(counted))
    assert {change.id for change in found.refused} == {"read", "out"}
    assert "would begin anew" in next(c.why for c in found.refused if c.id == "read")
    assert "another name" in next(c.why for c in found.refused if c.id == "out")


def test_a_fragment_with_state_and_a_source_leaves_only_if_it_is_discarded() -> None:
    def with_second(*more: Node) -> GraphVersion:
        return version(shop(*more))

    second = (node("orders", read()), node("sum", aggregate(), "orders"), node("end", write(), "sum"))
    found = difference(with_second(*second), with_second())
    assert [change.id for change in found.refused] == ["orders"]
    assert "--discard" in found.refused[0].why
    assert not difference(with_second(*second), with_second(), options=ChangeOptions(discards=True)).refused


@given(graphs(), graphs())
@settings(max_examples=examples(150), deadline=None)
def test_it_is_refused_exactly_if_the_shape_of_the_state_differs(old: Graph, new: Graph) -> None:
    fits = state_shape(plan(old)) == state_shape(plan(new))
    found = difference(version(old), version(new))
    assert bool(found.refused or found.while_it_runs) is not fits
    assert version(old).state_shape == state_shape(plan(old))
    assert {c.id for c in found.changes} == {*plan(old).graph.nodes, *plan(new).graph.nodes}
    assert len(found.changes) == len(fates(found))


@given(graphs(), st.data())
@settings(max_examples=60, deadline=None)
def test_one_changed_processor_is_the_only_one_that_is_not_kept(given: Graph, data: st.DataObject) -> None:
    planned = plan(given)
    changed = data.draw(st.sampled_from(sorted(planned.graph.nodes)))
    operation = planned.graph.nodes[changed].operation
    new = version_of(planned, lambda other: "new" if other is operation else kind_of(other))
    same = {id for id, n in planned.graph.nodes.items() if n.operation is operation}
    found = difference(version(given), new)
    assert {c.id for c in found.changes if c.fate is not ChangeKind.KEPT} == same


@given(graphs())
@settings(max_examples=30, deadline=None)
def test_a_version_survives_json_and_lines_do_not_make_another_graph(any_graph: Graph) -> None:
    made = version(any_graph)
    again = msgspec.json.decode(msgspec.json.encode(made), type=GraphVersion)
    assert again.is_same_graph(made)
    assert json.loads(msgspec.json.encode(made))["application"] == "app"
    moved = {id: msgspec.structs.replace(record, line="x:99") for id, record in made.processors.items()}
    assert made.is_same_graph(msgspec.structs.replace(made, processors=moved, number=7))
    assert dataclasses.is_dataclass(difference(made, again))


def test_an_edited_graph_is_that_of_the_file_that_says_the_same() -> None:
    def app(least: int) -> Application:
        app = Application("shop")
        read = app.read(sources.text("in"), name="read")
        read.filter(f"length(value) > {least}", name="long").sink(sinks.none(), name="out")
        read.sink(sinks.none(), name="all")
        return app

    edited = version(replaced(app(1).graph(), "long", lambda read: read.filter("length(value) > 2")))
    assert edited.fragments["read"].branches != version(app(2).graph()).fragments["read"].branches
    assert edited.is_same_graph(version(app(2).graph()))
    assert not edited.is_same_graph(version(app(1).graph()))


def test_code_of_a_trunk_and_of_a_table_that_it_reads_restarts_the_query() -> None:
    def by(id: str) -> GraphVersion:
        made = version(shop())
        record = made.processors[id]
        changed = msgspec.structs.replace(record, fingerprint="another")
        return msgspec.structs.replace(made, processors={**made.processors, id: changed})

    of_state = difference(version(shop()), by("counted"))
    assert fates(of_state)["counted"] is ChangeKind.RESTARTED
    assert "its state stays" in next(change.why for change in of_state.changes if change.id == "counted")
    assert live_change(version(shop()), by("counted")).restarts == ("counted",)
    assert live_change(version(shop()), by("shown")).restarts == ()
    assert difference(version(shop()), by("shown")).after_stop == ()
    assert touched(version(shop()), by("shown")) == {"counted"}
    assert has_same_trunk(version(shop()), by("shown"), "counted")
    assert not has_same_trunk(version(shop()), by("counted"), "counted")
    assert not has_same_trunk(version(shop()), version(shop()), "elsewhere")


def test_stateless_processors_before_a_state_come_and_go_and_the_query_restarts() -> None:
    def counting(*before: Node) -> GraphVersion:
        last = before[-1].id if before else "read"
        counted = node("counted", aggregate(), last)
        return version(graph(node("read", read()), *before, counted, node("out", write(), "counted")))

    more = node("clean", filter_(), "read")
    found = difference(counting(), counting(more))
    assert fates(found) == {
        "read": ChangeKind.KEPT,
        "clean": ChangeKind.RESTARTED,
        "counted": ChangeKind.RESTARTED,
        "out": ChangeKind.KEPT,
    }
    back = difference(counting(more), counting())
    assert fates(back)["clean"] is ChangeKind.STOPPED
    assert "the query of counted restarts" in next(c.why for c in back.changes if c.id == "clean")
    timed = node("clean", EventTime(col("value"), 0), "read")
    assert [change.id for change in difference(counting(), counting(timed)).refused] == ["clean"]


def test_the_inputs_of_a_join_keep_their_places() -> None:
    def joining(left: str, right: str) -> GraphVersion:
        join = node("both", JoinStream(("value",), 1000, "inner"), left, right)
        out = node("out", write(), "both")
        return version(graph(node("one", read()), node("other", read()), join, out))

    found = difference(joining("one", "other"), joining("other", "one"))
    assert [change.id for change in found.refused] == ["both"]


def test_a_sink_that_publishes_with_checkpoints_changes_only_after_a_stop() -> None:
    before = version(shop())
    less = (node("read", read()), node("counted", aggregate(), "read"), node("other", write(), "counted"))
    found = difference(before, version(graph(*less)), has_checkpoints=True)
    assert [change.id for change in found.after_stop] == ["out"]
    assert difference(before, version(graph(*less))).after_stop == (), "the same version without checkpoints"
    with_more = version(shop(node("more", write(), "counted")))
    assert difference(before, with_more, has_checkpoints=True).after_stop == ()
    back = difference(with_more, before, has_checkpoints=True)
    assert [change.id for change in back.after_stop] == ["more"], "a sink that came while it ran"


def test_a_fragment_is_touched_by_what_is_in_it_and_not_by_lines() -> None:
    assert touched(version(shop()), version(shop())) == frozenset()
    moved = version(shop())
    lines = {id: msgspec.structs.replace(record, line="else.py:1") for id, record in moved.processors.items()}
    assert touched(version(shop()), msgspec.structs.replace(moved, processors=lines)) == frozenset()
    assert touched(version(shop()), version(shop(node("more", write(), "counted")))) == {"counted"}


def keyed(task: type[KeyedTask[Any, Any]], name: str = "counted") -> GraphVersion:
    app = Application("keyed")
    stream = app.read(sources.csv("in/", schema="item string, at timestamp", event_time="at"), name="read")
    stream.process(task, name=name).sink(sinks.none(), name="out")
    return version_of(plan(app.graph()), kind_of)


def test_states_of_a_keyed_task_fit_those_of_a_later_version_with_the_same_key() -> None:
    class First(KeyedTask[Any, str]):
        key: Any = "item"
        output = "item string"
        n: Any = ValueState(int)

        def on_next(self, message: Any) -> list[str]:
            return []

        @classmethod
        def migrate(cls, version: int, states: dict[str, Any]) -> dict[str, Any]:
            return states

    class Other(First):
        n = ValueState(str)

    class Second(Other):
        version = 2

    class Reordered(Second):
        version = 3
        in_order = True

    found = difference(keyed(First), keyed(Second))
    [change] = [change for change in found.changes if change.id == "counted"]
    assert change.fate is ChangeKind.AFTER_STOP
    assert "the states of counted are migrated when it is run again" in change.why
    assert "a higher version of the Task" in difference(keyed(First), keyed(Other)).refused[0].why
    for old, new in [(First, Other), (Second, First), (Second, Reordered)]:
        assert difference(keyed(old), keyed(new)).refused
        assert not shapes_fit(keyed(old).shape_of("counted"), keyed(new).shape_of("counted"))


def test_the_interval_of_early_results_is_no_part_of_their_state() -> None:
    def early(every: str) -> GraphVersion:
        app = Application("early")
        stream = app.read(sources.csv("in/", schema="at timestamp", event_time="at"), name="read")
        hourly = stream.window(windows.tumbling("1 h")).count(name="hourly")
        hourly.sink(sinks.none(), name="out")
        hourly.early_every(every).sink(sinks.none(), name="screen")
        return version_of(plan(app.graph()), lambda operation: str(operation.described))

    found = difference(early("10 s"), early("1 min"))
    assert not found.refused
    assert fates(found)["hourly-early"] is ChangeKind.RESTARTED


def test_a_damaged_description_of_a_state_fits_nothing() -> None:
    made = plan(shop())
    known = state_shape(made)
    assert state_fits(known, made)
    for damaged in (None, [], {}, known | {"counted": None}, known | {"counted": [1, 2]}):
        assert not state_fits(damaged, made)

"""Applications: names, settings, the low-level graph, and graphs that cannot run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from drivetrain.api import Application, Processor, Task, agg, partitioners, sinks, sources, windows
from drivetrain.api.operations import LateMessages, Process, Union, Write
from drivetrain.api.settings import given_settings
from drivetrain.core.plan.planner import plan
from drivetrain.errors import ConfigError, GraphError


class Echo(Task[str, str]):
    def on_next(self, message: str) -> Iterable[str]:
        yield message


def source() -> Any:
    return sources.text("/in")


# -- settings ---------------------------------------------------------------------------------------------


def test_a_setting_is_what_was_given_else_its_default() -> None:
    with given_settings({"n": "7", "loud": "YES", "rate": "0.5", "word": "x"}):
        app = Application("app")
        assert app.setting("n", 3) == 7
        assert app.setting("loud", False) is True
        assert app.setting("rate", 1.0) == 0.5
        assert app.setting("word") == "x"
        assert app.setting("limit", None, type=int) is None
        assert app.setting("other", "y", doc="something") == "y"
    told = app.settings["n"]
    assert (told.name, told.type, told.default, told.required, told.value) == ("n", int, 3, False, 7)
    assert app.settings["word"].required
    assert app.settings["word"].default is None
    assert Application("app").setting("n", 3) == 3, "given only inside the block"


def test_a_required_setting_that_is_missing_says_how_to_give_it() -> None:
    with pytest.raises(ConfigError, match=r"setting 'input' is required: a text file") as caught:
        Application("app").setting("input", doc="a text file")
    assert caught.value.remedy == "add --set input=..."
    assert "test_application.py" in str(caught.value)


@pytest.mark.parametrize(
    ("raw", "default", "kind"),
    [("many", 3, "int"), ("1.5", 3, "int"), ("maybe", True, "bool"), ("x", 0.5, "float")],
)
def test_a_setting_that_cannot_be_read_says_what_was_expected(raw: str, default: Any, kind: str) -> None:
    with given_settings({"n": raw}), pytest.raises(ConfigError, match="cannot be read") as caught:
        Application("app").setting("n", default)
    assert (caught.value.where, caught.value.expected, caught.value.got) == (
        f"--set n={raw}",
        kind,
        repr(raw),
    )


@pytest.mark.parametrize("name", ["", "1app", "my app", "a/b", "ä", "-x"])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(GraphError, match="not a name for an application"):
        Application(name)
    with pytest.raises(GraphError, match="not an id for a processor"):
        Application("app").read(source(), name=name)


# -- the graph ------------------------------------------------------------------------------------------


def test_processors_are_named_after_what_they_do_and_numbered_when_alike() -> None:
    app = Application("app")
    lines = app.read(source())
    for _ in range(3):
        lines.map(str.upper, returns=str).filter("value != ''").sink(sinks.none())
    assert list(app.graph().nodes) == [
        "read",
        *("map-upper", "filter", "sink"),
        *("map-upper-2", "filter-2", "sink-2"),
        *("map-upper-3", "filter-3", "sink-3"),
    ]


def test_two_processors_of_one_name_are_told_with_both_lines() -> None:
    app = Application("app")
    app.read(source(), name="lines")
    with pytest.raises(GraphError, match="two processors are called 'lines'") as caught:
        app.read(source(), name="lines")
    first, second = (int(t.rsplit(":", 1)[1]) for t in (caught.value.got or "", caught.value.where or ""))
    assert second == first + 2


def test_two_connected_processors_of_one_name_are_told_with_both_lines() -> None:
    app = Application("app")
    read, end = Processor(source()), Processor(sinks.none())
    a = Processor(Echo, name="echo")
    b = Processor(Echo, name="echo")
    for up, down in ((read, a), (a, b), (b, end)):
        app.connect(up, down)
    with pytest.raises(GraphError, match="two processors are called 'echo'") as caught:
        app.graph()
    assert (caught.value.got or "").endswith(str(a.where))
    assert caught.value.where == str(b.where)


@pytest.mark.parametrize(
    ("build", "told"),
    [
        (lambda app: None, "has no sink"),
        (lambda app: app.read(source()), "has no sink"),
        (
            lambda app: (app.read(source()).sink(sinks.none()), app.read(source())),
            "read-2 .*has no successor",
        ),
        (
            lambda app: (app.table(source()), app.read(source()).sink(sinks.none())),
            "table .*has no successor",
        ),
        (lambda app: app.connect(Processor(Echo), Processor(sinks.none())), "Echo .*has no input"),
        (lambda app: app.connect(Processor(source()), Processor(Echo)), "has no sink"),
        (lambda app: app.connect(Processor(source()), Processor(7)), "not a valid processor"),
    ],
)
def test_a_graph_that_cannot_run_is_refused_with_the_processor(
    build: Callable[[Any], Any], told: str
) -> None:
    app = Application("app")
    build(app)
    with pytest.raises(GraphError, match=told):
        app.graph()


@pytest.mark.parametrize("length", [1, 2, 3])
def test_a_cycle_is_refused_naming_the_ring(length: int) -> None:
    app = Application("app")
    ring = [Processor(Echo, name=f"p{i}") for i in range(length)]
    app.connect(Processor(source()), ring[0])
    for i, p in enumerate(ring):
        app.connect(p, ring[(i + 1) % length])
    app.connect(ring[-1], Processor(sinks.none()))
    with pytest.raises(GraphError, match="the graph has a cycle") as caught:
        app.graph()
    for p in ring:
        assert p.name is not None
        assert p.name in caught.value.what


def test_a_sink_feeds_nobody_and_a_source_reads_from_nobody() -> None:
    app = Application("app")
    read, sink, end = Processor(source()), Processor(sinks.none()), Processor(sinks.none())
    app.connect(read, sink)
    app.connect(sink, end)
    with pytest.raises(GraphError, match=r"NullSink.* is a sink, and nothing can read from it"):
        app.graph()
    app = Application("app")
    late = Processor(source(), name="late")
    app.connect(Processor(source()), late)
    app.connect(late, Processor(sinks.none()))
    with pytest.raises(GraphError, match=r"late .*is a source, and cannot read from others"):
        app.graph()


def test_a_sink_of_several_processors_gets_what_all_of_them_emit() -> None:
    app = Application("app")
    left, right, sink = Processor(source()), Processor(source()), Processor(sinks.none(), name="out")
    app.connect(left, sink)
    app.connect(right, sink)
    graph = app.graph()
    (up,) = graph.nodes["out"].inputs
    assert isinstance(graph.nodes[up].operation, Union)
    assert graph.nodes[up].inputs == ("TextFiles", "TextFiles-2")
    assert isinstance(graph.nodes["out"].operation, Write)
    plan(graph)


def test_the_partitioners_of_a_task_stand_in_the_order_of_its_inputs() -> None:
    app = Application("app")
    left, right, task = Processor(source()), Processor(source()), Processor(Echo, parallelism=3)
    app.connect(left, task, partitioners.hash("value"))
    app.connect(right, task)
    app.connect(task, Processor(sinks.none()))
    node = app.graph().nodes["Echo"]
    assert isinstance(node.operation, Process)
    assert [str(p) for p in node.operation.partitioners] == ["hash(value)", "shuffle"]
    assert node.operation.parallelism == 3


def test_building_the_graph_twice_gives_the_same() -> None:
    app = Application("app")
    app.read(source()).group_by("value").count().sink(sinks.none())
    app.connect(Processor(source(), name="other"), Processor(sinks.none(), name="end"))
    assert app.graph() == app.graph()


def test_hooks_are_told_of_the_end_in_order() -> None:
    app, told = Application("app"), []
    app.when_finished(lambda r: told.append(("first", r)))

    @app.when_finished
    def second(result: Any) -> None:
        told.append(("second", result))

    app.call_finish_hooks("done")
    assert told == [("first", "done"), ("second", "done")]
    assert second.__name__ == "second"


def test_the_late_messages_of_a_window_are_read_from_what_it_reads() -> None:
    app = Application("app")
    lines = app.read(source()).map(str.upper, returns=str, name="up")
    hourly = lines.group_by("value").window(windows.tumbling("1 h")).aggregate(step="hourly", n=agg.count())
    hourly.late.sink(sinks.none())
    hourly.sink(sinks.none())
    late = app.graph().nodes["late"]
    assert late.operation == LateMessages("hourly")
    assert late.inputs == ("up",)

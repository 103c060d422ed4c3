"""Named outputs of Tasks in the graph and in the plan: declared names and types, and what is refused."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from drivetrain import (
    Application,
    NamedOutput,
    PersistentTask,
    State,
    Stream,
    Task,
    TimestampedValue,
    agg,
    sinks,
    sources,
    windows,
)
from drivetrain.api.operations import Output, Process
from drivetrain.core.plan.counts import derive, rules_of
from drivetrain.core.plan.planner import plan
from drivetrain.errors import DrivetrainError, GraphError


@dataclass
class Refusal:
    line: str
    reason: str


class Checked(Task[str, int]):
    outputs = {"refused": Refusal, "empty": "line string, n bigint"}  # noqa: RUF012 - as users write it

    def on_next(self, line: str) -> Iterator[int | TimestampedValue[int] | NamedOutput]:
        yield int(line) if line.isdigit() else NamedOutput("refused", Refusal(line, "not a number"))


def checked(task: Any = Checked) -> tuple[Application, Stream[Any]]:
    app = Application("checked")
    return app, app.read(sources.text("in/")).process(task)


def test_a_named_output_is_a_processor_after_its_task() -> None:
    app, stream = checked()
    refused = stream.output("refused")
    assert refused.id == "Checked-refused"
    assert stream.output("refused").id == refused.id
    assert stream.output("empty").id == "Checked-empty"
    for made in (stream, refused, stream.output("empty")):
        made.sink(sinks.none())
    graph = app.graph()
    task, output = graph.nodes["Checked"].operation, graph.nodes["Checked-refused"].operation
    assert isinstance(task, Process)
    assert task.type.ddl == "value bigint"
    assert isinstance(output, Output)
    assert (output.name, output.type.ddl) == ("refused", "line string, reason string")


def test_the_type_of_the_main_output_leaves_out_the_named_ones() -> None:
    class Only(Task[str, int]):
        outputs = {"a": str}  # noqa: RUF012 - as users write it

        def on_next(self, line: str) -> Iterable[NamedOutput]:
            return [NamedOutput("a", line)]

    class Mostly(PersistentTask[str, str]):
        outputs = {"a": str}  # noqa: RUF012 - as users write it
        key = "value"
        state = State(agg.count())

        def on_next(self, line: str) -> Iterator[TimestampedValue[NamedOutput]]:
            yield TimestampedValue(0, NamedOutput("a", line))

        def on_change(
            self, key: str, value: int
        ) -> list[tuple[str, int] | TimestampedValue[tuple[str, int]] | NamedOutput] | None:
            return [(key, value)]

    types = []
    for task in (Only, Mostly):
        app, stream = checked(task)
        stream.output("a").sink(sinks.none())
        operation = app.graph().nodes[task.__name__].operation
        assert isinstance(operation, Process)
        types.append(operation.type.ddl)
    assert types == ["value string", "key string, value bigint"]


def test_an_output_stays_in_the_fragment_of_its_task() -> None:
    app, stream = checked()
    stream.cut().sink(sinks.none(), name="numbers")
    hourly = stream.output("refused").event_time("cast(line as timestamp)").window(windows.tumbling("1 h"))
    hourly.count(name="hourly").sink(sinks.none(), name="counts")
    made = plan(app.graph())
    assert made.fragments[0].processors == ("read", "Checked", "Checked-refused", "event_time")
    assert {(c.producer, c.consumer_fragment) for c in made.channels} == {
        ("Checked", "numbers"),
        ("event_time", "hourly"),
    }
    assert made.operators["Checked-refused"].text == "refused → line string, reason string"


def test_the_messages_of_an_output_are_not_counted_as_those_of_its_task() -> None:
    app, stream = checked()
    stream.sink(sinks.none(), name="numbers")
    stream.output("refused").sink(sinks.none(), name="refusals")
    into, out = derive(
        rules_of(app.graph()), {"read": 9, "Checked-refused": 2}, {"numbers": 7, "refusals": 2}
    )
    assert (into["Checked"], out["Checked"]) == (9, 7)
    assert (into["Checked-refused"], out["Checked-refused"]) == (2, 2)


def test_what_is_not_an_output_is_refused_where_it_is_used() -> None:
    _, stream = checked()
    with pytest.raises(GraphError, match=r"Checked has no output 'refusd'") as caught:
        stream.output("refusd")
    assert 'did you mean "refused"' in str(caught.value)
    assert __file__.rsplit("/", 1)[-1] in str(caught.value)
    with pytest.raises(GraphError, match="only a Task has named outputs"):
        stream.filter("value > 1").output("refused")
    with pytest.raises(AttributeError, match=r'write output\("name"\) of a Task'):
        stream.getSideOutput("refused")  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"not refused": str}, "a name that no output can have"),
        ({"__refused": str}, "a name that no output can have"),
        ({1: str}, "a name that no output can have"),
        (["refused"], "outputs cannot be read"),
        ({"refused": object}, "Wrong, its output refused"),
    ],
)
def test_a_declaration_that_cannot_be_is_refused(declared: Any, message: str) -> None:
    class Wrong(Task[str, str]):
        outputs = declared

        def on_next(self, line: str) -> list[str]:
            return [line]

    with pytest.raises(DrivetrainError, match=message):
        checked(Wrong)

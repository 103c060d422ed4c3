"""Streams: what each method adds to the graph, and what it refuses where it is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from drivetrain.api import Application, Column, Monoid, Task, agg, col, sinks, sources, windows
from drivetrain.api.operations import (
    Aggregate,
    Deduplicate,
    EventTime,
    Filter,
    Fold,
    Function,
    JoinStream,
    JoinTable,
    Process,
    Select,
    Union,
)
from drivetrain.api.stream import Stream
from drivetrain.errors import GraphError


class Longest(Monoid[str, str]):
    def zero(self) -> str:
        return ""

    def add(self, state: str, message: str) -> str:
        return max(state, message)

    plus = add

    def result(self, state: str) -> str:
        return state


class Echo(Task[str, str]):
    def on_next(self, message: str) -> Iterable[str]:
        yield message


@pytest.fixture
def app() -> Application:
    return Application("app")


@pytest.fixture
def lines(app: Application) -> Stream[Any]:
    return app.read(sources.text("/in"))


def operation(stream: Stream[Any]) -> Any:
    return stream._app._nodes[stream.id].operation


def double(n: int) -> int:
    return 2 * n


def test_text_is_a_column_when_it_is_a_name_and_an_expression_otherwise(lines: Stream[Any]) -> None:
    by_name, by_text = operation(lines.filter("good")), operation(lines.filter("delay > 15"))
    assert isinstance(by_name, Filter)
    assert isinstance(by_name.condition, Column)
    assert (by_name.condition.op, by_text.condition.op) == ("function:col", "function:expr")


def test_a_filter_function_needs_no_annotation(lines: Stream[Any]) -> None:
    condition = operation(lines.filter(lambda x: x != "")).condition
    assert isinstance(condition, Function)
    assert condition.type.ddl == "value boolean"


def test_columns_are_selected_by_name_computed_by_keyword_and_added(lines: Stream[Any]) -> None:
    selected = operation(lines.select("a", b=col("c") + 1, d=double))
    assert isinstance(selected, Select)
    assert [name for name, _ in selected.columns] == [None, "b", "d"]
    assert not selected.keep
    added = operation(lines.with_columns(d=double))
    assert added.keep
    assert added.columns[0][1].parameters == ("n",)


def test_event_time_and_deduplication_keep_their_spans_in_milliseconds(lines: Stream[Any]) -> None:
    event_time = operation(lines.event_time("t", max_disorder="1 min"))
    assert isinstance(event_time, EventTime)
    assert (str(event_time.column), event_time.max_disorder_ms) == ("t", 60_000)
    assert operation(lines.deduplicate("id", within="1 h")) == Deduplicate(("id",), 3_600_000)


def test_log_hands_the_stream_on(lines: Stream[Any]) -> None:
    assert lines.log() is lines


def test_a_cut_marks_the_processor_before_it(app: Application, lines: Stream[Any]) -> None:
    lines.map(str.upper, returns=str).cut().sink(sinks.none())
    assert [n.id for n in app.graph().nodes.values() if n.cut] == ["map-upper"]


def test_keys_have_names(lines: Stream[Any]) -> None:
    grouped = lines.group_by("a", col("b").alias("c"), d="upper(e)", f=double).count()
    assert [name for name, _ in operation(grouped).keys] == ["a", "c", "d", "f"]


def test_a_window_without_keys_and_one_with_are_kept(lines: Stream[Any]) -> None:
    hourly = windows.tumbling("1 h")
    keyless = operation(lines.window(hourly).count())
    assert isinstance(keyless, Aggregate)
    assert (keyless.keys, keyless.window) == ((), hourly)
    assert operation(lines.group_by("a").window(hourly).count()).window == hourly
    assert operation(lines.group_by("a").count()).window == windows.everything()


@pytest.mark.parametrize(
    ("build", "column", "told"),
    [
        (lambda g: g.count(), "count", "count()"),
        (lambda g: g.sum("n"), "sum", "sum(n)"),
        (lambda g: g.min("n"), "min", "min(n)"),
        (lambda g: g.max("n"), "max", "max(n)"),
        (lambda g: g.mean("n"), "mean", "mean(n)"),
        (lambda g: g.aggregate(x=agg.F.sum(col("n"))), "x", "sum(n)"),
    ],
)
def test_short_forms_are_aggregations(
    lines: Stream[Any], build: Callable[[Any], Any], column: str, told: str
) -> None:
    ((name, aggregation),) = operation(build(lines.group_by("a"))).aggregations
    assert (name, str(aggregation)) == (column, told)


def test_python_aggregations_are_folds_typed_by_their_functions(lines: Stream[Any]) -> None:
    by = lines.group_by(k="value")
    monoid = operation(by.aggregate(longest=Longest()))
    assert isinstance(monoid, Fold)
    assert (monoid.name, monoid.result.ddl) == ("longest", "value string")
    assert operation(by.reduce(max, returns=str)).name == "value"
    assert operation(by.fold(int, lambda s, m: s + 1, returns=int)).result.ddl == "value bigint"


def test_streams_are_joined_and_unioned(app: Application, lines: Stream[Any]) -> None:
    other, table = app.read(sources.text("/other")), app.table(sources.text("/names"))
    assert isinstance(operation(lines.union(other)), Union)
    assert app._nodes[lines.union(other, lines).id].inputs == ("read", "read-2", "read")
    assert operation(lines.join(other, on="value", within="10 s")) == JoinStream(("value",), 10_000, "inner")
    assert operation(lines.join(table, on=["a", "b"], how="left")) == JoinTable(("a", "b"), "left")


def test_a_task_is_made_by_its_class_or_by_a_function(lines: Stream[Any]) -> None:
    made = operation(lines.process(Echo, parallelism=2))
    assert isinstance(made, Process)
    assert (made.task_name, made.parallelism, made.stateful, made.batched) == ("Echo", 2, False, False)
    assert operation(lines.process(lambda: Echo())).task_name == "Echo"


@pytest.mark.parametrize(
    ("build", "told"),
    [
        (lambda s, t: s.group_by(), "group_by needs a key"),
        (lambda s, t: s.group_by("upper(a)").count(), "needs a name"),
        (lambda s, t: s.group_by(double), "a function needs a name here"),
        (lambda s, t: s.select(n=7), "n= is neither a column nor a function"),
        (lambda s, t: s.group_by("a").aggregate(), "aggregate needs an aggregation"),
        (lambda s, t: s.group_by("a").aggregate(n=7), "n= is not an aggregation"),
        (lambda s, t: s.group_by("a").aggregate(n=agg.count(), m=Longest()), "custom Monoid"),
        (
            lambda s, t: s.group_by("a").window(windows.session("1 s")).fold(int, max),
            "fold cannot run in session",
        ),
        (
            lambda s, t: s.group_by("value").reduce(max, returns=str),
            "a key and a result are both called 'value'",
        ),
        (lambda s, t: s.group_by("n").aggregate(n=agg.count()), "a key and a result are both called 'n'"),
        (lambda s, t: s.join(s, on="a"), "a join of two streams needs within="),
        (lambda s, t: s.join(t, on="a", how="outer"), "no such join with a table"),
        (lambda s, t: s.join(t, on="a", how="full"), "no such join with a table"),
        (lambda s, t: s.join(s, on="a", within="1 s", how="outer"), "no such join with a stream"),
        (lambda s, t: s.join(s, on="a", within="1 s", how="semi"), "no such join with a stream"),
        (lambda s, t: s.join_as_of(s, on="a", how="semi"), "no such join as of a time"),
        (lambda s, t: s.event_time("t", max_disorder="5"), "cannot read max_disorder"),
        (lambda s, t: s.deduplicate("a", within="x"), "cannot read within"),
        (lambda s, t: s.sink(sources.text("/in")), "not a sink"),
        (lambda s, t: s.process(int), "not a Task"),
        (lambda s, t: s.process(Echo, parallelism=0), "parallelism of at least 1"),
        (lambda s, t: s.late, "only the results of a window have late messages"),
        (lambda s, t: s._app.read(sinks.none()), "not a source"),
        (lambda s, t: s._app.table(sources.text("/in", watch=True)), "must be bounded"),
    ],
)
def test_what_cannot_be_is_refused_where_it_is_written(
    app: Application, lines: Stream[Any], build: Callable[[Any, Any], Any], told: str
) -> None:
    table = app.table(sources.text("/names"))
    with pytest.raises(GraphError, match=told) as caught:
        build(lines, table)
    assert "test_stream.py" in str(caught.value) or "read" in str(caught.value)


@pytest.mark.parametrize(
    "build",
    [
        lambda s, other, table: s.union(other),
        lambda s, other, table: s.join(other, on="value", within="1 s"),
        lambda s, other, table: s.join(table, on="value"),
    ],
    ids=["union", "join", "table"],
)
def test_streams_of_two_applications_cannot_meet_even_if_their_names_are_alike(
    app: Application, lines: Stream[Any], build: Callable[..., Any]
) -> None:
    app.table(sources.text("/names"))
    strange = Application("other")
    other, table = strange.read(sources.text("/other")), strange.table(sources.text("/names"))
    assert (other.id, table.id) == (lines.id, "table")
    with pytest.raises(GraphError, match="belongs to another application"):
        build(lines, other, table)

"""What a persistent Task declares, and what is refused before anything runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

import pytest

from drivetrain import (
    Application,
    F,
    Monoid,
    PersistentTask,
    Processor,
    State,
    Task,
    agg,
    expr,
    partitioners,
    sinks,
    sources,
    windows,
)
from drivetrain.api.operations import Process
from drivetrain.api.states.key_monoids import ColumnMonoid
from drivetrain.api.states.persistent import PersistentDeclaration
from drivetrain.core.plan.planner import plan
from drivetrain.errors import DrivetrainError, GraphError, OperatorTypeError


class Counts(PersistentTask[Any, Any]):
    key = "word"
    state = State(agg.count())


class Silent(Counts):
    def on_next(self, message: Any) -> None:
        self.state.update(message)


class Telling(Silent):
    def on_change(self, key: str, value: int) -> Iterable[tuple[str, int]]:
        return [(key, value)]


class Ends(PersistentTask[Any, Any]):
    key = ("word", "place")
    state = State(agg.sum("n"), window=windows.tumbling("1 h"), as_of="1 h")

    def on_window(self, key: Any, start_ms: int, end_ms: int, value: int) -> list[float]:
        return [value / 2]


class Untyped(Counts):
    def on_change(self, key, value):  # type: ignore[no-untyped-def]
        return [(key, value)]


def operation(task: type[Task[Any, Any]], **given: Any) -> Process:
    app = Application("a")
    read = app.read(sources.text("/some/text"))
    stream = read.process(task, **given)
    stream.sink(sinks.none())
    return cast(Process, app.graph().nodes[stream.id].operation)


def test_a_persistent_task_says_its_state_and_its_key_to_the_graph() -> None:
    made = operation(Ends)
    assert made.persistent == PersistentDeclaration(Ends.state, ("word", "place"))
    assert made.stateful
    assert made.type.ddl == "value double"
    assert operation(Counts).persistent == PersistentDeclaration(Counts.state, ("word",))


def test_the_message_type_is_that_of_the_first_hook_that_gives_any() -> None:
    assert operation(Telling).type.ddl == "key string, value bigint"
    assert operation(Silent).type.ddl == "value string"
    assert operation(Untyped, returns="key string, n bigint").type.ddl == "key string, n bigint"
    with pytest.raises(OperatorTypeError, match="is unknown"):
        operation(Untyped)


def test_it_is_a_processor_of_the_low_level_graph_as_well() -> None:
    app = Application("a")
    read, task = Processor(sources.text("/some/text")), Processor(Telling, parallelism=8)
    app.connect(read, task)
    app.connect(task, Processor(sinks.none()))
    made = plan(app.graph())
    [operator] = [o for o in made.operators.values() if o.how == "task"]
    assert operator.text == "count() by word"
    assert [f.stateful for f in made.fragments] == [operator.id]


def test_a_partitioner_is_refused_where_keys_say_where_messages_go() -> None:
    with pytest.raises(GraphError, match="distributes messages"):
        operation(Counts, partitioner=partitioners.hash("word"))


def test_parallelism_is_no_part_of_what_the_state_is() -> None:
    def told(parallelism: int) -> str:
        app = Application("a")
        app.read(sources.text("/some/text")).process(Ends, parallelism=parallelism, name="x").sink(
            sinks.none()
        )
        return plan(app.graph()).operators["x"].text

    expected = "sum(n), in tumbling(1 h), as of every 1 h by word, place"
    assert told(1) == told(8) == expected


class NoKey(PersistentTask[Any, Any]):
    state = State(agg.count())


class NoState(PersistentTask[Any, Any]):
    key = "word"


class BothHooks(Telling):
    state = State(agg.count(), window=windows.tumbling("1 h"))


@pytest.mark.parametrize(
    ("task", "message"), [(NoKey, "no key"), (NoState, "no state"), (BothHooks, "on_window")]
)
def test_what_is_not_whole_is_refused(task: type[Task[Any, Any]], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        operation(task)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: State(agg.count(), window=windows.session("1 h")), "no session window"),
        (lambda: State(agg.count(), window=windows.tumbling("1 h", allowed_lateness="1 s")), "ends once"),
        (lambda: State(agg.count(), as_of="0 s"), "as_of="),
        (lambda: State(agg.count(), as_of="2 h", keep="1 h"), "as_of="),
        (lambda: State(agg.count(), as_of="often"), "as_of"),
        (lambda: State(agg.distinct_count("n")), "cannot use this aggregation"),
        (lambda: State(agg.sum(expr("n + 1"))), "cannot use this aggregation"),
        (lambda: State(agg.sum("n") / agg.count()), "cannot use this aggregation"),
        (lambda: State(cast(Any, F.sum("n"))), "cannot use this aggregation"),
    ],
)
def test_states_that_cannot_be_are_refused(made: Callable[[], State], message: str) -> None:
    with pytest.raises(DrivetrainError, match=message):
        made()


def test_the_state_is_there_only_while_a_hook_is_called() -> None:
    assert isinstance(Counts.state, State)
    with pytest.raises(GraphError, match="only while"):
        _ = Counts().state


def test_a_state_says_what_it_is_so_that_others_are_told_apart() -> None:
    class Own(Monoid[Any, int]):
        def zero(self) -> int:
            return 0

        def add(self, state: int, message: Any) -> int:
            return state + 1

        def plus(self, left: int, right: int) -> int:
            return left + right

        def result(self, state: int) -> int:
            return state

    class Codec:
        def encode(self, state: int) -> bytes:
            return b"%d" % state

        def decode(self, encoded: bytes) -> int:
            return int(encoded)

    told = [
        State(agg.count()),
        State(agg.count("n")),
        State(agg.mean("n")),
        State(agg.count(), as_of="1 h"),
        State(agg.count(), window=windows.tumbling("1 h")),
        State(Own()),
        State(Own(), codec=Codec()),
    ]
    assert len({str(state) for state in told}) == len(told)
    assert str(told[-1]) == "Own, by Codec"


@pytest.mark.parametrize("kind", ["count", "sum", "min", "max", "avg"])
def test_the_built_in_monoids_are_monoids(kind: Any) -> None:
    monoid = ColumnMonoid(kind, "n", scalar=True)
    values = [3, None, -2, 7, None, 7]
    whole = monoid.zero()
    for value in values:
        whole = monoid.add(whole, value)
    for cut in range(len(values) + 1):
        left, right = monoid.zero(), monoid.zero()
        for value in values[:cut]:
            left = monoid.add(left, value)
        for value in values[cut:]:
            right = monoid.add(right, value)
        assert monoid.plus(left, right) == whole
    exact = {"count": 4, "sum": 15, "min": -2, "max": 7, "avg": 3.75}
    assert monoid.result(whole) == exact[kind]
    assert monoid.result(monoid.zero()) == (0 if kind == "count" else None)

"""Graphs for tests of the planner: built node by node, so that a test determines exactly which nodes are
connected."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hypothesis import strategies as st

from drivetrain.api import Task, agg, col, partitioners, sinks, sources, windows
from drivetrain.api.graphs.graph import Graph, Node
from drivetrain.api.location import Location
from drivetrain.api.operations import (
    Aggregate,
    Deduplicate,
    EventTime,
    Filter,
    FlatMap,
    Fold,
    Function,
    JoinStream,
    JoinTable,
    LateMessages,
    Map,
    MatchPattern,
    Operation,
    PatternStep,
    Process,
    Read,
    Table,
    Union,
    Write,
)
from drivetrain.api.states.folds import ReduceMonoid
from drivetrain.api.types import message_type

HERE = Location("app.py", 1)
TEXT = message_type(str)
HOURLY = windows.tumbling("1 h")


class Echo(Task[str, str]):
    def on_next(self, message: str) -> Iterable[str]:
        yield message


def read() -> Read:
    return Read(sources.text("/in"))


def map_(on_error: Any = "fail") -> Map:
    return Map(Function(str.upper, TEXT, ("value",), on_error))


def flat_map(on_error: Any = "fail") -> FlatMap:
    return FlatMap(Function(str.split, TEXT, ("value",), on_error))


def filter_() -> Filter:
    return Filter(col("value") != "")


def aggregate(window: windows.Window = HOURLY) -> Aggregate:
    return Aggregate((("value", col("value")),), window, (("n", agg.count()),))


def fold() -> Fold:
    return Fold((("value", col("value")),), HOURLY, ReduceMonoid(max), TEXT, "value")


def task(inputs: int = 1, *, stateful: bool = False) -> Process:
    ways = (partitioners.shuffle(),) * inputs
    return Process(Echo, "Echo", TEXT, 1, ways, stateful, batched=False)


def write() -> Write:
    return Write(sinks.none())


def node(id: str, operation: Operation, *inputs: str, cut: bool = False) -> Node:
    return Node(id, operation, inputs, HERE, cut)


def graph(*nodes: Node) -> Graph:
    return Graph("app", {n.id: n for n in nodes})


STATELESS: Mapping[str, Any] = {
    "map": map_,
    "letters": lambda: map_("dead_letter"),
    "flat_map": flat_map,
    "filter": filter_,
    "event_time": lambda: EventTime(col("value"), 0),
    "task": task,
}
STATEFUL: Mapping[str, Any] = {
    "aggregate": aggregate,
    "fold": fold,
    "deduplicate": lambda: Deduplicate(("value",), 1000),
    "match": lambda: MatchPattern(
        (("value", col("value")),), (PatternStep("several", col("value"), 2),), 1000, False
    ),
    "stateful_task": lambda: task(stateful=True),
}
_LATENESS = (
    HOURLY,
    windows.tumbling("1 h", allowed_lateness="1 min"),
    windows.tumbling("1 h", allowed_lateness="1 min", emission="accumulating"),
)


@st.composite
def chains(draw: st.DrawFn) -> Graph:
    """A source, any operators one after the other, a sink; any of them cut."""
    kinds = draw(st.lists(st.sampled_from([*STATELESS, *STATEFUL]), max_size=8))
    nodes = [node("source", read(), cut=draw(st.booleans()))]
    for i, kind in enumerate(kinds):
        operation = {**STATELESS, **STATEFUL}[kind]()
        nodes.append(node(f"{kind}-{i}", operation, nodes[-1].id, cut=draw(st.integers(0, 5)) == 0))
    return graph(*nodes, node("sink", write(), nodes[-1].id))


@st.composite
def trees(draw: st.DrawFn) -> Graph:
    """One source from which everything branches out; nothing is joined and nothing is cut."""
    nodes = [node("source", read())]
    for i, kind in enumerate(draw(st.lists(st.sampled_from([*STATELESS, *STATEFUL]), max_size=9))):
        up = draw(st.sampled_from([n.id for n in nodes]))
        nodes.append(node(f"{kind}-{i}", {**STATELESS, **STATEFUL}[kind](), up))
    return graph(*_ended(nodes))


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Any graph: several sources, cuts, diamonds, joins, unions, Tasks with several inputs, late messages."""
    nodes = [node(f"source-{i}", read(), cut=draw(_SOMETIMES)) for i in range(draw(st.integers(1, 3)))]
    nodes.append(node("table", Table(sources.text("/table"))))
    for i in range(draw(st.integers(0, 10))):
        ends = [n for n in nodes if not isinstance(n.operation, Table)]
        windowed = [n for n in nodes if isinstance(n.operation, Aggregate)]
        kinds = [*STATELESS, *STATEFUL, "union", "union", "join", "join_table", "tasks", "stateful_tasks"]
        kind = draw(st.sampled_from([*kinds, "late"] if windowed else kinds))
        several = st.lists(st.sampled_from([n.id for n in ends]), min_size=2, max_size=3, unique=True)
        one = draw(st.sampled_from([n.id for n in ends]))
        inputs: tuple[str, ...] = (one,)
        operation: Operation
        if kind == "late":
            of = draw(st.sampled_from(windowed))
            operation, inputs = LateMessages(of.id), of.inputs
        elif kind == "join_table":
            operation, inputs = JoinTable(("value",), "inner"), (one, "table")
        elif kind in ("union", "join", "tasks", "stateful_tasks"):
            inputs = tuple(draw(several)) if len(ends) > 1 else (one, one)
            if kind == "join":
                operation, inputs = JoinStream(("value",), 1000, "inner"), inputs[:2]
            elif kind == "union":
                operation = Union()
            else:
                operation = task(len(inputs), stateful=kind == "stateful_tasks")
        elif kind == "aggregate":
            operation = aggregate(draw(st.sampled_from(_LATENESS)))
        else:
            operation = {**STATELESS, **STATEFUL}[kind]()
        nodes.append(node(f"{kind}-{i}", operation, *inputs, cut=draw(_SOMETIMES)))
    used = {i for n in nodes for i in n.inputs}
    return graph(*_ended([n for n in nodes if n.id != "table" or "table" in used]))


_SOMETIMES = st.integers(0, 6).map(lambda n: n == 0)


def _ended(nodes: list[Node]) -> list[Node]:
    used = {i for n in nodes for i in n.inputs}
    loose = [n.id for n in nodes if n.id not in used]
    return [*nodes, *(node(f"{id}-sink", write(), id) for id in loose)]

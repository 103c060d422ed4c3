"""What the plan says of each processor: how it runs and why, and what each sink guarantees."""

from __future__ import annotations

from drivetrain.api.columns import Column
from drivetrain.api.durations import told
from drivetrain.api.graph import (
    Aggregate,
    Deduplicate,
    EventTime,
    Filter,
    FlatMap,
    Fold,
    Function,
    Graph,
    JoinStream,
    JoinTable,
    Late,
    LatePanes,
    Log,
    Map,
    Node,
    Process,
    Read,
    Refine,
    Select,
    Table,
    Union,
    Write,
)
from drivetrain.api.persistent import Persistent
from drivetrain.core.delivery import sink_guarantee
from drivetrain.core.plan import How, PlannedOperator, PlannedSink

_PYTHON = "a Python function: consecutive ones run as one Arrow function, a batch at a time"
_NATIVE = "Spark expressions: code-generated"
_STRENGTH = ("at most once", "at least once", "exactly once")


def dead_letters(node: Node) -> bool:
    """Whether a processor may send messages to the dead letters."""
    operation = node.operation
    if isinstance(operation, Read):
        return getattr(operation.source, "on_bad_record", "fail") == "dead_letter"
    return any(f.on_error == "dead_letter" for f in functions(node))


def functions(node: Node) -> list[Function]:
    """The Python functions that a processor runs, in order."""
    operation = node.operation
    if isinstance(operation, Map | FlatMap):
        return [operation.function]
    if isinstance(operation, Filter):
        return [operation.condition] if isinstance(operation.condition, Function) else []
    if isinstance(operation, Select):
        return [c for _, c in operation.columns if isinstance(c, Function)]
    if isinstance(operation, Aggregate | Fold):
        return [c for _, c in operation.keys if isinstance(c, Function)]
    return []


def describe(node: Node, graph: Graph) -> PlannedOperator:
    """The plan's line about a processor."""
    how, why = _how(node)
    operation = node.operation
    return PlannedOperator(
        id=node.id,
        kind=type(operation).__name__.lower(),
        how=how,
        why=why,
        where=str(node.where),
        told=_told(node),
        parallelism=operation.parallelism if isinstance(operation, Process) else None,
    )


def _how(node: Node) -> tuple[How, str]:
    operation = node.operation
    match operation:
        case Read() | Table():
            return "source", "read by Spark"
        case Write() | Log():
            return "sink", "written once per batch"
        case Fold():
            return "task", "a Python state: kept in Spark's keyed state, one group per bucket"
        case Process(persistent=Persistent()):
            return "task", "a persistent Task: kept in Spark's keyed state, one group per bucket of keys"
        case Process(stateful=True):
            return "task", "a stateful Task: kept in Spark's keyed state, one group per task"
        case Process():
            return "arrow", "a Task: one instance per Spark partition"
        case Map() | FlatMap():
            return "arrow", _PYTHON
        case _ if functions(node):
            return "arrow", _PYTHON
        case _:
            return "native", _NATIVE


def _told(node: Node) -> str:  # noqa: C901 - one short line per operation is the simplest form
    match node.operation:
        case Read(source) | Table(source):
            names = (getattr(source, name, None) for name in ("path", "host", "name"))
            where = next(filter(None, names), "")
            return f"{type(source).__name__} {where}".strip()
        case Write(sink=sink):
            return target(sink)
        case Map(function) | FlatMap(function):
            return f"→ {function.type}"
        case Filter(condition):
            return str(condition) if isinstance(condition, Column) else "by a function"
        case Select(columns):
            return ", ".join(name or str(c) for name, c in columns)
        case EventTime(column, disorder_ms, partition, partitions):
            each = "" if partition is None else f" in each of {len(partitions)} partitions by {partition}"
            return f"{column}, out of order by at most {told(disorder_ms)}{each}"
        case Aggregate(keys, window, aggregations):
            by = ", ".join(name for name, _ in keys)
            return f"{', '.join(f'{n}={a}' for n, a in aggregations)} by {by or 'everything'} in {window}"
        case Fold(keys, window, monoid):
            return f"{type(monoid).__name__} by {', '.join(n for n, _ in keys) or 'everything'} in {window}"
        case JoinStream(on, within_ms, how):
            return f"{how} on {', '.join(on)} within {told(within_ms)}"
        case JoinTable(on, how):
            return f"{how} on {', '.join(on)}"
        case Deduplicate(keys, within_ms):
            return f"first of {', '.join(keys)} within {told(within_ms)}"
        case Process(persistent=Persistent(state, keys)):
            # What the state is, and no more: a Task of another name or parallelism goes on with it.
            return f"{state} by {', '.join(keys) or 'its own key'}"
        case Process() as p:
            return f"{p.task_name} × {p.parallelism}, by {', '.join(map(str, p.partitioners))}"
        case Late(of):
            return f"messages too late for {of}"
        case LatePanes(aggregate):
            return f"late messages of each batch, up to {told(aggregate.window.allowed_lateness_ms)} late"
        case Refine(aggregate):
            return f"whole results again, up to {told(aggregate.window.allowed_lateness_ms)} late"
        case Union():
            return "all inputs"
        case Log(limit):
            return f"up to {limit} messages a batch"


def target(sink: object) -> str:
    """A sink as plans and errors name it."""
    path = getattr(sink, "name", None) or getattr(sink, "path", None) or ""
    form = getattr(sink, "format", None)
    return f"{type(sink).__name__} {path}{f' ({form})' if form else ''}".strip()


def guarantees(graph: Graph) -> tuple[tuple[PlannedSink, ...], str]:
    """What each sink gives in this application, and the weakest of them: the application's."""
    limit = next((n for n in graph.nodes.values() if isinstance(n.operation, Read) and _lossy(n)), None)
    sinks: list[PlannedSink] = []
    for node in graph.nodes.values():
        if isinstance(node.operation, Write):
            given, why = str(node.operation.sink.guarantee), "every channel and this sink are idempotent"
            if given != "exactly once":
                why = "a batch that is replayed after a crash is written again"
            why = getattr(node.operation.sink, "why", why)
            if limit is not None and _STRENGTH.index(given) > 0:
                why += f"; what {limit.id} had not stored yet when a process died is lost at its origin"
            given, why = sink_guarantee(given, why, graph.delivery)
            sinks.append(PlannedSink(node.id, target(node.operation.sink), given, why))
    weakest = min((s.guarantee for s in sinks), key=_STRENGTH.index, default="exactly once")
    return tuple(sinks), weakest


def _lossy(node: Node) -> bool:
    assert isinstance(node.operation, Read)
    return type(node.operation.source).__name__ == "Socket"

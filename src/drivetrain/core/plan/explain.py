"""The plan's description of each processor: how it runs and why, and what each sink guarantees."""

from __future__ import annotations

from drivetrain.api.graphs.graph import Graph, Node
from drivetrain.api.operations import Process, sink_text
from drivetrain.core.plan.delivery import sink_guarantee
from drivetrain.core.plan.plan import PlannedOperator, PlannedSink

_STRENGTH = ("at most once", "at least once", "exactly once")


def describe(node: Node) -> PlannedOperator:
    """The plan's line for a processor."""
    operation = node.operation
    how, why = operation.runs
    return PlannedOperator(
        id=node.id,
        kind=type(operation).__name__.lower(),
        how=how,
        why=why,
        where=str(node.where),
        text=operation.described,
        parallelism=operation.parallelism if isinstance(operation, Process) else None,
    )


def guarantees(graph: Graph) -> tuple[tuple[PlannedSink, ...], str]:
    """The guarantee of each sink in this application, and the weakest of them, which is the application's."""
    declared = [(n.id, getattr(n.operation.stream_source, "caveat", None)) for n in graph.nodes.values()]
    caveats = "".join(f"; {id}: {caveat}" for id, caveat in declared if caveat is not None)
    sinks: list[PlannedSink] = []
    for node in graph.nodes.values():
        sink = node.operation.target
        if sink is not None:
            given, why = str(sink.guarantee), "every channel and this sink are idempotent"
            if given != "exactly once":
                why = "a batch that is replayed after a crash is written again"
            why = getattr(sink, "why", why)
            if _STRENGTH.index(given) > 0:
                why += caveats
            given, why = sink_guarantee(given, why, graph.delivery)
            sinks.append(PlannedSink(node.id, sink_text(sink), given, why))
    weakest = min((s.guarantee for s in sinks), key=_STRENGTH.index, default="exactly once")
    return tuple(sinks), weakest

"""The graph of an application: processors as nodes, each with a frozen operation.

Pure data. `Application` builds it, the planner reads it, layer `spark` compiles it.

Invariants (`Graph.check`):

1. Every input of a node is a node of the graph, and the nodes are in topological order.
2. Every processor leads to a sink, and every one but a source has an input.
3. Nothing reads from a sink, and a source reads from nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from drivetrain.api.location import Location
from drivetrain.api.operations import Operation
from drivetrain.api.sources import Source
from drivetrain.errors import GraphError


@dataclass(frozen=True)
class Node:
    """A processor: its id, its operation, the ids that it reads from, and the user's line that declares it.

    `cut` requests a channel before this processor, whatever the planner would choose.
    """

    id: str
    operation: Operation
    inputs: tuple[str, ...]
    where: Location
    cut: bool = False

    def __str__(self) -> str:
        return f"{self.id} ({self.where})"


Delivery: TypeAlias = Literal["exactly once", "at least once", "at most once"]
"""How often a message counts after a crash: see `drivetrain.core.plan.delivery`."""

Latency: TypeAlias = Literal["micro-batch", "realtime", "realtime where possible"]
"""How messages are processed: a batch at a time, or one by one in Spark's real-time mode."""


@dataclass(frozen=True)
class Graph:
    """An application's name and its processors by id, in topological order."""

    name: str
    nodes: Mapping[str, Node]
    latency: Latency = "micro-batch"
    delivery: Delivery = "exactly once"

    def consumers(self, id: str) -> list[Node]:
        """The nodes that read from `id`, in order."""
        return [n for n in self.nodes.values() if id in n.inputs]

    def sources(self) -> list[Source]:
        """The sources that are read as streams, in order."""
        found = (node.operation.stream_source for node in self.nodes.values())
        return [source for source in found if source is not None]

    def check(self) -> None:
        """Raise `GraphError` if an invariant of this module does not hold."""
        seen: set[str] = set()
        for node in self.nodes.values():
            missing = [i for i in node.inputs if i not in seen]
            if missing:
                raise GraphError(
                    f"reads from {missing[0]!r}, which is not defined before it", where=str(node)
                )
            seen.add(node.id)
            if node.inputs and node.operation.any_source is not None:
                raise GraphError("is a source, and cannot read from others", where=str(node))
            if not node.inputs and node.operation.any_source is None:
                raise GraphError(
                    "has no input",
                    where=str(node),
                    remedy="connect it to a source, or take it out of the graph",
                )
        if not any(n.operation.ends_stream for n in self.nodes.values()):
            raise GraphError(
                f"application {self.name!r} has no sink: nothing would leave it",
                remedy="end a stream with .sink(sinks.console()) or another sink",
            )
        for node in self.nodes.values():
            if node.operation.ends_stream:
                if self.consumers(node.id):
                    raise GraphError("is a sink, and nothing can read from it", where=str(node))
            elif not self.consumers(node.id):
                raise GraphError(
                    "has no successor: no processor and no sink reads from it",
                    where=str(node),
                    remedy="end it with .sink(...), or remove it; sinks.none() drops messages on purpose",
                )

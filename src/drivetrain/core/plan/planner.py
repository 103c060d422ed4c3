"""The planner: cuts a graph into fragments, each of which is one Spark query.

The rule is to fuse as much as possible. An edge becomes a channel only when

(a) both of its ends are stateful,
(b) the consumer is stateful and the producer (or something before it in its fragment) also feeds other
    consumers, which includes late messages and dead letters, or is a stateless Task with hooks for the
    clock or the end, or a join with a table that is read again,
(c) the user marked it with `cut()`,
(d) a union or a Task with several inputs joins fragments that cannot be fused,
(e) the consumer gathers messages for an interval (early results).

Why: a Spark query's state belongs to its plan, so a query holds at most one stateful operator; the processors
after it (the branches) run on each batch's result and may feed many outputs; the processors before it
feed the stateful operator alone.

Pure: reads a `Graph`, returns a `Plan`. Property-tested against the invariants of both modules and
against a naive placement.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Final, cast

from drivetrain.api.graphs.graph import Delivery, Graph, Latency, Node
from drivetrain.api.operations import Subscription
from drivetrain.core.plan.explain import describe, guarantees
from drivetrain.core.plan.lateness import with_lateness
from drivetrain.core.plan.plan import Fragment, Plan, PlannedChannel
from drivetrain.core.plan.realtime import obstacles

AS_DECLARED: Final = "as declared"


def plan(graph: Graph, latency: str = AS_DECLARED, delivery: str = AS_DECLARED) -> Plan:
    """Cut `graph` into fragments; raises `GraphError` when the graph is invalid.

    `latency` and `delivery` are the application's own by default (`AS_DECLARED`), or override it.
    """
    graph.check()
    if latency != AS_DECLARED:
        graph = dataclasses.replace(graph, latency=cast(Latency, latency))
    if delivery != AS_DECLARED:
        graph = dataclasses.replace(graph, delivery=cast(Delivery, delivery))
    graph = with_lateness(graph)
    draft = _Draft(graph)
    for node in graph.nodes.values():
        if not node.operation.is_table:
            draft.place(node)
    made = draft.finish()
    made.check()
    return made


@dataclass
class _Piece:
    """A fragment under construction."""

    inputs: list[str] = field(default_factory=list)
    nodes: list[str] = field(default_factory=list)
    stateful: str | None = None
    joined: str | None = (
        None  # the last processor that joined inputs: everything up to it belongs to the trunk
    )


class _Draft:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.pieces: list[_Piece] = []
        self.home: dict[str, _Piece] = {}
        self.channels: list[tuple[str, str, _Piece, str]] = []  # id, producer, consumer piece, why
        self.behind_cut: dict[str, _Piece] = {}

    def place(self, node: Node) -> None:
        if node.operation.stream_source is not None:
            self._new(node, inputs=[node.id])
            return
        upstream = [i for i in node.inputs if not self.graph.nodes[i].operation.is_table]
        pieces = _distinct([self.home[i] for i in upstream])
        reasons = [self._why_cut(node, i, joins=len(pieces) > 1) for i in upstream]
        if not any(reasons) and not self._share_a_producer(pieces):
            self._fuse(pieces, node)
        elif node.operation.keeps_state or len(upstream) > 1:
            self._behind_channels(node, upstream, [r or self._why_joined(node) for r in reasons])
        else:
            self._behind_cut(node, upstream[0], reasons[0] or "")

    def _why_cut(self, node: Node, producer: str, *, joins: bool) -> str | None:
        """Why the edge needs a channel, or None if the two ends may share a fragment.

        `joins` means that `node` reads from several fragments: to be fused, they must become its trunk.
        """
        if node.operation.reads_aside:
            return None  # it reads messages that are not in a channel after the producer
        if self.graph.nodes[producer].cut:
            return "the application asks for it with cut()"
        if node.operation.interval_ms is not None:
            return f"{node.id} waits between its batches, so messages wait in front of it"
        if not (node.operation.keeps_state or joins):
            return None
        piece = self.home[producer]
        if piece.stateful is not None:
            if not node.operation.keeps_state:
                return self._why_joined(node)
            return f"{piece.stateful} and {node.id} both keep state, and a query holds one stateful operator"
        letters = [i for i in self._ancestors(producer) if self.graph.nodes[i].operation.sets_aside]
        if letters:
            return f"{letters[0]} also feeds the dead letters"
        differing = [i for i in self._ancestors(producer) if self.graph.nodes[i].operation.differs_by_batch]
        if differing:
            return f"the table of {differing[0]} is read again, for batches of a query of its own"
        hearing = [i for i in self._ancestors(producer) if self.graph.nodes[i].operation.wants_clock]
        if hearing and node.operation.keeps_state:
            return f"{hearing[0]} hears the clock, which a batch of its own query knows"
        if not self._leads_only_to(producer, node):
            if not node.operation.keeps_state:
                return self._why_joined(node)
            return f"{node.id} keeps state, and what it reads also feeds other processors"
        return None

    def _share_a_producer(self, pieces: list[_Piece]) -> bool:
        # As one query they would read the same messages through two channels.
        producers = [p for _, p, c, _ in self.channels if any(c is piece for piece in pieces)]
        return len(set(producers)) < len(producers)

    def _why_joined(self, node: Node) -> str:
        return f"{node.id} joins fragments that run as separate queries"

    def _leads_only_to(self, producer: str, node: Node) -> bool:
        """Whether everything in the producer's fragment flows into `node` and nowhere else."""
        piece = self.home[producer]
        if piece.stateful is not None:
            return False
        inside = {*piece.nodes, node.id}
        return all(
            [c.id for c in self.graph.consumers(i)] and all(c.id in inside for c in self.graph.consumers(i))
            for i in piece.nodes
        ) and self._one_way(piece)

    def _one_way(self, piece: _Piece) -> bool:
        # A diamond inside a stateless prefix would run its first half twice; one consumer each avoids it.
        return all(len(self.graph.consumers(i)) == 1 for i in piece.nodes)

    def _ancestors(self, producer: str) -> list[str]:
        """Processors of the producer's fragment up to it, in order."""
        wanted, stack = set(), [producer]
        while stack:
            i = stack.pop()
            wanted.add(i)
            stack += [u for u in self.graph.nodes[i].inputs if self.home.get(u) is self.home[producer]]
        return [i for i in self.home[producer].nodes if i in wanted]

    def _new(self, node: Node, inputs: list[str]) -> _Piece:
        piece = _Piece(inputs=inputs)
        self.pieces.append(piece)
        self._add(piece, node)
        return piece

    def _add(self, piece: _Piece, node: Node) -> None:
        piece.nodes.append(node.id)
        self.home[node.id] = piece
        if node.operation.keeps_state:
            piece.stateful = node.id

    def _fuse(self, pieces: list[_Piece], node: Node) -> None:
        first = pieces[0]
        for other in pieces[1:]:
            first.inputs += other.inputs
            first.nodes += other.nodes
            for i in other.nodes:
                self.home[i] = first
            self.channels = [(n, p, first if c is other else c, w) for n, p, c, w in self.channels]
            self.pieces.remove(other)
        # A fragment must come after those whose channels it reads.
        self.pieces.remove(first)
        self.pieces.append(first)
        self._add(first, node)
        if len(pieces) > 1:
            first.joined = node.id

    def _behind_channels(self, node: Node, upstream: list[str], reasons: list[str]) -> None:
        piece = self._new(node, inputs=[])
        for producer, why in zip(upstream, reasons, strict=True):
            self._channel(producer, piece, why)
        if len(piece.inputs) > 1:
            piece.joined = node.id

    def _behind_cut(self, node: Node, producer: str, why: str) -> None:
        """Stateless consumers of one cut share the fragment after it, until that has a trunk."""
        piece = self.behind_cut.get(producer)
        if piece is None or piece not in self.pieces or piece.stateful or piece.joined:
            piece = self._new(node, inputs=[])
            self._channel(producer, piece, why)
            self.behind_cut[producer] = piece
        else:
            self._add(piece, node)

    def _channel(self, producer: str, piece: _Piece, why: str) -> None:
        if any(p == producer and c is piece for _, p, c, _ in self.channels):
            return
        id = f"{producer}--{piece.nodes[0]}"
        self.channels.append((id, producer, piece, why))
        piece.inputs.append(id)

    def finish(self) -> Plan:
        ordered = self._ordered()
        ids = {id(p): p.stateful or p.nodes[0] for p in ordered}
        channels = tuple(
            PlannedChannel(name, producer, ids[id(self.home[producer])], ids[id(piece)], why)
            for name, producer, piece, why in self.channels
        )
        fragments = tuple(self._fragment(ids[id(p)], p) for p in ordered)
        sinks, guarantee = guarantees(self.graph)
        operators = {n.id: describe(n) for n in self.graph.nodes.values()}
        how = {o.id: o.how for o in operators.values()}
        return Plan(
            application=self.graph.name,
            graph=self.graph,
            fragments=fragments,
            channels=channels,
            operators=operators,
            sinks=sinks,
            guarantee=guarantee,
            bounded=all(source.bounded for source in self.graph.sources()),
            latency=self.graph.latency,
            delivery=self.graph.delivery,
            obstacles={f.id: obstacles(self.graph, f, channels, how) for f in fragments},
            subscriptions=tuple(
                self._subscription(node, ids)
                for node in self.graph.nodes.values()
                if node.operation.is_subscription
            ),
        )

    def _subscription(self, node: Node, ids: dict[int, str]) -> PlannedChannel:
        """The channel for another application."""
        operation = node.operation
        assert isinstance(operation, Subscription)
        home = ids[id(self.home[node.id])]
        why = f"the application {operation.reader} reads it"
        return PlannedChannel(
            f"{node.inputs[0]}--{node.id}.{operation.key}", node.inputs[0], home, node.id, why
        )

    def _ordered(self) -> list[_Piece]:
        """Pieces in topological order of their channels, otherwise in the order of their creation."""
        left, done = list(self.pieces), []
        while left:
            ready = next(
                p
                for p in left
                if not any(c is p and self.home[producer] in left for _, producer, c, _ in self.channels)
            )
            left.remove(ready)
            done.append(ready)
        return done

    def _fragment(self, id: str, piece: _Piece) -> Fragment:
        end = piece.stateful or piece.joined
        order = [i for i in self.graph.nodes if i in piece.nodes]
        if end is not None:
            trunk = [i for i in order if i in self._ancestors(end)]
        else:
            trunk = [i for i in order if self.graph.nodes[i].operation.stream_source is not None]
        branches = [i for i in order if i not in trunk]
        return Fragment(id, tuple(piece.inputs), tuple(trunk), tuple(branches), piece.stateful)


def _distinct(pieces: list[_Piece]) -> list[_Piece]:
    return list({id(p): p for p in pieces}.values())

"""The plan: which processors run together as one Spark query, and the channels between the queries.

Pure data, made by `core.plan.planner`, printed by the command line, drawn as a picture, compiled by layer
`spark`.

Invariants (`Plan.check`):

1. Every processor but tables runs in exactly one fragment.
2. A fragment has at most one stateful operator, and it is the last of its trunk.
3. A channel leads from one fragment to another, and fragments are in topological order.
4. An edge between fragments has one channel, which is an input of the fragment after it.
5. Inside a fragment a branch reads the end of the trunk or another branch: nothing else of a batch is
   available. Without a trunk it reads the one channel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from drivetrain.api.graphs.graph import Delivery, Graph, Latency
from drivetrain.api.graphs.views import views
from drivetrain.api.operations import How, Operation
from drivetrain.errors import InternalError


@dataclass(frozen=True)
class PlannedOperator:
    """How one processor runs (`how`) and why; `columns` is its output schema once Spark has analysed it."""

    id: str
    kind: str
    how: How
    why: str
    where: str
    text: str
    parallelism: int | None = None
    columns: str | None = None


@dataclass(frozen=True)
class PlannedChannel:
    """A durable log on the edge from processor `producer` to fragment `consumer_fragment`.

    `clocked` means that a stateful operator after it takes its watermark from the channel's clock.
    """

    id: str
    producer: str
    producer_fragment: str
    consumer_fragment: str
    why: str


@dataclass(frozen=True)
class PlannedSink:
    """A sink with its delivery guarantee in this application, and what limits it."""

    id: str
    target: str
    guarantee: str
    why: str


@dataclass(frozen=True)
class Obstacle:
    """An obstacle to Spark's real-time mode: the processor, and why."""

    processor: str
    why: str

    def __str__(self) -> str:
        return f"{self.processor} {self.why}"


@dataclass(frozen=True)
class Fragment:
    """The processors that run as one Spark streaming query.

    `inputs` are ids of sources and channels; `trunk` and `branches` are processor ids in topological
    order; `stateful` is the trunk's last processor when it keeps state.
    """

    id: str
    inputs: tuple[str, ...]
    trunk: tuple[str, ...]
    branches: tuple[str, ...]
    stateful: str | None

    @property
    def processors(self) -> tuple[str, ...]:
        """All processors of the fragment, trunk first."""
        return self.trunk + self.branches


@dataclass(frozen=True)
class Plan:
    """The whole application as fragments and channels, in topological order."""

    application: str
    graph: Graph
    fragments: tuple[Fragment, ...]
    channels: tuple[PlannedChannel, ...]
    operators: Mapping[str, PlannedOperator]
    sinks: tuple[PlannedSink, ...]
    guarantee: str
    bounded: bool
    latency: Latency = "micro-batch"
    delivery: Delivery = "exactly once"
    obstacles: Mapping[str, tuple[Obstacle, ...]] = field(default_factory=dict)
    """The obstacles to real-time mode, by fragment."""
    subscriptions: tuple[PlannedChannel, ...] = ()
    """The channels that other applications read; `consumer_fragment` is the processor of the subscription."""

    state_partitions: int = 0
    """Into how many parts a new state is divided; 0: one for each core."""

    def is_realtime(self, fragment: str) -> bool:
        """Whether a fragment runs in Spark's real-time mode."""
        return self.latency != "micro-batch" and not self.obstacles.get(fragment)

    def fragment_of(self, processor: str) -> Fragment:
        """The fragment that a processor runs in."""
        return next(f for f in self.fragments if processor in f.processors)

    def stateful_operation(self, fragment: Fragment) -> Operation | None:
        """The operation that keeps the state of `fragment`; None if it has none."""
        return None if fragment.stateful is None else self.graph.nodes[fragment.stateful].operation

    def channel(self, id: str) -> PlannedChannel:
        """The channel of that id."""
        return next(c for c in self.written_channels if c.id == id)

    @property
    def written_channels(self) -> tuple[PlannedChannel, ...]:
        """All channels that a fragment writes, also for other applications."""
        return self.channels + self.subscriptions

    def with_late_messages(self) -> tuple[str, ...]:
        """The processors that leave out late messages; lateness is decided before each batch."""
        return tuple(n.id for n in self.graph.nodes.values() if n.operation.has_late_messages)

    def outputs(self, fragment: str) -> tuple[PlannedChannel, ...]:
        """The channels that a fragment writes, also for other applications."""
        return tuple(c for c in self.written_channels if c.producer_fragment == fragment)

    def edges(self) -> list[tuple[str, str]]:
        """All edges between processors, as (from, to)."""
        return [(i, n.id) for n in self.graph.nodes.values() for i in n.inputs]

    def _repr_svg_(self) -> str:
        """Its picture, for notebooks."""
        return views().draw(self)

    def as_dict(self) -> dict[str, Any]:
        """The plan as plain data for `--json`."""
        return {
            "application": self.application,
            "bounded": self.bounded,
            "guarantee": self.guarantee,
            "latency": self.latency,
            "delivery": self.delivery,
            "fragments": [
                {
                    **asdict(f),
                    "realtime": self.is_realtime(f.id),
                    "obstacles": [asdict(o) for o in self.obstacles.get(f.id, ())],
                    "state_partitions": self.state_partitions if f.stateful is not None else None,
                }
                for f in self.fragments
            ],
            "channels": [asdict(c) for c in self.channels],
            "subscriptions": [asdict(c) for c in self.subscriptions],
            "operators": [asdict(o) for o in self.operators.values()],
            "sinks": [asdict(s) for s in self.sinks],
            "edges": [list(e) for e in self.edges()],
            "late": {"decided": "by the clock before each batch", "at": list(self.with_late_messages())},
        }

    def check(self) -> None:
        """Raise `InternalError` if an invariant of this module does not hold."""
        placed = [p for f in self.fragments for p in f.processors]
        tables = {n.id for n in self.graph.nodes.values() if type(n.operation).__name__ == "Table"}
        if sorted(placed) != sorted(set(self.graph.nodes) - tables):
            raise InternalError(f"processors are not placed exactly once: {placed}")
        order = {f.id: i for i, f in enumerate(self.fragments)}
        for f in self.fragments:
            if f.stateful is not None and f.trunk[-1] != f.stateful:
                raise InternalError(f"{f.id}: the stateful operator {f.stateful} is not the end of the trunk")
        for c in self.channels:
            if order[c.producer_fragment] >= order[c.consumer_fragment]:
                raise InternalError(f"channel {c.id} does not lead forward")
        for up, down in self.edges():
            if up not in tables:
                self._check_edge(up, down)

    def _check_edge(self, up: str, down: str) -> None:
        ours, theirs = self.fragment_of(up), self.fragment_of(down)
        if ours is theirs:
            if down in ours.branches and up not in (*ours.trunk[-1:], *ours.branches):
                raise InternalError(f"{down} reads {up}, which is inside the trunk of {ours.id}")
            return
        if down in theirs.branches and theirs.trunk:
            raise InternalError(f"{down} reads a channel, and the trunk of {theirs.id} does not")
        between = [c for c in self.channels if c.producer == up and c.consumer_fragment == theirs.id]
        if len(between) != 1 or between[0].id not in theirs.inputs:
            raise InternalError(f"the edge from {up} to {down} does not have one channel")

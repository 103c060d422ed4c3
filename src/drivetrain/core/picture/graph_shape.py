"""The parts of a graph that have a place in a picture, without what they do.

Problem: pictures show plans, and also two versions of a graph at once, whose plans no longer exist.

Design: fragments with the ids of their processors, channels, and what each processor reads. Both kinds of
pictures are placed from that.

Invariants, which the modules that make shapes ensure:
1. Fragments are in the order in which messages pass them, and so are the processors in `inputs`.
2. Two processors of different fragments, one of which reads the other, have a channel between them.

Called by `core.picture.labels` and `core.picture.merged_shape`, which make these, and by the modules that
place them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from drivetrain.core.plan.plan import Plan


@dataclass(frozen=True, slots=True)
class FragmentShape:
    """A fragment with the ids of its processors; `stateful` is the one that keeps state."""

    id: str
    trunk: tuple[str, ...]
    branches: tuple[str, ...]
    stateful: str | None

    @property
    def processors(self) -> tuple[str, ...]:
        """Those of the trunk, then those of the branches."""
        return (*self.trunk, *self.branches)


@dataclass(frozen=True, slots=True)
class ChannelShape:
    """A channel, from a processor in one fragment to another fragment."""

    id: str
    producer: str
    producer_fragment: str
    consumer_fragment: str


@dataclass(frozen=True, slots=True)
class GraphShape:
    """A graph; `inputs` are the processors that each processor reads. Tables belong to no fragment."""

    fragments: tuple[FragmentShape, ...]
    channels: tuple[ChannelShape, ...]
    inputs: Mapping[str, tuple[str, ...]]
    tables: frozenset[str]

    def outputs(self, fragment: str) -> tuple[ChannelShape, ...]:
        """The channels that a fragment writes."""
        return tuple(each for each in self.channels if each.producer_fragment == fragment)


def shape_of(plan: Plan) -> GraphShape:
    """The shape of a planned graph."""
    nodes = plan.graph.nodes
    return GraphShape(
        fragments=tuple(FragmentShape(f.id, f.trunk, f.branches, f.stateful) for f in plan.fragments),
        channels=tuple(
            ChannelShape(c.id, c.producer, c.producer_fragment, c.consumer_fragment) for c in plan.channels
        ),
        inputs={id: tuple(node.inputs) for id, node in nodes.items()},
        tables=frozenset(id for id, node in nodes.items() if type(node.operation).__name__ == "Table"),
    )

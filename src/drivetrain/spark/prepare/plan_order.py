"""The order in which Spark numbers the inputs of a query.

Problem: Spark's offset log and its `sources` folder identify inputs by number only: by the place of their
leaf in the query's plan, from left to right. The graph has another order: that of declaration.

Design: the trunk is compiled in the order of the plan: depth first, from its last processor, the inputs of
each in their order. Inputs are recorded as they are opened, so their order is Spark's. A clock stream is the
right side of a union with its stream: it follows that stream, and comes before the next input.

Called by `fragment`.
"""

from __future__ import annotations

from collections.abc import Iterator

from drivetrain.api.graphs.graph import Node
from drivetrain.core.plan.plan import Fragment, Plan


def in_plan_order(plan: Plan, fragment: Fragment) -> Iterator[tuple[Node, str | None]]:
    """The processors of the trunk, each after its inputs; a channel is yielded with its reader."""
    nodes, members = plan.graph.nodes, set(fragment.trunk)
    seen: set[str] = set()
    stack: list[tuple[Node, int]] = [(nodes[id], 0) for id in fragment.trunk[-1:]]
    while stack:
        node, index = stack.pop()
        if index == len(node.inputs):
            yield node, None
            continue
        stack.append((node, index + 1))
        producer = node.inputs[index]
        channel = channel_from(plan, fragment, producer)
        if channel is not None:
            yield node, channel
        elif producer in members and producer not in seen:
            seen.add(producer)
            stack.append((nodes[producer], 0))


def channel_from(plan: Plan, fragment: Fragment, producer: str) -> str | None:
    """The channel by which a processor of another fragment reaches this one."""
    found = (c.id for c in plan.channels if c.producer == producer and c.consumer_fragment == fragment.id)
    return next(found, None)

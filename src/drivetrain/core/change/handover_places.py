"""Where a fragment divides its messages when a version hands over at a time T, and which times are valid.

Problem: messages before T are for the old version and the others for the new one. That is exact only if every
message has one time where the versions differ, if both versions give it that time, and if nothing of T or
later was processed before. A result of a window has one time, but stands for all messages of its window.

Design: messages are divided where they get their event time: at the root of the branches if they arrive with
it, and after the processors `event_time` of the branches if they do not. Everything before that place runs
once, for both versions, and must not differ.

| messages of the branches | time of a message | valid T |
|---|---|---|
| from sources | its event time | any after the newest message so far |
| results of tumbling windows | the window's last millisecond | a boundary of the windows after the clock |
| results of sliding windows, sessions, joins, deduplications, Tasks, the global window | | none |

Invariants:

1. On every path from a source to a processor that differs there is exactly one place.
2. No window of a result contains both a time before T and T.

Called by `spark.run.handover_times`, application masters and, for the places, `spark.batch.handover_frames`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from drivetrain.api.durations import duration_text
from drivetrain.api.graphs.graph import Graph, Node
from drivetrain.api.moments import moment_text
from drivetrain.api.operations import LateMessages, LatePanes
from drivetrain.core.change.graph_version import GraphVersion
from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS, NO_CLOCK_MS
from drivetrain.core.plan.plan import Fragment, Plan
from drivetrain.errors import UserError

_AT_ONCE = "use --at now: then the change takes effect with the next batch"


class HandoverError(UserError):
    """A change cannot take effect at that time; nothing has changed."""

    code = "cannot-take-effect-then"


@dataclass(frozen=True)
class Places:
    """Where messages are divided: after the processors `at`. `shared` are the branches' processors that run
    once for both versions: those of `at`, and what comes before them or reads messages without time."""

    at: frozenset[str]
    shared: frozenset[str] = frozenset()


def places(plan: Plan, fragment: Fragment) -> Places:
    """Where a fragment divides its messages; raises HandoverError if some have no time, or two times."""
    graph = plan.graph
    of_branches = [id for id in fragment.branches if graph.nodes[id].operation.assigned_time is not None]
    roots = _roots(plan, fragment)
    if all(_has_time(graph, id) for id in roots):
        for id in of_branches:
            raise _refused(
                "a processor gives messages another event time than the one they have", graph.nodes[id]
            )
        return Places(frozenset(roots))
    behind = _behind(graph, fragment, of_branches)
    for id in behind:
        if id in of_branches:
            raise _refused("a processor gives messages another event time", graph.nodes[id])
        for input in _streams(graph, id):
            if input not in behind and input not in of_branches:
                raise _refused("a processor gets some messages without event time", graph.nodes[id])
    shared = frozenset(id for id in fragment.branches if id not in behind)
    return Places(frozenset(of_branches), shared)


def require_same_places(old: Plan, new: Plan, versions: tuple[GraphVersion, GraphVersion], id: str) -> Places:
    """Return where fragment `id` of both versions divides its messages.

    Raises HandoverError if a shared processor differs, or a sink of both versions: it would have to write in
    two ways in one batch.
    """
    before, after = (next(f for f in plan.fragments if f.id == id) for plan in (old, new))
    found, of_old = places(new, after), places(old, before)
    same = _same(*versions)
    for shared in sorted(found.shared | of_old.shared):
        node = new.graph.nodes.get(shared) or old.graph.nodes[shared]
        read = {shared, *(i for i in node.inputs if node.id in new.graph.nodes and _is_table(new.graph, i))}
        if not read <= same:
            raise _refused("a processor differs whose messages have no event time yet", node)
    if found != of_old:
        differing = min((found.at ^ of_old.at) | (found.shared ^ of_old.shared))
        node = new.graph.nodes.get(differing) or old.graph.nodes[differing]
        raise _refused("the versions give messages their event time at different places", node)
    for sink in after.branches:
        node = new.graph.nodes[sink]
        if sink in before.branches and node.operation.target is not None:
            records = [version.processors[sink] for version in versions]
            if len({(r.shown, r.fingerprint) for r in records}) > 1:
                raise _refused(
                    "a sink differs, which would have to write in both ways in one batch",
                    node,
                    "give the new one another name, or use --at now",
                )
    return found


def window_sizes(plan: Plan, fragment: Fragment) -> frozenset[int]:
    """The sizes in ms of the windows whose results reach the branches of a fragment without other state.

    Raises HandoverError if results of another operation do, which T could cut in two.
    """
    sizes: set[int] = set()
    stack = list(_roots(plan, fragment))
    while stack:
        node = plan.graph.nodes[stack.pop()]
        if isinstance(node.operation, LateMessages | LatePanes):
            raise _refused("late messages are older than the clock, whatever T is", node)
        if node.operation.keeps_state:
            sizes.add(_size_of(node))
        elif node.operation.assigned_time is not None and _has_state_above(plan.graph, node.id):
            raise _refused("results of a state get another event time", node)
        else:
            stack += _streams(plan.graph, node.id)
    return frozenset(sizes)


def _size_of(node: Node) -> int:
    window = node.operation.grouping_window
    if window is None:
        raise _refused("its results come from messages of different times", node)
    if window.kind == "sliding":
        raise _refused("its windows overlap, so every time lies within one of them", node)
    if window.kind != "tumbling":
        raise _refused(f"a {window.kind} window has no boundaries that are known before", node)
    if window.emission != "discarding":
        raise _refused("its windows emit more than one result", node)
    return window.size_ms


def earliest_ms(newest_ms: int | None, sizes: Iterable[int]) -> int:
    """The first valid time after the newest processed message; raises HandoverError if there is none.

    >>> earliest_ms(5_000, ()), earliest_ms(5_000, (2_000, 3_000))
    (5001, 6000)
    """
    if newest_ms is None:
        raise HandoverError(
            "no message has come yet, so there is no next window",
            remedy="give a time, or wait for the first message",
        )
    step = math.lcm(1, *sizes)
    return (newest_ms // step + 1) * step


def chosen_time(at: int | Literal["next-window"], newest_ms: int | None, sizes: Iterable[int]) -> int:
    """The time at which a change takes effect, `newest_ms` being the newest message that was processed.

    Raises HandoverError when it cannot take effect then, or if there is no next window.

    >>> chosen_time(6_000, 5_000, ()), chosen_time("next-window", 5_000, (2_000, 3_000))
    (6000, 6000)
    """
    sizes = sorted(sizes)
    if at != "next-window":
        require_time(at, newest_ms, sizes)
        return at
    if not sizes:
        raise HandoverError(
            "no changed processor follows a window, so there is no next one",
            remedy="give a time, or use --at now",
        )
    return earliest_ms(newest_ms, sizes)


def require_time(at_ms: int, newest_ms: int | None, sizes: Iterable[int]) -> None:
    """Raise HandoverError, with the next valid times, unless a change can take effect at a time."""
    sizes = sorted(sizes)
    if not NO_CLOCK_MS < at_ms < FINAL_CLOCK_MS:
        raise HandoverError(
            "a change cannot take effect at that time", expected="an event time", got=str(at_ms)
        )
    first = at_ms if newest_ms is None else max(at_ms, newest_ms + 1)
    step = math.lcm(1, *sizes)
    next_ms = -(-first // step) * step
    several = ", ".join(moment_text(next_ms + n * step) for n in range(3 if sizes else 1))
    if newest_ms is not None and at_ms <= newest_ms:
        raise HandoverError(
            "messages of that time and later are processed already",
            got=f"--at {moment_text(at_ms)}; the newest message is of {moment_text(newest_ms)}",
            expected=f"a later time: {several}",
            remedy="take one of these, or --at now",
        )
    if at_ms % step:
        cut = next(size for size in sizes if at_ms % size)
        raise HandoverError(
            f"that time lies within a window of {duration_text(cut)}, whose result belongs to one version",
            got=f"--at {moment_text(at_ms)}",
            expected=f"a boundary of the windows: {several}",
            remedy="take one of these, or --at next-window",
        )


# -- parts --------------------------------------------------------------------------------------------


def _roots(plan: Plan, fragment: Fragment) -> tuple[str, ...]:
    """The processors whose messages reach the branches of a fragment."""
    if fragment.trunk:
        return fragment.trunk[-1:]
    return tuple(c.producer for c in plan.channels if c.consumer_fragment == fragment.id)


def _has_time(graph: Graph, id: str) -> bool:
    """Whether the messages of a processor have event time."""
    node = graph.nodes[id]
    if node.operation.assigned_time is not None or node.operation.keeps_state:
        return True
    inputs = _streams(graph, id)
    return bool(inputs) and all(_has_time(graph, input) for input in inputs)


def _has_state_above(graph: Graph, id: str) -> bool:
    return any(
        graph.nodes[input].operation.keeps_state or _has_state_above(graph, input)
        for input in _streams(graph, id)
    )


def _behind(graph: Graph, fragment: Fragment, of: Iterable[str]) -> set[str]:
    """The processors of the branches that messages reach from some of them."""
    known, found = set(of), set()
    for id in fragment.branches:  # in topological order
        if known & set(_streams(graph, id)):
            known.add(id)
            found.add(id)
    return found


def _streams(graph: Graph, id: str) -> tuple[str, ...]:
    return tuple(input for input in graph.nodes[id].inputs if not _is_table(graph, input))


def _is_table(graph: Graph, id: str) -> bool:
    return graph.nodes[id].operation.is_table


def _same(old: GraphVersion, new: GraphVersion) -> set[str]:
    """The processors that both versions define alike, with what they read."""
    return {
        id
        for id in old.processors.keys() & new.processors.keys()
        if (old.processors[id].shown, old.processors[id].fingerprint, old.processors[id].inputs)
        == (new.processors[id].shown, new.processors[id].fingerprint, new.processors[id].inputs)
    }


def _refused(why: str, node: Node, remedy: str = _AT_ONCE) -> HandoverError:
    return HandoverError(
        "the change cannot take effect at an event time", where=str(node), got=why, remedy=remedy
    )

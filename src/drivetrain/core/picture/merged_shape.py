"""Two versions of a graph as one graph, so that both have a place in one picture.

Problem: a picture of a difference has to show what is gone beside what is new, and a node that both versions
have at one place. Two acyclic graphs may make a cycle together, and a processor may have moved to another
fragment.

Design: a processor stands where the newer version has it, or else where the older one had it. All edges of
the newer version are drawn, and those of the older one that the order of the rest allows. An edge that is
left out is named in the table beside the picture: its processor has changed.

Invariants:
1. The result fulfils those of `GraphShape`, whatever the versions are.
2. Every processor of either version is in it once, except for tables, which belong to no fragment.
3. It is the same for the same two versions, so nothing jumps.

Called by `core.picture.compared_graph`.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable

from drivetrain.core.change.graph_version import GraphVersion
from drivetrain.core.picture.graph_shape import ChannelShape, FragmentShape, GraphShape

Edges = dict[tuple[str, str], None]
"""Pairs of what is read and what reads it, in an order."""


def merged_shape(old: GraphVersion, new: GraphVersion) -> GraphShape:
    """One graph with the processors of both versions."""
    home = {id: version.fragment_of(id) for version in (old, new) for id in version.processors}
    edges = _edges(old, new, home)
    ids = _ordered(dict.fromkeys((*new.processors, *old.processors)), edges)
    in_trunk = _trunks(old, new, home, ids, edges)
    drawn = {
        (upper, lower): None
        for upper, lower in edges
        if not (home[upper] == home[lower] and lower in in_trunk and upper not in in_trunk and home[upper])
    }
    channels = _channels(old, new, home, drawn)
    names = {name for name in home.values() if name is not None}
    between: Edges = {(each.producer_fragment, each.consumer_fragment): None for each in channels}
    known = [name for name in dict.fromkeys((*new.fragments, *old.fragments)) if name in names]
    return GraphShape(
        fragments=tuple(_fragment(old, new, name, home, ids, in_trunk) for name in _ordered(known, between)),
        channels=tuple(channels),
        inputs={id: tuple(upper for upper, lower in drawn if lower == id) for id in ids},
        tables=frozenset(id for id in ids if home[id] is None),
    )


def _edges(old: GraphVersion, new: GraphVersion, home: dict[str, str | None]) -> Edges:
    """The edges of the newer version, and those of the older one with which there is still an order."""
    edges: Edges = {(upper, id): None for id, record in new.processors.items() for upper in record.inputs}
    below: dict[str, set[str]] = {}
    fragments_below: dict[str, set[str]] = {}

    def add(upper: str, lower: str) -> None:
        below.setdefault(upper, set()).add(lower)
        ends = home[upper], home[lower]
        if ends[0] is not None and ends[1] is not None and ends[0] != ends[1]:
            fragments_below.setdefault(ends[0], set()).add(ends[1])

    for upper, lower in edges:
        add(upper, lower)
    for id, record in old.processors.items():
        for upper in record.inputs:
            if (upper, id) in edges or _reaches(below, id, upper):
                continue
            ends = home[upper], home[id]
            if ends[1] is None or (
                ends[0] is not None and ends[0] != ends[1] and _reaches(fragments_below, ends[1], ends[0])
            ):
                continue
            edges[upper, id] = None
            add(upper, id)
    return edges


def _reaches(below: dict[str, set[str]], start: str, goal: str) -> bool:
    """Whether messages of one can reach the other."""
    seen, left = {start}, [start]
    while left:
        one = left.pop()
        if one == goal:
            return True
        new = below.get(one, set()) - seen
        seen |= new
        left += new
    return False


def _ordered(ids: Iterable[str], edges: Collection[tuple[str, str]]) -> list[str]:
    """The ids so that every edge leads forward, otherwise in the order in which they come."""
    names = list(ids)
    number = {id: at for at, id in enumerate(names)}
    below: dict[str, list[str]] = {}
    missing = dict.fromkeys(names, 0)
    for upper, lower in edges:
        below.setdefault(upper, []).append(lower)
        missing[lower] += 1
    ready = [number[id] for id in names if not missing[id]]
    ordered: list[str] = []
    while ready:
        ordered.append(names[heapq.heappop(ready)])
        for lower in below.get(ordered[-1], ()):
            missing[lower] -= 1
            if not missing[lower]:
                heapq.heappush(ready, number[lower])
    return ordered


def _trunks(
    old: GraphVersion, new: GraphVersion, home: dict[str, str | None], ids: list[str], edges: Edges
) -> set[str]:
    """The processors in a trunk; a removed one is in it if everything that it read is."""
    found: set[str] = set()
    for id in ids:
        name = home[id]
        if name is None:
            continue
        if id in new.processors:
            if id in new.fragments[name].trunk:
                found.add(id)
        elif id in old.fragments[name].trunk:
            read = [upper for upper, lower in edges if lower == id and home[upper] == name]
            if found.issuperset(read):
                found.add(id)
    return found


def _channels(
    old: GraphVersion, new: GraphVersion, home: dict[str, str | None], edges: Edges
) -> list[ChannelShape]:
    """A channel for each edge between fragments, with the name that it has in a version that has it."""
    found: dict[tuple[str, str], ChannelShape] = {}
    for producer, reader in edges:
        writes, reads = home[producer], home[reader]
        if writes is None or reads is None or writes == reads:
            continue
        name = _recorded(new, producer, reads) or _recorded(old, producer, reads) or f"{producer}--{reads}"
        found.setdefault((producer, reads), ChannelShape(name, producer, writes, reads))
    return list(found.values())


def _recorded(version: GraphVersion, producer: str, fragment: str) -> str | None:
    """The name of the channel in which a fragment of a version reads a processor, if there is one."""
    if fragment not in version.fragments:
        return None
    read = [input for inputs in version.producers(fragment).values() for input in inputs]
    for channel in version.channels(fragment):
        of = [input for input in read if channel.startswith(f"{input}--")]
        if of and max(of, key=len) == producer:
            return channel
    return None


def _fragment(
    old: GraphVersion,
    new: GraphVersion,
    name: str,
    home: dict[str, str | None],
    ids: list[str],
    in_trunk: set[str],
) -> FragmentShape:
    own = [id for id in ids if home[id] == name]
    record = new.fragments.get(name) or old.fragments[name]
    return FragmentShape(
        id=name,
        trunk=tuple(id for id in own if id in in_trunk),
        branches=tuple(id for id in own if id not in in_trunk),
        stateful=record.stateful,
    )

"""Which fragments cannot start in, or leave, a running application, and why.

Problem: a fragment that starts begins with an empty state. A source that moves into it would be read from its
beginning again; a sink that moves into it would mistake its first batches for old ones. And a fragment that
leaves cannot read an unbounded source to its end.

| an added or removed fragment | is refused because of |
|---|---|
| with a source that another fragment reads, in the other version | the source |
| with a sink that another fragment writes to, in the other version | the sink |
| that is removed, keeps state, and reads a source itself, unless it is discarded | the source |
| in an application that makes checkpoints | everything in it |

Neither can a channel get another producer or another subscriber: its entries, and the acknowledgements of
them, belong to these fragments.

Called by `core.change.difference`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from drivetrain.core.change.graph_version import GraphVersion

_SINK: Final = "write"


def refused_moves(
    old: GraphVersion, new: GraphVersion, *, has_checkpoints: bool, discards: bool
) -> dict[str, str]:
    """The processors that keep fragments from starting or leaving, each with the reason."""
    found: dict[str, str] = {}
    starts = [id for id in new.fragments if id not in old.fragments]
    goes = [id for id in old.fragments if id not in new.fragments]
    for version, fragments in ((new, starts), (old, goes)):
        for fragment in fragments:
            if has_checkpoints:
                found |= dict.fromkeys(_processors(version, fragment), _OF_CHECKPOINTS)
    found |= dict(_moved(old, new))
    found |= dict(_in_another_channel(old, new))
    if not discards:
        for fragment in goes:
            found |= dict(_endless(old, fragment))
    return found


_OF_CHECKPOINTS: Final = (
    "the application makes checkpoints, and no fragment can begin or stop taking part in them while it runs"
)


def _moved(old: GraphVersion, new: GraphVersion) -> Iterator[tuple[str, str]]:
    for id in new.processors.keys() & old.processors.keys():
        before, after = old.fragment_of(id), new.fragment_of(id)
        if before == after or before is None or after is None:
            continue
        if before in new.fragments and after in old.fragments:
            continue  # neither is added or removed: their trunks decide whether it fits
        if id in new.sources(after):
            yield (
                id,
                f"fragment {before} has read it, and fragment {after} would begin anew; cut() fixes a place",
            )
        elif new.processors[id].kind == _SINK:
            yield id, f"it has batches of fragment {before}, not of {after}: give it another name"


def _in_another_channel(old: GraphVersion, new: GraphVersion) -> Iterator[tuple[str, str]]:
    before = {channel: (id, home) for id in old.fragments for channel, home in _producers(old, id)}
    for id in new.fragments:
        for channel, home in _producers(new, id):
            reader, writer = before.get(channel, (id, home))
            if (reader, writer) != (id, home):
                first = (*new.fragments[id].trunk, *new.fragments[id].branches)[0]
                yield first, f"channel {channel} leads from {writer} to {reader}: give {first} another name"


def _producers(version: GraphVersion, fragment: str) -> Iterator[tuple[str, str]]:
    yield from version.channel_producers(fragment).items()


def _endless(old: GraphVersion, fragment: str) -> Iterator[tuple[str, str]]:
    record = old.fragments[fragment]
    if record.stateful is None:
        return
    for source in old.sources(fragment):
        yield source, f"the windows of {record.stateful} would wait for its end: --discard gives them up"


def _processors(version: GraphVersion, fragment: str) -> tuple[str, ...]:
    record = version.fragments[fragment]
    return (*record.trunk, *record.branches)

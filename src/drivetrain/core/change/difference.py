"""What differs between two versions of a graph, processor by processor, and whether state allows it.

Problem: somebody has edited an application that has state. Some edits touch nothing that the state depends
on; others would make a query continue with the state of something else.

Design: a fragment's query continues if it reads the same inputs and its trunk is the same, because its
checkpoint depends on these. So a fragment whose inputs and trunk are described as before *fits*. Branches are
compiled anew for every batch, and may change. A function in a trunk may change its code:
a checkpoint depends only on its being there.

| fate | meaning |
|---|---|
| kept | it continues as it was |
| swapped | it continues with its new definition, from the next batch on; its state, if it has any, stays |
| started | it is new, and gets messages from the next batch on |
| stopped | it is no longer in the graph; what it has written stays |
| refused | it does not fit the existing state |

Invariants:

1. A difference has a refusal exactly if some fragment does not fit.
2. Every processor of either version has one fate.

Called by `drivetrain plan --against`, and by runs that find state.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from drivetrain.core.change.graph_version import FragmentRecord, GraphVersion


class Fate(StrEnum):
    """What becomes of a processor."""

    KEPT = "kept"
    SWAPPED = "swapped"
    STARTED = "started"
    STOPPED = "stopped"
    REFUSED = "refused"


@dataclass(frozen=True)
class Change:
    """What becomes of processor `id`, and why; `before` and `after` describe it (None: it is not there)."""

    id: str
    fate: Fate
    why: str
    before: str | None
    after: str | None


@dataclass(frozen=True)
class Difference:
    """All processors of two versions; those of the newer one first, in its order."""

    changes: tuple[Change, ...]

    @property
    def refused(self) -> tuple[Change, ...]:
        """The changes that the state does not allow; if there are none, the application can continue."""
        return tuple(change for change in self.changes if change.fate is Fate.REFUSED)

    @property
    def is_empty(self) -> bool:
        """Whether every processor is kept."""
        return all(change.fate is Fate.KEPT for change in self.changes)


def difference(old: GraphVersion, new: GraphVersion) -> Difference:
    """What becomes of each processor when the application continues as `new` with the state of `old`."""
    return Difference(tuple(_changes(old, new)))


def _changes(old: GraphVersion, new: GraphVersion) -> Iterator[Change]:
    refusals = _refusals(old, new)
    for id in dict.fromkeys((*new.processors, *old.processors)):
        before, after = old.processors.get(id), new.processors.get(id)
        fate, why = refusals.get(id) or _fate(old, new, id)
        was, is_now = (None if record is None else record.shown for record in (before, after))
        yield Change(id, fate, why, was, is_now)


def _fate(old: GraphVersion, new: GraphVersion, id: str) -> tuple[Fate, str]:
    """The fate of a processor of fragments that fit."""
    before, after = old.processors.get(id), new.processors.get(id)
    if after is None:
        return Fate.STOPPED, "it is no longer in the graph; what it has written stays"
    if before is None:
        return Fate.STARTED, "it gets messages from the next batch on"
    if before.inputs != after.inputs:
        return Fate.SWAPPED, f"it reads from {_listed(after.inputs)}, no longer from {_listed(before.inputs)}"
    if (before.kind, before.described) != (after.kind, after.described):
        return Fate.SWAPPED, "its arguments have changed"
    if before.fingerprint != after.fingerprint:
        keeps = _stateful_in(new, id)
        return Fate.SWAPPED, "its code has changed" + ("; its state stays" if keeps else "")
    return Fate.KEPT, ""


def _refusals(old: GraphVersion, new: GraphVersion) -> dict[str, tuple[Fate, str]]:
    """The processors that keep a fragment from fitting, each with the reason."""
    found: dict[str, tuple[Fate, str]] = {}
    for fragment in dict.fromkeys((*old.fragments, *new.fragments)):
        before, after = old.fragments.get(fragment), new.fragments.get(fragment)
        if before is None:
            assert after is not None
            why = f"it needs a fragment of its own ({fragment}), which cannot start in the middle of a stream"
            found |= dict.fromkeys((*after.trunk, *after.branches), (Fate.REFUSED, why))
        elif after is None:
            why = f"the fragment {fragment} has state, and the new graph has no such fragment"
            found |= dict.fromkeys((*before.trunk, *before.branches), (Fate.REFUSED, why))
        elif not _fits(old, new, fragment):
            found |= {id: (Fate.REFUSED, why) for id, why in _culprits(old, new, before, after)}
    return found


def _fits(old: GraphVersion, new: GraphVersion, fragment: str) -> bool:
    """Whether a fragment of both versions has the inputs and the trunk that its checkpoint was made with."""
    return _kept_of(old, fragment) == _kept_of(new, fragment)


def _kept_of(version: GraphVersion, fragment: str) -> tuple[tuple[str, ...], list[tuple[str, str]]]:
    record = version.fragments[fragment]
    return record.inputs, [(id, version.processors[id].shown) for id in record.trunk]


def _culprits(
    old: GraphVersion, new: GraphVersion, before: FragmentRecord, after: FragmentRecord
) -> Iterator[tuple[str, str]]:
    """The processors that are the reason why a fragment does not fit; at least one."""
    name = after.stateful or before.stateful or after.trunk[-1]
    of = f"the state of {name}" if after.stateful or before.stateful else "Spark's checkpoint of its fragment"
    found: dict[str, str] = {}
    for id in dict.fromkeys((*after.trunk, *before.trunk)):
        if id not in before.trunk:
            found[id] = f"{of} was made without it"
        elif id not in after.trunk:
            found[id] = f"{of} was made with it"
        elif (was := old.processors[id].shown) != new.processors[id].shown:
            found[id] = f"{of} was made with {was}"
    if not found:  # the same processors, in another order or after other inputs
        was_read, is_read = _listed(before.inputs), _listed(after.inputs)
        found[name] = f"its fragment read {was_read}, and would now read {is_read}"
    yield from found.items()


def _stateful_in(version: GraphVersion, id: str) -> bool:
    return any(fragment.stateful == id for fragment in version.fragments.values())


def _listed(ids: tuple[str, ...]) -> str:
    return ", ".join(ids) or "nothing"

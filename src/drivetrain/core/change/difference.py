"""The difference between two versions of a graph, processor by processor, and whether state allows it.

Problem: a user has edited an application that has state. Some edits touch nothing that the state depends on;
others would make a query continue with the state of something else.

Design: a fragment *fits* if its query can continue from its checkpoint (`trunks`). Branches are compiled
again for every batch, and may change between two batches. A trunk is compiled into the running query, so a
fragment whose trunk differs restarts its query, alone, from its checkpoint.

| fate | meaning |
|---|---|
| kept | it continues as it was |
| swapped | it continues with its new definition, from the next batch on; its state, if it has any, stays |
| started | it is new, and gets messages from the next batch on; with others, in a fragment of its own |
| restarted | it continues with its new definition once its query has restarted; its state stays |
| state dropped | likewise, with an empty state, because the user allows that |
| stopped | it is no longer in the graph; what it has written stays |
| drained | its fragment is removed after it has processed its input; what it has written stays |
| after a stop | it continues with its new definition when the application was stopped and is run again |
| refused | it does not fit the existing state |

A running application takes all but the last two. A fragment is added or removed only while the application
runs: `Change.fragment` names it.

Invariants:

1. A difference has a refusal exactly if some fragment does not fit, and its state may not be dropped.
2. Every processor of either version has one fate.
3. If nothing is refused, restarted, or has to wait for a stop, the trunk of every fragment is the same, code
   included.

Called by `drivetrain plan --against`, by runs that find state, and by `spark.run.change_proposal`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from drivetrain.api.moments import moment_text
from drivetrain.core.change.change_events import Change as LiveChangeOf
from drivetrain.core.change.change_options import NO_OPTIONS, ChangeOptions
from drivetrain.core.change.dropped_states import dropped_states, obstacle
from drivetrain.core.change.graph_version import GraphVersion, ProcessorRecord
from drivetrain.core.change.message_history import read_again, refused_histories
from drivetrain.core.change.moves import refused_moves
from drivetrain.core.change.subscriptions import refused_readers, with_records_carried_over
from drivetrain.core.change.trunks import defined, definition, fits, migrates, read_by, restarting

RESTART: Final = "2 s"
"""How long a fragment is out while its query restarts: 1.4 s from its stop to the end of the next batch were
measured once, and the new code is compiled in between."""


class ChangeKind(StrEnum):
    """What happens to a processor."""

    KEPT = "kept"
    SWAPPED = "swapped"
    STARTED = "started"
    RESTARTED = "restarted"
    DROPPED = "state dropped"
    STOPPED = "stopped"
    DRAINED = "drained"
    AFTER_STOP = "after a stop"
    REFUSED = "refused"


@dataclass(frozen=True)
class Change:
    """What happens to processor `id`, and why; `before` and `after` describe it (None if it is missing).

    `fragment` is the fragment that is added or removed with it.
    """

    id: str
    fate: ChangeKind
    why: str
    before: str | None
    after: str | None
    fragment: str | None = None


@dataclass(frozen=True)
class Difference:
    """All processors of two versions; those of the newer one first, in its order."""

    changes: tuple[Change, ...]

    @property
    def refused(self) -> tuple[Change, ...]:
        """The changes that the state does not allow; if there are none, the application can continue."""
        return tuple(change for change in self.changes if change.fate is ChangeKind.REFUSED)

    @property
    def after_stop(self) -> tuple[Change, ...]:
        """The changes that the state allows but a running application cannot take."""
        return tuple(change for change in self.changes if change.fate is ChangeKind.AFTER_STOP)

    @property
    def while_it_runs(self) -> tuple[Change, ...]:
        """The changes that only a running application can take: added and removed fragments."""
        return tuple(change for change in self.changes if change.fragment is not None)

    @property
    def dropped(self) -> tuple[str, ...]:
        """The processors whose state is dropped."""
        return tuple(change.id for change in self.changes if change.fate is ChangeKind.DROPPED)

    @property
    def is_empty(self) -> bool:
        """Whether every processor is kept."""
        return all(change.fate is ChangeKind.KEPT for change in self.changes)


def difference(
    old: GraphVersion,
    new: GraphVersion,
    *,
    has_checkpoints: bool = False,
    options: ChangeOptions = NO_OPTIONS,
) -> Difference:
    """What happens to each processor when the application continues as `new` with the state of `old`.

    `has_checkpoints`: the running application makes checkpoints, with which sinks publish.
    """
    discards, even_if_read = options.discards, options.even_if_read
    if not even_if_read:
        new = with_records_carried_over(old, new)
    moves = refused_moves(old, new, has_checkpoints=has_checkpoints, discards=discards)
    moves = dict(moves) | _taken_places(old, new)
    if not even_if_read:
        moves = moves | refused_readers(old, new)
    if options.history_ms is not None:
        moves = refused_histories(old, new) | moves
    drops = dropped_states(old, new, options.drops, has_checkpoints=has_checkpoints)
    changes = _changes(old, new, moves, drops, options, has_checkpoints=has_checkpoints)
    return Difference(tuple(changes))


def touched(old: GraphVersion, new: GraphVersion) -> frozenset[str]:
    """The fragments of both versions that differ, also in a table that they read or in their readers."""
    both = old.fragments.keys() & new.fragments.keys()
    read_before, read_now = _readers(old), _readers(new)
    return frozenset(
        id
        for id in both
        if _definitions(old, id) != _definitions(new, id) or read_before.get(id) != read_now.get(id)
    )


def new_fragments(old: GraphVersion, new: GraphVersion) -> tuple[str, ...]:
    """The fragments that only the newer version has, in topological order."""
    return tuple(id for id in new.fragments if id not in old.fragments)


def live_change(old: GraphVersion, new: GraphVersion) -> LiveChangeOf:
    """The change of a running application from one version to another, whose number is known."""
    starts = new_fragments(old, new)
    differing = touched(old, new) | frozenset(starts)
    leaves = new_fragments(new, old)
    return LiveChangeOf(new.number, old.number, differing, starts, leaves, restarting(old, new))


def _taken_places(old: GraphVersion, new: GraphVersion) -> dict[str, str]:
    """The sinks of the newer version that would write where another sink of the older one writes."""
    writers = {place: id for id, place in old.places.items()}
    return {
        id: f"{writers[place]} has written to {place}: leave the sink its name, or choose another place"
        for id, place in new.places.items()
        if writers.get(place, id) != id
    }


def _changes(
    old: GraphVersion,
    new: GraphVersion,
    moves: Mapping[str, str],
    drops: tuple[str, ...],
    options: ChangeOptions,
    *,
    has_checkpoints: bool,
) -> Iterator[Change]:
    refusals = {id: (ChangeKind.REFUSED, why) for id, why in moves.items()}
    refusals |= _refusals(old, new, drops, has_checkpoints=has_checkpoints) | _drops(old, new, drops)
    again = {} if options.history_ms is None else read_again(old, new)
    for id in dict.fromkeys((*new.processors, *old.processors)):
        before, after = old.processors.get(id), new.processors.get(id)
        fate, why = refusals.get(id) or _fate(old, new, id, drops, has_checkpoints=has_checkpoints)
        was, is_now = (None if record is None else record.shown for record in (before, after))
        fragment = None if fate is ChangeKind.REFUSED else _own_fragment(old, new, id)
        if fragment is not None:
            fate, why = _fate_with_fragment(old, new, id, fragment, options, again.get(fragment, ()))
        yield Change(id, fate, why, was, is_now, fragment)


def _own_fragment(old: GraphVersion, new: GraphVersion, id: str) -> str | None:
    """The fragment that is added or removed with a processor, if any."""
    here, there = (new, old) if id in new.processors else (old, new)
    fragment = here.fragment_of(id)
    return None if fragment in there.fragments else fragment


def _fate_with_fragment(
    old: GraphVersion,
    new: GraphVersion,
    id: str,
    fragment: str,
    options: ChangeOptions,
    again: tuple[str, ...],
) -> tuple[ChangeKind, str]:
    if id not in new.processors:
        ends = "it is stopped" if options.discards else "it processes what it has"
        return ChangeKind.DRAINED, f"its fragment {fragment} goes: {ends}; what it has written stays"
    messages = "the messages from then on"
    if again and options.history_ms is not None:
        messages = f"the messages from {moment_text(options.history_ms)} on: {_listed(again)} is read again"
    how = "moves to" if id in old.processors else "starts in"
    return ChangeKind.STARTED, f"it {how} a fragment of its own ({fragment}), with {messages}"


def _fate(
    old: GraphVersion, new: GraphVersion, id: str, drops: tuple[str, ...], *, has_checkpoints: bool
) -> tuple[ChangeKind, str]:
    """The fate of a processor of fragments that fit."""
    before, after = old.processors.get(id), new.processors.get(id)
    if before is not None and _is_same(before, after):
        return ChangeKind.KEPT, ""
    if has_checkpoints and id in old.exactly_once:
        return (
            ChangeKind.AFTER_STOP,
            "its results are published with the checkpoints of the application that runs",
        )
    how = _how_it_differs(before, after)
    query = _query_of(old, new, id)
    if query is not None and migrates(old, new, query):
        return ChangeKind.AFTER_STOP, f"{how}, and the states of {query} are migrated when it is run again"
    if query is not None:
        fate = ChangeKind.STOPPED if after is None else ChangeKind.RESTARTED
        keeps = "; its state is dropped" if query in drops else _keeps(new, query)
        return fate, f"{how}: the query of {query} restarts, which takes about {RESTART}{keeps}"
    if after is None:
        return ChangeKind.STOPPED, f"{how}; what it has written stays"
    return (
        (ChangeKind.STARTED, "it gets messages from the next batch on")
        if before is None
        else (ChangeKind.SWAPPED, how)
    )


def _how_it_differs(before: ProcessorRecord | None, after: ProcessorRecord | None) -> str:
    if after is None:
        return "it is no longer in the graph"
    if before is None:
        return "it is new"
    if before.inputs != after.inputs:
        return f"it reads from {_listed(after.inputs)}, no longer from {_listed(before.inputs)}"
    if (before.kind, before.described) != (after.kind, after.described):
        return "its arguments have changed"
    return "its code has changed"


def _query_of(old: GraphVersion, new: GraphVersion, id: str) -> str | None:
    """The fragment of both versions into whose query a processor, or a table, is or was compiled."""
    for fragment in restarting(old, new):
        if any(id in read_by(version, version.fragments[fragment].trunk) for version in (new, old)):
            return fragment
    return None


def _keeps(version: GraphVersion, fragment: str) -> str:
    return "" if version.fragments[fragment].stateful is None else "; its state stays"


def _is_same(before: ProcessorRecord, after: ProcessorRecord | None) -> bool:
    return after is not None and definition(before) == definition(after)


def _definitions(version: GraphVersion, fragment: str) -> dict[str, tuple[object, ...]]:
    record = version.fragments[fragment]
    return defined(version, (*record.trunk, *record.branches))


def _drops(old: GraphVersion, new: GraphVersion, drops: tuple[str, ...]) -> dict[str, tuple[ChangeKind, str]]:
    """The processors whose state is dropped."""
    found: dict[str, tuple[ChangeKind, str]] = {}
    for fragment in drops:
        id = new.fragments[fragment].stateful
        assert id is not None
        how = _how_it_differs(old.processors.get(id), new.processors[id])
        why = f"{how}: the query of {fragment} restarts, which takes about {RESTART}, with an empty state"
        found[id] = ChangeKind.DROPPED, why
    return found


def _refusals(
    old: GraphVersion, new: GraphVersion, drops: tuple[str, ...], *, has_checkpoints: bool
) -> dict[str, tuple[ChangeKind, str]]:
    """The processors that keep a fragment from fitting, each with the reason."""
    found: dict[str, tuple[ChangeKind, str]] = {}
    for fragment in dict.fromkeys((*old.fragments, *new.fragments)):
        if fragment not in old.fragments or fragment not in new.fragments:
            continue  # it starts or leaves while the application runs
        if fragment not in drops and not fits(old, new, fragment):
            hint = _hint(old, new, fragment, has_checkpoints=has_checkpoints)
            found |= {id: (ChangeKind.REFUSED, why + hint) for id, why in _culprits(old, new, fragment)}
    return found


def _hint(old: GraphVersion, new: GraphVersion, fragment: str, *, has_checkpoints: bool) -> str:
    """The option with which a fragment could begin with an empty state, if it could."""
    if obstacle(old, new, fragment, has_checkpoints=has_checkpoints) is not None:
        return ""
    return f"; --drop-state {old.fragments[fragment].stateful} drops that state"


def _culprits(old: GraphVersion, new: GraphVersion, fragment: str) -> Iterator[tuple[str, str]]:
    """The processors that keep one fragment from fitting, each with the reason; at least one."""
    before, after = old.fragments[fragment], new.fragments[fragment]
    name = after.stateful or before.stateful or after.trunk[-1]
    of = f"the state of {name}" if after.stateful or before.stateful else "Spark's checkpoint of its fragment"
    found: dict[str, str] = {}
    own, others = new.kept(fragment), old.kept(fragment)
    for id in dict.fromkeys((*own, *others)):
        if id not in others:
            found[id] = f"{of} was made without it"
        elif id not in own:
            found[id] = f"{of} was made with it" + _why_apart(new, id)
        elif (was := old.processors[id].shown) != new.processors[id].shown:
            may_migrate = 0 < new.processors[id].version == old.processors[id].version
            hint = "; a higher version of the Task with migrate can continue with it" if may_migrate else ""
            found[id] = f"{of} was made with {was}{hint}"
    if not found and before.inputs == after.inputs:
        found[name] = f"{of} was made with the same messages in other places"
    if not found:  # the processors are the same, but the inputs are not
        was_read, is_read = _listed(before.inputs), _listed(after.inputs)
        found[name] = f"its fragment read {was_read}, and would now read {is_read}"
    yield from found.items()


def _why_apart(new: GraphVersion, id: str) -> str:
    """The reason why another reader separates a processor from its state, if one does."""
    if id not in new.processors or new.fragment_of(id) is None:
        return ""
    return ", in one query: another processor that keeps state needs a source of its own"


def _readers(version: GraphVersion) -> dict[str, set[tuple[str, str]]]:
    """Which fragments read which processors of a fragment, through channels."""
    found: dict[str, set[tuple[str, str]]] = {}
    for id in version.fragments:
        for producer, read in version.producers(id).items():
            found.setdefault(producer, set()).update((input, id) for input in read)
    return found


def _listed(ids: tuple[str, ...]) -> str:
    return ", ".join(ids) or "nothing"

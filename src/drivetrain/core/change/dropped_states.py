"""Which states a change drops, with the user's permission, because they do not fit.

Problem: a window becomes longer, or a key is added. The state was made with the old one, so the fragment
cannot continue with it. Often the user does not need the state any more.

Design: `--drop-state` names processors whose state may be dropped. It is dropped only where it does not fit:
then the query of the fragment restarts with an empty state, after the last batch that it has committed. The
positions in the inputs, and the clock, are kept. So the inputs, and the processors before the state that
assign event times, have to be as before.

Called by `difference`, and by everything that asks for a change.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from drivetrain.core.change.graph_version import GraphVersion
from drivetrain.core.change.trunks import fits
from drivetrain.errors import UserError

_JOINS: Final = frozenset({"join"})


def dropped_states(
    old: GraphVersion, new: GraphVersion, may_drop: Iterable[str], *, has_checkpoints: bool
) -> tuple[str, ...]:
    """The fragments whose state a change drops, because it does not fit; in topological order."""
    named = set(may_drop)
    return tuple(
        id
        for id in new.fragments
        if id in old.fragments
        and not fits(old, new, id)
        and named & {old.fragments[id].stateful, new.fragments[id].stateful}
        and obstacle(old, new, id, has_checkpoints=has_checkpoints) is None
    )


def obstacle(old: GraphVersion, new: GraphVersion, fragment: str, *, has_checkpoints: bool) -> str | None:
    """The reason why a fragment cannot continue even with an empty state; None if it can."""
    before, after = old.fragments[fragment], new.fragments[fragment]
    if before.stateful is None or after.stateful is None:
        return "the fragment would begin, or cease, to keep a state"
    if before.inputs != after.inputs:
        return "the fragment would read other inputs"
    if _clocked(old, fragment) != _clocked(new, fragment):
        return "Spark's checkpoint of the fragment was made with other event times before the state"
    if new.processors[after.stateful].kind in _JOINS:
        return "a join of two streams begins with an empty state only in a fragment of another name"
    if has_checkpoints:
        return "a return to a checkpoint would bring the state back"
    return None


def require_states(old: GraphVersion, may_drop: Iterable[str]) -> None:
    """Raise UserError when one of the names is not that of a processor that keeps a state."""
    known = [fragment.stateful for fragment in old.fragments.values() if fragment.stateful is not None]
    for id in may_drop:
        if id not in known:
            raise UserError(
                "no processor of that name keeps a state",
                where="--drop-state",
                expected=f"one of {', '.join(known)}" if known else "a version with a state",
                got=id,
                remedy="drivetrain plan shows which processors keep a state",
            )


def _clocked(version: GraphVersion, fragment: str) -> list[tuple[str, str]]:
    """The parts of a trunk that a checkpoint depends on, besides the state."""
    stateful = version.fragments[fragment].stateful
    kept = (version.processors[id] for id in version.kept(fragment) if id != stateful)
    return [(record.id, record.shown) for record in kept]

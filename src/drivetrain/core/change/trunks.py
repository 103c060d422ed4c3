"""Whether a fragment can continue from its checkpoint with another trunk, and whether its query must restart.

Problem: Spark's checkpoint of a query belongs to the query's plan, which is the fragment's trunk. The
checkpoint depends on some parts of the plan; the other parts may differ in the next query that starts from
it.

Design: a checkpoint holds offsets by the order of the inputs, a clock, and the state of one processor. So the
inputs, the processors that assign event time, and the stateful processor have to be described as before, and
each input of the stateful processor has to come from the same sources (`GraphVersion.shape_of`); if the Task
migrates its state to a later version, only its rules have to be as before. Stateless processors between them
may be added, changed and removed. If two trunks differ, code and tables included, the query has to restart to
switch from one to the other.

Invariants:

1. Fragments with the same trunk fit.

Called by `difference`, and by the modules that start the queries of versions.
"""

from __future__ import annotations

from drivetrain.core.change.graph_version import GraphVersion, ProcessorRecord, shapes_fit


def fits(old: GraphVersion, new: GraphVersion, fragment: str) -> bool:
    """Whether a fragment of both versions can continue as the new one from the checkpoint of the old one."""
    return shapes_fit(old.shape_of(fragment), new.shape_of(fragment))


def migrates(old: GraphVersion, new: GraphVersion, fragment: str) -> bool:
    """Whether the state of a fragment of both versions is of an older version than the new one declares."""
    before, after = old.fragments[fragment].stateful, new.fragments[fragment].stateful
    if before is None or before != after:
        return False
    return 0 < old.processors[before].version < new.processors[before].version


def has_same_trunk(old: GraphVersion, new: GraphVersion, fragment: str) -> bool:
    """Whether a fragment of both versions has the same inputs and trunk, code and tables included."""
    before, after = old.fragments.get(fragment), new.fragments.get(fragment)
    if before is None or after is None or (before.inputs, before.trunk) != (after.inputs, after.trunk):
        return False
    return defined(old, before.trunk) == defined(new, after.trunk)


def restarting(old: GraphVersion, new: GraphVersion) -> tuple[str, ...]:
    """The fragments of both versions whose query has to restart, in topological order."""
    both = (id for id in new.fragments if id in old.fragments)
    return tuple(id for id in both if not has_same_trunk(old, new, id))


def read_by(version: GraphVersion, ids: tuple[str, ...]) -> set[str]:
    """Processors, and the tables that they read."""
    tables = {
        input for id in ids for input in version.processors[id].inputs if version.fragment_of(input) is None
    }
    return {*ids, *tables}


def definition(record: ProcessorRecord) -> tuple[object, ...]:
    """A processor without the line in which it was written."""
    return record.kind, record.described, record.fingerprint, record.inputs


def defined(version: GraphVersion, ids: tuple[str, ...]) -> dict[str, tuple[object, ...]]:
    """The definitions of processors, and of the tables that they read."""
    return {id: definition(version.processors[id]) for id in read_by(version, ids)}

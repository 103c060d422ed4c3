"""Determines from the state directory which fragments of an application run, and in which role.

Problem: while an application changes, more fragments run than its version in force has: those that a version
on trial removes are held, because the application may return to them, and others drain. Several processes
run them, and each must know with which version a fragment is compiled, even if no message has reached it.

Design: all of it follows from the records of the versions and their outcomes (`graph_versions`).

| a fragment | has a role with | until |
|---|---|---|
| of the version in force | that version | |
| that the version on trial lacks | the version before | the trial is over |
| that an outcome names | the version that has it | the outcome no longer names it: it has left |

Called by executors and their application master.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from drivetrain.core.change.change_events import Change, Outcome
from drivetrain.core.change.difference import live_change
from drivetrain.core.change.graph_version import GraphVersion
from drivetrain.core.job.fragment_execution import FragmentId
from drivetrain.core.job.job_events import Vertex
from drivetrain.errors import InputError
from drivetrain.runtime.graph_versions import GraphVersions, HowItLeaves


@dataclass(frozen=True)
class Role:
    """A fragment runs with version `record`.

    `by` is the version by whose change it leaves, or may leave (0: the version in force has it), `how` is how
    it leaves (None: it does not yet).
    """

    record: GraphVersion
    by: int = 0
    how: HowItLeaves | None = None


def roles_in(stored: GraphVersions) -> dict[str, Role]:
    """The fragments that run, those that write before those that read, but what leaves at the end.

    Raises InputError when a file is damaged.
    """
    in_force = stored.in_force()
    if in_force is None:
        return {}
    found = {id: Role(in_force) for id in in_force.fragments}
    before = stored.trial_of(in_force)
    for id in () if before is None else before.fragments:
        if before is not None and id not in found:
            found[id] = Role(before, in_force.number)
    for number, id, how in stored.leaving():
        record = stored.version(number)
        if id not in record.fragments:
            record = stored.version(record.follows)
        found[id] = Role(record, number, how)
    return found


def vertices_of_roles(roles: Mapping[str, Role]) -> tuple[Vertex, ...]:
    """The fragments as vertices of a job."""
    found: list[Vertex] = []
    for id, role in roles.items():
        upstreams = dict.fromkeys(role.record.channel_producers(id).values())
        producers = tuple(FragmentId(upstream) for upstream in upstreams if upstream in roles)
        found.append(Vertex(FragmentId(id), producers))
    return tuple(found)


def interrupted(stored: GraphVersions) -> list[Change]:
    """The changes whose trial was ended by a run with another version, and whose fragments have to leave.

    A version that cannot be read is passed over. Raises InputError when the one in force is damaged.
    """
    in_force = stored.in_force()
    if in_force is None:
        return []
    found: list[Change] = []
    for number in stored.numbers():
        if number == in_force.number:
            continue
        try:
            record = stored.version(number)
            if not stored.is_on_trial(record):
                continue
            change = live_change(stored.version(record.follows), record)
        except InputError:
            continue
        if any(id not in in_force.fragments for id in change.leaves):
            found.append(change)
    return found


def note_done(stored: GraphVersions, change: Change) -> None:
    """Record that a change is done, and which fragments now have to leave."""
    how: HowItLeaves = "is discarded" if stored.version(change.number).discards else "drains"
    stored.note_ending(change.number, Outcome.DONE, leaving=dict.fromkeys(change.leaves, how))

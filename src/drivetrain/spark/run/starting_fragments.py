"""Fragments that a change starts: checks that they can start, and makes their first queries.

Invariants:

1. A fragment that starts finds nothing of an earlier one of its name, and none of that name runs.

Called by `change_proposal`, and by executors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivetrain.connectors.opening import check_source
from drivetrain.errors import UserError

if TYPE_CHECKING:
    from drivetrain.core.change.change_events import Change
    from drivetrain.core.plan.plan import Fragment
    from drivetrain.spark.batch.fragment_query import FragmentQuery
    from drivetrain.spark.run.application_versions import LoadedVersion
    from drivetrain.spark.run.execution import Execution


def refuse_fragments(before: LoadedVersion, loaded: LoadedVersion, change: Change) -> None:
    """Raise UserError when a change starts or removes fragments and cannot."""
    if not (change.starts or change.leaves):
        return
    if before.plan.latency != "micro-batch":
        raise UserError(
            "no fragment can start or leave while an application in real-time mode runs",
            where=", ".join((*change.starts, *change.leaves)),
            got=f'latency "{before.plan.latency}"',
            remedy="run it with --fresh, or with another name",
        )
    stored = before.context.rundir.versions
    leaving = {id for _, id, _ in stored.leaving()}
    again = sorted(leaving.intersection(change.starts))
    if again:
        raise UserError(
            "fragments of these names are still leaving the application",
            where=", ".join(again),
            remedy="try again once they have left, as a notice reports; they then start with an empty state",
        )


def started(execution: Execution, loaded: LoadedVersion, fragment: Fragment) -> FragmentQuery:
    """The first query of a fragment, compiled, with its place; raises any error in the fragment."""
    record = loaded.record
    check_sources(loaded, fragment)
    places = execution.rundir.places
    places.prepare(fragment.id, record.channels(fragment.id), record.sources(fragment.id))
    return execution.new_fragment(loaded.context, loaded.sinks, fragment)


def check_sources(loaded: LoadedVersion, fragment: Fragment) -> None:
    """Raise an error if a source of a fragment that is to start cannot be used."""
    for id in loaded.record.sources(fragment.id):
        source = loaded.plan.graph.nodes[id].operation.any_source
        assert source is not None
        check_source(source, loaded.context.config)

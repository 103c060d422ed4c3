"""A change of a running application is checked and compiled before anything takes effect.

Invariants:

1. Whatever is wrong with a change is raised here, and nothing has changed.

Called by `live_changes`.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from drivetrain.api.sinks import FileSink
from drivetrain.core.change.difference import Change as ProcessorChange
from drivetrain.core.change.difference import difference, touched
from drivetrain.core.change.graph_version import GraphVersion, Made
from drivetrain.core.change.live_change import Change
from drivetrain.errors import UserError
from drivetrain.spark.batch.micro_batch_query import MicroBatchQuery

if TYPE_CHECKING:
    from drivetrain.api.graph import Graph
    from drivetrain.spark.batch.query_versions import BranchSet
    from drivetrain.spark.run.application_versions import ApplicationVersions, LoadedVersion
    from drivetrain.spark.run.fragment_driver import FragmentDriver


@dataclass(frozen=True)
class Proposal:
    """A change that was checked and compiled; `new_sinks` have never been in the application.

    `taken` is set when the version is in force for every fragment, or could not be recorded.
    """

    loaded: LoadedVersion
    change: Change
    made_how: Made
    code: bytes | None
    sets: Mapping[str, BranchSet]
    new_sinks: frozenset[str]
    taken: threading.Event = field(default_factory=threading.Event)


def checked(
    versions: ApplicationVersions,
    drivers: Mapping[str, FragmentDriver],
    record: GraphVersion,
    graph: Graph,
    code: bytes | None,
    made_how: Made,
    against: int,
) -> Proposal:
    """A change to a graph, checked and compiled; raises what is wrong with it, see `LiveChanges.propose`."""
    before = versions.in_force
    if before.record.number != against:
        raise UserError(
            "the application has changed meanwhile",
            expected=f"version {against}",
            got=f"version {before.record.number}",
            remedy="look at the difference again",
        )
    _refuse_other_application(before, graph)
    found = difference(before.record, record, has_checkpoints=before.context.transactional)
    if found.is_empty:
        raise UserError("nothing changes", where=before.record.application)
    _refuse(found.refused, "the state of the application does not fit", "undo them, or use another name")
    _refuse(
        found.after_stop,
        "a running application cannot take these changes",
        "stop the application, and run it with this graph: it continues with its state",
    )
    record = msgspec.structs.replace(record, number=versions.rundir.versions.next_number(record))
    loaded = versions.load(record, graph)
    _refuse_joint_publication(loaded)
    for id, sink in loaded.sinks.items():
        if before.sinks.get(id) is not sink:
            sink.validate()
    change = Change(record.number, before.record.number, touched(before.record, record))
    sets = {id: versions.branch_set(loaded, changing_query(drivers, id)) for id in sorted(change.touched)}
    sinks = versions.rundir.path / "sinks"
    new = frozenset(id for id in loaded.sinks if id not in before.sinks and not (sinks / id).exists())
    return Proposal(loaded, change, made_how, code, sets, new)


def changing_query(drivers: Mapping[str, FragmentDriver], fragment: str) -> MicroBatchQuery:
    """The query of a fragment, which can change while it runs; raises UserError if it cannot."""
    query = drivers[fragment].query
    if not isinstance(query, MicroBatchQuery):
        raise UserError(
            "a fragment in real-time mode is one plan, which cannot change while it runs",
            where=f"fragment {fragment}",
            remedy="stop the application, and run it with this graph: it continues with its state",
        )
    return query


def _refuse_other_application(before: LoadedVersion, graph: Graph) -> None:
    """Raise UserError when a graph is not another version of the application, but another application."""
    own = before.plan.graph
    for what, was, now in (
        ("name", own.name, graph.name),
        ("latency", own.latency, graph.latency),
        ("delivery", own.delivery, graph.delivery),
    ):
        if was != now:
            raise UserError(
                f"the {what} of an application cannot change while it runs",
                expected=was,
                got=now,
                remedy="stop the application, and run it with this graph",
            )


def _refuse_joint_publication(loaded: LoadedVersion) -> None:
    """Raise UserError for files that are to be shown together, in an application that makes no checkpoints.

    A table gets each batch in a transaction, and can do without until the application is started again.
    """
    for node in loaded.plan.graph.nodes.values():
        target = node.operation.target
        if isinstance(target, FileSink) and target.together is not None and not loaded.context.transactional:
            raise UserError(
                "sinks cannot begin to publish together while the application runs",
                where=str(node),
                expected="an application that makes checkpoints",
                remedy="stop the application, and run it with this graph: it continues with its state",
            )


def _refuse(changes: tuple[ProcessorChange, ...], what: str, remedy: str) -> None:
    if changes:
        got = "; ".join(f"{change.id}: {change.why}" for change in changes)
        raise UserError(what, got=got, remedy=remedy)

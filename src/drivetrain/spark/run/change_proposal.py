"""Checks and compiles a change of a running application before it takes effect.

Invariants:

1. A change with an error raises it here and changes nothing.

Called by `live_changes`, and by executors.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec

from drivetrain.api.sinks import FileSink
from drivetrain.core.change.change_events import Change
from drivetrain.core.change.change_options import NO_OPTIONS, ChangeOptions
from drivetrain.core.change.change_state import show_trial
from drivetrain.core.change.difference import Change as ProcessorChange
from drivetrain.core.change.difference import difference, live_change
from drivetrain.core.change.dropped_states import dropped_states, require_states
from drivetrain.core.change.graph_version import GraphVersion, Made
from drivetrain.core.change.handover import ChangeTime
from drivetrain.core.change.message_history import require_histories
from drivetrain.core.change.subscriptions import carried_over, refuse_checkpoints, refuse_read
from drivetrain.core.plan.configured import configured_plan
from drivetrain.errors import DrivetrainError, UserError
from drivetrain.runtime.channel.beginning import ChannelBeginning
from drivetrain.runtime.checkpoints.checkpoint_mode import makes_checkpoints
from drivetrain.runtime.planned_version import planned_version
from drivetrain.runtime.sink_places import planned_places
from drivetrain.spark.batch.micro_batch_query import MicroBatchQuery
from drivetrain.spark.prepare.graph_code import code_if_possible
from drivetrain.spark.run.handover_times import checked as checked_time
from drivetrain.spark.run.handover_times import sizes_of
from drivetrain.spark.run.starting_fragments import refuse_fragments
from drivetrain.spark.run.trunk_changes import check_trunk

if TYPE_CHECKING:
    from drivetrain.api.graphs.graph import Graph
    from drivetrain.core.plan.plan import Fragment
    from drivetrain.spark.batch.fragment_query import FragmentQuery
    from drivetrain.spark.batch.query_versions import BranchSet
    from drivetrain.spark.prepare.compile_context import CompileContext
    from drivetrain.spark.run.application_versions import ApplicationVersions, LoadedVersion
    from drivetrain.spark.run.fragment_driver import FragmentDriver
    from drivetrain.spark.run.history_reader import HistoryReader


Start: TypeAlias = "Callable[[LoadedVersion, Fragment], FragmentQuery]"
NO_QUERIES: Final[Mapping[str, FragmentQuery]] = MappingProxyType({})


@dataclass(frozen=True)
class RequestedChange:
    """A requested change of a running application, to the version `record`, whose graph is `graph`.

    `code` is the graph with the user's code, if that can be kept. `against` is the version that it was
    compared with.
    """

    record: GraphVersion
    graph: Graph
    code: bytes | None
    made_how: Made
    against: int
    options: ChangeOptions = NO_OPTIONS


@dataclass(frozen=True)
class Proposal:
    """A change that was checked and compiled.

    `sets` are the branches of fragments that switch, `queries` the fragments that start, by id. `at` is when
    it takes effect, `window_sizes` (ms) are those of the windows before what changes. `histories` read the
    messages from before it for its new fragments. `taken` is set when the version is in force for every
    fragment or could not be recorded; `refused` is the reason why its time is no longer valid, or its history
    cannot be read.
    """

    loaded: LoadedVersion
    change: Change
    made_how: Made
    code: bytes | None
    sets: Mapping[str, BranchSet]
    queries: Mapping[str, FragmentQuery] = field(default_factory=dict)
    at: ChangeTime = None
    window_sizes: frozenset[int] = frozenset()
    histories: tuple[HistoryReader, ...] = ()
    taken: threading.Event = field(default_factory=threading.Event)
    refused: list[DrivetrainError] = field(default_factory=list)


def checked(
    versions: ApplicationVersions,
    drivers: Mapping[str, FragmentDriver],
    asked: RequestedChange,
    *,
    start: Start | None = None,
    not_started: Mapping[str, FragmentQuery] = NO_QUERIES,
) -> Proposal:
    """Check a change, and compile it for the fragments that `drivers` drive, by id, and for the queries
    `not_started` of fragments that wait for a restart.

    `start` makes the first query of a new fragment; without it new fragments are not compiled. Raises the
    errors of `LiveChanges.propose`.
    """
    before = versions.in_force
    asked = _with_subscriptions(before, asked)
    record, graph, options = asked.record, asked.graph, asked.options
    _require_current(before.record, asked.against)
    _refuse_other_application(before, graph)
    _require_possible(before.record, record, options)
    if not options.even_if_read:
        refuse_read(before.record, record)
    taken = msgspec.structs.replace(options, even_if_read=True)  # checked above: what others read
    has_checkpoints = before.context.transactional
    found = difference(before.record, record, has_checkpoints=has_checkpoints, options=taken)
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
    change = live_change(before.record, record)
    read = {channel for id in change.leaves for channel in before.record.channels(id)}
    schemas = {**record.schemas, **{id: before.context.schemas[id].jsonValue() for id in sorted(read)}}
    new_sinks = _new_sinks(versions, loaded)
    drops = dropped_states(before.record, record, options.drops, has_checkpoints=has_checkpoints)
    more = {"new_sinks": new_sinks, "discards": options.discards, "schemas": schemas, "drops": drops}
    record = msgspec.structs.replace(record, **more)
    loaded = dataclasses.replace(loaded, record=record)
    _refuse_joint_publication(loaded)
    if not before.context.transactional and makes_checkpoints(loaded.plan, loaded.context.config):
        refuse_checkpoints(loaded.plan.graph)  # checkpoints would begin only with the next start
    _refuse_taken_places(before, loaded)
    for id, sink in loaded.sinks.items():
        if before.sinks.get(id) is not sink:
            sink.validate()
    refuse_fragments(before, loaded, change)
    _prepare_subscriptions(before, loaded)
    if options.at is not None:
        return _at_a_time(versions, drivers, loaded, change, asked, options.at)
    running = {**{id: driver.query for id, driver in drivers.items()}, **not_started}
    sets, queries = _compiled(versions, running, loaded, change, start)
    return Proposal(_with_schemas(loaded, change), change, asked.made_how, asked.code, sets, queries)


def _require_current(in_force: GraphVersion, against: int) -> None:
    if in_force.number != against:
        raise UserError(
            "the application has changed meanwhile",
            expected=f"version {against}",
            got=f"version {in_force.number}",
            remedy="look at the difference again",
        )


def _require_possible(before: GraphVersion, record: GraphVersion, options: ChangeOptions) -> None:
    require_states(before, options.drops)
    require_histories(before, record, options)


def _with_schemas(loaded: LoadedVersion, change: Change) -> LoadedVersion:
    """The version with the schemas of the channels that its new fragments read, as far as they are known."""
    record, known = loaded.record, loaded.context.schemas
    read = sorted({channel for id in change.starts for channel in record.channels(id)} & known.keys())
    schemas = {**record.schemas, **{id: known[id].jsonValue() for id in read}}
    return dataclasses.replace(loaded, record=msgspec.structs.replace(record, schemas=schemas))


def _with_subscriptions(before: LoadedVersion, asked: RequestedChange) -> RequestedChange:
    """The change with the subscriptions of other applications, of which neither a file nor an earlier version
    knows; raises UserError when it lacks a stream that others read.
    """
    records = before.record.subscriptions
    if asked.made_how in ("subscribe", "unsubscribe") or not (records or asked.record.subscriptions):
        return asked
    graph = carried_over(asked.graph, records, even_if_read=asked.options.even_if_read)
    record = planned_version(configured_plan(graph, before.context.config))
    code = None if asked.code is None else code_if_possible(graph)
    return dataclasses.replace(asked, record=record, graph=graph, code=code)


def _prepare_subscriptions(before: LoadedVersion, loaded: LoadedVersion) -> None:
    """Make the places of channels for other applications, which begin once the version is in force."""
    known = {channel.id for channel in before.plan.subscriptions}
    for channel in loaded.plan.subscriptions:
        if channel.id not in known:
            ChannelBeginning(loaded.context.rundir.channel(channel.id)).prepare()


def _compiled(
    versions: ApplicationVersions,
    running: Mapping[str, FragmentQuery],
    loaded: LoadedVersion,
    change: Change,
    start: Start | None,
) -> tuple[dict[str, BranchSet], dict[str, FragmentQuery]]:
    """The branches of the fragments that switch, and the queries of those that start."""
    sets: dict[str, BranchSet] = {}
    queries: dict[str, FragmentQuery] = {}
    for fragment in loaded.plan.fragments:  # in this order: a channel's columns are those of its producer
        if fragment.id in change.starts and start is not None:
            queries[fragment.id] = start(loaded, fragment)
        elif fragment.id in change.restarts and fragment.id in running:
            check_trunk(versions, loaded, fragment, changing(running[fragment.id]))
        elif fragment.id in change.touched & running.keys():
            sets[fragment.id] = versions.branch_set(loaded, changing(running[fragment.id]))
    return sets, queries


def _at_a_time(
    versions: ApplicationVersions,
    drivers: Mapping[str, FragmentDriver],
    loaded: LoadedVersion,
    change: Change,
    asked: RequestedChange,
    at: int | Literal["next-window"],
) -> Proposal:
    """A change at an event time; until then, the affected fragments run both versions.

    In an executor the time is preliminary: its application master asks all of them.
    """
    moving = (*change.starts, *change.leaves)
    if moving:
        raise UserError(
            "a fragment starts or leaves with the next batch, not at an event time",
            where=", ".join(moving),
            remedy="make this change without a time",
        )
    if change.restarts:
        raise UserError(
            "a query restarts between two batches, not at an event time",
            where=", ".join(change.restarts),
            remedy="make this change without a time",
        )
    before = versions.in_force
    queries = {id: changing(drivers[id].query) for id in sorted(change.touched & drivers.keys())}
    at_ms = checked_time(versions, drivers, loaded, change.touched, asked.code, at)
    loaded = dataclasses.replace(loaded, record=msgspec.structs.replace(loaded.record, at_ms=at_ms))
    sets = {
        id: versions.both(before, loaded, at_ms, versions.branch_set(loaded, query), query)
        for id, query in queries.items()
    }
    sizes = sizes_of(loaded, change.touched)
    return Proposal(loaded, change, asked.made_how, asked.code, sets, at=at, window_sizes=sizes)


def begun_notices(record: GraphVersion, change: Change, context: CompileContext) -> list[str]:
    """The notices for the user when a version has come into force."""
    notice = show_trial(change, record.at_ms)
    if not makes_checkpoints(context.plan, context.config) or context.transactional:
        return [notice]
    return [notice, "checkpoints begin with the next start; until then every sink shows each batch alone"]


def changing(query: FragmentQuery) -> MicroBatchQuery:
    """A query that can change while it runs; raises UserError if it cannot."""
    if not isinstance(query, MicroBatchQuery):
        raise UserError(
            "a fragment in real-time mode is one plan, which cannot change while it runs",
            where=f"fragment {query.fragment.id}",
            remedy="stop the application, and run it with this graph: it continues with its state",
        )
    return query


def _new_sinks(versions: ApplicationVersions, loaded: LoadedVersion) -> tuple[str, ...]:
    """The sinks of a version that the application has never had."""
    kept, stored = versions.rundir.path / "sinks", versions.rundir.versions
    added = sorted(loaded.sinks.keys() - versions.in_force.sinks.keys())
    return tuple(id for id in added if not (kept / id).exists() and not stored.has_had(id))


def _refuse_taken_places(before: LoadedVersion, loaded: LoadedVersion) -> None:
    """Raise UserError when a new sink would share its target with one that still writes until the change."""
    taken = {place: id for id, place in planned_places(before.plan).items()}
    for id, place in planned_places(loaded.plan).items():
        if taken.get(place, id) != id:
            raise UserError(
                f"two sinks write to {place}",
                where=id,
                got=f"the other is {taken[place]}, in version {before.record.number}",
                remedy="leave the sink its name, or choose another place",
            )


def _refuse_other_application(before: LoadedVersion, graph: Graph) -> None:
    """Raise UserError when a graph belongs to another application."""
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
    """Raise UserError for files that should be published together, in an application without checkpoints.

    A table gets each batch in a transaction, and needs no checkpoints until the application restarts.
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

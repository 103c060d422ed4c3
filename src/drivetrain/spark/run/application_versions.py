"""The versions of an application's graph in one process: loaded, and compiled for the queries that run.

Problem: branches of another version are needed in three places: when the application changes while it runs,
when a batch that began with an earlier version runs again after a crash, and when the messages of an old
batch are recomputed. Each needs the version's graph, its sinks, and its branches after a trunk that is
compiled already.

Design: a version is loaded once, from a given graph or from the code in the state directory. It shares sinks
and tables that are the same with the version in force. Its channels must keep their schemas, because their
readers are compiled for them.

Called by `embedded`, which creates it, and by `execution` and `live_changes`.
"""

from __future__ import annotations

import dataclasses
import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from pyspark.sql.types import StructType

from drivetrain.core.change.change_events import Change, Outcome
from drivetrain.core.change.difference import live_change, touched
from drivetrain.core.change.graph_version import GraphVersion
from drivetrain.core.change.trunks import has_same_trunk
from drivetrain.core.plan.configured import configured_plan
from drivetrain.core.plan.plan import Fragment, Plan
from drivetrain.errors import DrivetrainError, InputError, InternalError, UserError
from drivetrain.runtime.batch_versions import BatchVersions, VersionSpan
from drivetrain.runtime.sink_places import refuse_shared_places
from drivetrain.spark.batch.branches import Branches
from drivetrain.spark.batch.micro_batch_query import MicroBatchQuery
from drivetrain.spark.batch.query_versions import BranchSet, QueryVersions
from drivetrain.spark.prepare.compile_context import CompileContext, HandoverSource
from drivetrain.spark.prepare.graph_code import graph_from_code
from drivetrain.spark.prepare.opened_sinks import open_sinks
from drivetrain.spark.prepare.replay_filter import replay_in
from drivetrain.spark.run.state_dropping import newest_known_ms, settle_state
from drivetrain.spark.session.offset_log import committed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from drivetrain.api.graphs.graph import Graph
    from drivetrain.runtime.run_directory import RunDirectory
    from drivetrain.spark.batch.fragment_query import FragmentQuery
    from drivetrain.spark.batch.query_engine import CompiledBranches, QueryEngine
    from drivetrain.spark.connector.sink import SinkWriter
    from drivetrain.spark.prepare.opened_sinks import OpenSinks
    from drivetrain.spark.prepare.trunk import Trunk


@dataclass(frozen=True)
class LoadedVersion:
    """A version whose graph is in this process; `sinks` are keyed by processor id."""

    record: GraphVersion
    context: CompileContext
    sinks: Mapping[str, SinkWriter]

    @property
    def plan(self) -> Plan:
        """Its plan."""
        return self.context.plan


class ChangeableApplication(Protocol):
    """An application that can change; new versions are compiled with its `context`."""

    context: CompileContext
    sinks: OpenSinks
    engine: QueryEngine

    @property
    def rundir(self) -> RunDirectory:
        """Its state directory."""
        ...


class ApplicationVersions:
    """The versions of the application `execution`; `record` is the one that it was prepared with."""

    def __init__(self, execution: ChangeableApplication, record: GraphVersion) -> None:
        self.notices: Final[deque[str]] = deque()
        """Notices for the user, oldest first; the code that shows a notice removes it."""
        self.rundir: Final = execution.rundir
        self._execution: Final = execution
        self._versions: Final = execution.rundir.versions
        # A copy: those of the application get the sinks of other versions, also in place of these.
        self.in_force: LoadedVersion = LoadedVersion(record, execution.context, dict(execution.sinks))
        self._loaded: Final = {record.number: self.in_force}
        self._compiling: Final = threading.Lock()
        self.newest_ms: Callable[[str], int | None] | None = None
        """The largest timestamp that messages of a fragment may have by now, where its fragments run in this
        process."""
        self.held: Final[set[str]] = set()
        """The fragments whose queries may not begin a batch."""

    # -- versions --------------------------------------------------------------------------------------

    def load(self, record: GraphVersion, graph: Graph) -> LoadedVersion:
        """A version from its graph: planned, its sinks open, nothing compiled; raises any error in it."""
        own = self.in_force.context
        plan = refuse_shared_places(configured_plan(graph, own.config))
        same = _same_processors(self.in_force.record, record)
        context = CompileContext(
            own.spark,
            plan,
            own.rundir,
            own.config,
            run_id=own.run_id,
            replay=replay_in(graph, own.rundir.life),
            schemas={
                id: own.schemas[id] for id in _channels(own.plan) & _channels(plan) & own.schemas.keys()
            },
            tables={id: df for id, df in own.tables.items() if id in same},
            refreshed={id: table for id, table in own.refreshed.items() if id in same},
            transactional=own.transactional,
        )
        add_schemas(context, record)
        known = {id: sink for id, sink in self.in_force.sinks.items() if id in same & plan.graph.nodes.keys()}
        return LoadedVersion(record, context, open_sinks(plan, own.rundir, own.config, known))

    def recorded(self, loaded: LoadedVersion, record: GraphVersion) -> LoadedVersion:
        """Assign its number to a loaded version that has just been recorded."""
        self._loaded[record.number] = dataclasses.replace(loaded, record=record)
        return self._loaded[record.number]

    def of_number(self, number: int) -> LoadedVersion:
        """A version that was recorded; raises InputError when its code is not there or cannot be loaded."""
        if number not in self._loaded:
            record, code = self._versions.version(number), self._versions.code(number)
            if code is None:
                raise InputError(
                    f"the code of version {number} was not kept",
                    where=self.rundir.app_id,
                    remedy="update the application with the file that it was written in",
                )
            self._loaded[number] = self.load(record, graph_from_code(code, f"version {number}"))
        return self._loaded[number]

    def handing_over(self, record: GraphVersion) -> GraphVersion:
        """The version that hands over to another one; raises InputError when it cannot be read."""
        try:
            return self._versions.version(record.follows)
        except InputError as error:
            raise InputError(
                f"version {record.follows} hands over to version {record.number}, and cannot be read",
                where=error.where,
                got=error.got,
                remedy="restore its file from a backup, or run the application with another graph, which "
                "then takes all messages",
            ) from error

    def of_context(self, context: CompileContext) -> LoadedVersion:
        """The version with which something was compiled, which may not be in force any more."""
        for version in list(self._loaded.values()):
            if version.context is context:
                return version
        raise InternalError(
            "something was compiled with a version that is not known", where=self.rundir.app_id
        )

    def put_in_force(self, number: int) -> None:
        """Compile everything from now on with a version."""
        self.in_force = self.of_number(number)
        self._execution.context = self.in_force.context
        self._execution.sinks.add(self.in_force.sinks)

    def left_on_trial(self) -> Change | None:
        """The change that an earlier process has left on trial, if it can go back to the version before.

        If it cannot, its trial has ended: that is recorded. Raises InputError when its outcome is damaged.
        """
        record, stored = self.in_force.record, self.rundir.versions
        if not stored.is_on_trial(record):
            return None
        try:
            return live_change(stored.version(record.follows), record)
        except DrivetrainError as error:
            stored.note_ending(record.number, Outcome.DONE, None, str(error))
            ended = f"the trial of version {record.number} has ended: there is no version to go back to"
            self.notices.append(f"{ended}: {error}")
            return None

    # -- queries ---------------------------------------------------------------------------------------

    def settle_state(self, fragment: str, context: CompileContext) -> bool:
        """Give a fragment the state for a query compiled in `context`; returns whether that is another one.

        No query of the fragment runs, here or elsewhere. Raises the errors of `spark.run.state_dropping`.
        """
        number = self.of_context(context).record.number
        notice = settle_state(context, self._execution.engine, fragment, number, self.newest_of)
        self.notices.extend([] if notice is None else [notice])
        return notice is not None

    def attach(self, query: FragmentQuery) -> None:
        """Let a query that has not started switch to other versions.

        It begins with the version recorded for its last batch, if that is not the one it was compiled with.
        """
        if not isinstance(query, MicroBatchQuery):
            return
        noted = BatchVersions(query.directory)
        self._settle(noted, query)
        compiled = self.of_context(query.branches.context)
        number = compiled.record.number
        own = BranchSet(number, query.plan, query.fragment, query.branches)
        query.versions = QueryVersions(noted, own, query.replay_until)
        query.is_held = query.fragment.id in self.held
        fragment = query.fragment.id
        query.versions.newest_ms = lambda: self.newest_of(fragment)
        last = noted.newest_since()
        if last is not None and (last.version, last.before) != (number, 0):
            earlier = self._earlier(last, compiled.record, query)
            if earlier is not None:
                query.versions.begin_with(earlier)
                query.changes.switch_to(earlier)

    def newest_of(self, fragment: str) -> int | None:
        """The largest timestamp that messages of a fragment may have by now; None: there was none."""
        if self.newest_ms is not None:
            return self.newest_ms(fragment)
        return newest_known_ms(self.rundir, self.in_force.record, fragment)

    def _settle(self, noted: BatchVersions, query: MicroBatchQuery) -> None:
        """Note that the next batch runs the version in force, if that was recorded while the query was held.

        That is the case if another version hands over to it, or if it gave new fragments the messages from
        before it. The query has begun no batch since, or only with a later version that was rolled back.
        Spark may have planned that batch earlier, but it has not begun with the version before: all begun
        batches were committed when the version was recorded. Raises InputError when a version is damaged.
        """
        record, newest = self.in_force.record, noted.newest_since()
        if newest is None or newest.version == record.number:
            return
        following = committed(query.checkpoint) + 1
        hands_over = record.at_ms is not None and not noted.has_run_alone(record.number)
        if self.was_held(query.fragment.id, newest.version):
            noted.note(following, record.number)
        elif hands_over and query.fragment.id in touched(self.handing_over(record), record):
            noted.note(following, record.number, record.follows)

    def was_held(self, fragment: str, number: int) -> bool:
        """Whether a later version than `number` was recorded while the fragment was held to read its history.

        Then no batch has begun with version `number` that is not committed, whatever Spark has planned.
        """
        stored, last = self._versions, self.in_force.record.number
        later = [stored.version(n) for n in stored.numbers() if number < n <= last]
        return any(fragment in v.history_of and not stored.is_rolled_back(v.number) for v in later)

    def _earlier(self, noted: VersionSpan, own: GraphVersion, query: MicroBatchQuery) -> BranchSet | None:
        """The set of another version than the query's own, if it can begin with it and it is different."""
        fragment, number = query.fragment.id, noted.version
        try:
            record = self._versions.version(number)
            if self._versions.is_rolled_back(number):
                return None
            if not has_same_trunk(record, own, fragment):
                return None
            if noted.before:
                return self.handover_set(noted.before, number, query)
            if fragment not in touched(record, own):
                return None
            return self.branch_set(self.of_number(number), query)
        except DrivetrainError as error:
            notice = f"{fragment} began its last batch with version {number}, which cannot be loaded"
            self.notices.append(f"{notice}; it continues with version {own.number}: {error}")
            return None

    def handover_set(self, before: int, number: int, query: MicroBatchQuery) -> BranchSet:
        """The branches of a query's fragment in a version and in the one before it; see `branch_set`.

        Raises InputError, too, when one of the versions cannot be loaded.
        """
        version = self.of_number(number)
        assert version.record.at_ms is not None
        alone = self.branch_set(version, query)
        return self.both(self.of_number(before), version, version.record.at_ms, alone, query)

    def both(
        self,
        before: LoadedVersion,
        version: LoadedVersion,
        at_ms: int,
        alone: BranchSet,
        query: MicroBatchQuery,
    ) -> BranchSet:
        """The set of two versions, the first of which hands over to the second at `at_ms`.

        `alone` is the set that follows.
        """
        context = dataclasses.replace(version.context, handing_over=HandoverSource(before.context, at_ms))
        two = LoadedVersion(version.record, context, {**before.sinks, **version.sinks})
        made = self.branch_set(two, query)
        return dataclasses.replace(made, before=before.record.number, alone=alone)

    def compiled_aside(
        self, context: CompileContext, fragment: Fragment, aside: Path
    ) -> tuple[Trunk, CompiledBranches]:
        """A trunk with its branches, for a query in another directory; raises what Spark refuses."""
        with self._compiling:
            return self._execution.engine.compile(context, fragment, aside)

    def branch_set(
        self, version: LoadedVersion, query: MicroBatchQuery, trunk: Trunk | None = None
    ) -> BranchSet:
        """A version's branches after a trunk (None: that of a query), checked by Spark without messages.

        Raises the error of the operator that Spark refuses, UserError when a channel would carry something
        else.
        """
        engine, before = self._execution.engine, query.branches
        fragment = next(f for f in version.plan.fragments if f.id == query.fragment.id)
        with self._compiling:
            compiled = engine.branches(version.context, fragment, trunk or query.trunk)
            branches = Branches(
                version.context,
                fragment,
                compiled,
                version.sinks,
                before.stores,
                before.letters,
                query.counts,
            )
            for id, schema in branches.schemas().items():
                carried = self.in_force.context.schemas.get(id)
                version.context.schemas.setdefault(id, schema)
                if carried is not None and schema != carried:
                    raise UserError(
                        f"the change alters the columns of channel {id}",
                        where=f"fragment {fragment.id}",
                        expected=carried.simpleString(),
                        got=schema.simpleString(),
                        remedy="its readers were compiled for the old columns: stop the "
                        "application and run it with this graph",
                    )
        return BranchSet(version.record.number, version.plan, fragment, branches)

    def context_of(self, fragment: str, batch_id: int) -> CompileContext:
        """The context that a batch was compiled in; that of the version in force if it is unknown."""
        try:
            noted, own = BatchVersions(self.rundir.fragment(fragment)).since_of(batch_id), self.in_force
            if noted is not None and noted.before:
                version = self.of_number(noted.version)
                assert version.record.at_ms is not None
                handing_over = HandoverSource(self.of_number(noted.before).context, version.record.at_ms)
                return dataclasses.replace(version.context, handing_over=handing_over)
            # Most changes leave a fragment as it was: then the code of its old versions need not be loaded.
            number = own.record.number if noted is None else noted.version
            if number == own.record.number or self._is_untouched(fragment, number, own.record):
                return own.context
            return self.of_number(number).context
        except DrivetrainError as error:
            notice = f"batch {batch_id} of {fragment} is computed again with the version in force"
            self.notices.append(f"{notice}: {error}")
            return self.in_force.context

    def _is_untouched(self, fragment: str, number: int, own: GraphVersion) -> bool:
        return fragment not in touched(self._versions.version(number), own)


def add_schemas(context: CompileContext, record: GraphVersion) -> None:
    """Add the schemas of channels in the record of a version, where they are not known yet."""
    for id, schema in record.schemas.items():
        context.schemas.setdefault(id, StructType.fromJson(schema))


def add_later_schemas(context: CompileContext) -> None:
    """Add the schemas of channels that changes have added since the application was prepared.

    Raises InputError when a version is damaged.
    """
    stored, found = context.rundir.versions, dict[str, StructType]()
    for number in reversed(stored.numbers()):
        record = stored.version(number)
        if record.made_how == "run":
            break  # what this version has was known when the application was prepared
        if not stored.is_rolled_back(number):
            for id, schema in record.schemas.items():
                found.setdefault(id, StructType.fromJson(schema))
    context.schemas.update(found)


def _channels(plan: Plan) -> set[str]:
    return {channel.id for channel in plan.written_channels}


def _same_processors(one: GraphVersion, other: GraphVersion) -> set[str]:
    """The processors that both versions define alike, whatever they read from."""
    ids, known, others = one.processors.keys() & other.processors.keys(), one.processors, other.processors
    defined = {id: [(of[id].shown, of[id].fingerprint) for of in (known, others)] for id in ids}
    return {id for id, (a, b) in defined.items() if a == b}

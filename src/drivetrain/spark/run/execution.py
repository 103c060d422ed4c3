"""An application in one process: prepares it, compiles and runs its fragments one by one, concludes it.

Problem: `drivetrain run` runs all fragments of an application in one process, a cluster runs them in several,
each restarted alone. Both must check the same things before anything is written and run a fragment in the
same way.

Design: `prepare` processes all of the application: it compiles every fragment and checks every source and
sink before the application's state begins. Only one process does that. Others `join`: of the fragments that
they do not run they need only the schemas of the channels, which are stored in the state directory. Both
return an `Execution`, which makes a `FragmentQuery` for each attempt of a fragment.

What if we die here: `prepare` leaves nothing that counts before `begin`, at its end; everything else is in
Spark's checkpoints, sinks and channels, which skip what they have.

Invariants:

1. Nothing is written to a sink or a channel before every fragment has compiled.
2. An attempt is compiled from the current state directory; one that was compiled while preparing is used only
   if no process has run the fragment since.

Called by `embedded` and by the cluster's executor.
"""

from __future__ import annotations

import contextlib
import io
import time
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from drivetrain.api.written_out import notice, written_out
from drivetrain.code.fingerprint import fingerprint
from drivetrain.config.catalog import run as run_keys
from drivetrain.connectors.opening import check_source
from drivetrain.core.change.graph_version import GraphVersion, version_of
from drivetrain.core.plan.plan import Fragment, Plan
from drivetrain.core.plan.realtime import require_realtime, with_how
from drivetrain.errors import GraphError
from drivetrain.runtime.channel.store import ChannelStore
from drivetrain.runtime.checkpoints.checkpoint_mode import makes_checkpoints
from drivetrain.runtime.checkpoints.transaction_file import CheckpointFiles
from drivetrain.runtime.running_config import RunningConfig
from drivetrain.spark.batch.branches import Branches, channel_store
from drivetrain.spark.batch.fragment_query import FragmentQuery
from drivetrain.spark.batch.message_counts import Counts
from drivetrain.spark.batch.micro_batch_query import MicroBatchQuery
from drivetrain.spark.batch.query_parts import QueryParts
from drivetrain.spark.batch.realtime_query import RealtimeQuery, require_cores
from drivetrain.spark.checkpoints.from_savepoint import OpenedSavepoint, abort_others, opened_savepoint
from drivetrain.spark.checkpoints.participants import CheckpointBook
from drivetrain.spark.checkpoints.participation import Participation
from drivetrain.spark.checkpoints.restoring import restore_lost
from drivetrain.spark.connector.publishing import publish_prepared
from drivetrain.spark.flow.flow_book import FlowBook
from drivetrain.spark.measure.batch_limit import BatchLimit
from drivetrain.spark.prepare.compile_context import CompileContext
from drivetrain.spark.prepare.graph_code import code_if_possible
from drivetrain.spark.prepare.largest_batches import largest_batches
from drivetrain.spark.prepare.opened_sinks import OpenSinks, open_sinks
from drivetrain.spark.prepare.replay_filter import replay_from, replay_in
from drivetrain.spark.run.host import SPARK, Host

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from drivetrain.api.application import Application
    from drivetrain.config import Config
    from drivetrain.core.job.run_progress import RunResult
    from drivetrain.runtime.run_directory import RunDirectory
    from drivetrain.spark.batch.query_engine import QueryEngine
    from drivetrain.spark.batch.query_part import CheckpointPart
    from drivetrain.spark.connector.sink import SinkWriter
    from drivetrain.spark.run.application_versions import ApplicationVersions


@dataclass
class Execution:
    """An application that may run in this process: the parts that its fragments share."""

    context: CompileContext
    engine: QueryEngine
    sinks: OpenSinks
    flow: FlowBook
    """The ends of channels in this process."""
    part: Callable[[Participation], CheckpointPart] = SPARK.part
    """Makes a query's part in checkpoints."""
    checkpoints: CheckpointBook = field(default_factory=CheckpointBook)
    """The fragments of this process in checkpoints."""
    notices: list[str] = field(default_factory=list)
    """What the user should know of how it was prepared."""
    record: GraphVersion | None = None
    """The version of the graph that it was prepared with; None where another process has prepared it."""
    versions: ApplicationVersions | None = None
    """The versions of the graph between which its fragments can go over, where that can be done."""
    leaving: dict[str, CompileContext] = field(default_factory=dict)
    """What fragments that leave the application are compiled with, by fragment."""
    _compiled: dict[str, tuple[str, FragmentQuery]] = field(default_factory=dict)

    @property
    def plan(self) -> Plan:
        """The plan of the application."""
        return self.context.plan

    @property
    def rundir(self) -> RunDirectory:
        """Its state directory."""
        return self.context.rundir

    def fragment(self, id: str, mark: str | None = None, counts: Counts | None = None) -> FragmentQuery:
        """A new attempt of a fragment, compiled. Raises the error of the operator that Spark refuses.

        In a cluster the fragment's lock is held, and `mark` is the lock's mark before that. With `counts` it
        continues those counts.
        """
        before, query = self._compiled.pop(id, ("", None))
        if query is not None and counts is None and mark in (None, before):
            return self._with_versions(query)
        context = self.context_of(id)  # read once: a change may come into force meanwhile
        known = {fragment.id: fragment for fragment in context.plan.fragments}
        if id not in known:
            raise GraphError(
                "the application has no such fragment here",
                where=id,
                expected=", ".join(known),
                remedy="the application's file builds a different graph each time: let it depend on "
                "its settings only",
            )
        return self._with_versions(self._compile(context, known[id], counts or Counts()))

    def context_of(self, fragment: str) -> CompileContext:
        """What a fragment is compiled with now."""
        return self.leaving.get(fragment) or self.context

    def new_fragment(
        self, context: CompileContext, sinks: Mapping[str, SinkWriter], fragment: Fragment
    ) -> FragmentQuery:
        """The first attempt of a fragment of a version that is not in force yet; raises as `fragment`."""
        return self._compile(context, fragment, Counts(), sinks)

    def _with_versions(self, query: FragmentQuery) -> FragmentQuery:
        if self.versions is not None:
            self.versions.attach(query)
        return query

    def compile_all(self) -> None:
        """Compile every fragment, in topological order; a channel's schema is known after its producer is
        compiled."""
        for fragment in self.plan.fragments:
            self._compiled[fragment.id] = (
                self.rundir.fragment_lock(fragment.id).mark,
                self._compile(self.context, fragment, Counts()),
            )
        queries = {id: query for id, (_, query) in self._compiled.items()}
        require_cores(self.plan, queries, self.engine.cores)

    def schemas(self) -> dict[str, Any]:
        """The schemas of the channels, as Spark's JSON, once all is compiled."""
        return {c.id: self.context.schemas[c.id].jsonValue() for c in self.plan.channels}

    def _compile(
        self,
        context: CompileContext,
        fragment: Fragment,
        counts: Counts,
        sinks: Mapping[str, SinkWriter] | None = None,
    ) -> FragmentQuery:
        """Compile a fragment for the mode in which it runs; raises GraphError if that is impossible."""
        if sinks is None:
            sinks = self.sinks if self.versions is None else self.versions.of_context(context).sinks
        realtime, plan = context.realtime, context.plan
        hoped = with_how(plan, dict.fromkeys(plan.operators, "native"))
        if hoped.is_realtime(fragment.id):
            realtime.add(fragment.id)
        query = self._compiled_for(context, fragment, counts, sinks)
        # Only now is it known which Python functions Spark runs natively.
        real = with_how(plan, {id: how for id, (how, _) in context.how.items()})
        require_realtime(real, fragment)
        if fragment.id in realtime and not real.is_realtime(fragment.id):
            realtime.discard(fragment.id)
            query = self._compiled_for(context, fragment, counts, sinks)
        return query

    def _compiled_for(
        self, context: CompileContext, fragment: Fragment, counts: Counts, sinks: Mapping[str, SinkWriter]
    ) -> FragmentQuery:
        """Compile a trunk and, on no data, its branches, so that Spark checks every operator."""
        plan, rundir = context.plan, context.rundir
        with counts.user.active():
            trunk, compiled = self.engine.compile(context, fragment)
        stores = {c.id: channel_store(plan, rundir, fragment.id, c.id) for c in plan.outputs(fragment.id)}
        letters = ChannelStore(rundir.dead_letters(fragment.id), fragment=fragment.id)
        branches = Branches(context, fragment, compiled, sinks, stores, letters, counts)
        context.schemas.update(branches.schemas())
        channels = {c.id for c in plan.channels}
        readers = {id: ChannelStore(rundir.channel(id)) for id in trunk.inputs if id in channels}
        config = RunningConfig(rundir.path, context.config)
        place = rundir.fragment(fragment.id)
        parts = QueryParts(self.engine, plan, fragment, trunk, branches, place, readers, counts, self.flow)
        if fragment.id in context.realtime:
            return RealtimeQuery(parts, context.config[run_keys.CHECKPOINT_INTERVAL])
        limit = BatchLimit(place, largest_batches(trunk, context.config), config)
        query = MicroBatchQuery(parts, limit, config)
        files = CheckpointFiles(rundir.home)
        own = Participation(query, self.checkpoints, files, self.sinks, transactional=context.transactional)
        query.checkpoints = self.part(own)
        return query


def prepare(
    plan: Plan,
    rundir: RunDirectory,
    config: Config,
    *,
    fresh: bool = False,
    replay_from_ms: int | None = None,
    savepoint: str | None = None,
    flow: FlowBook | None = None,
    host: Host = SPARK,
    version: GraphVersion | None = None,
) -> Execution:
    """Compile everything, check every source and sink, and create the state; nothing runs yet.

    This process holds the lock of `rundir`. `fresh` deletes the state and outputs of earlier runs;
    `replay_from_ms` begins a new life with the messages from that time on, `savepoint` a life that continues
    from the savepoint at that place. `version` is the record of the plan, if there is one. Raises the
    application's first error: then a first run leaves no state, and an earlier life stays.
    """
    with opened_savepoint(
        savepoint, plan, rundir, config, fresh=fresh, replay_from_ms=replay_from_ms
    ) as saved:
        return _begun(
            plan, rundir, config, flow, host, version, saved, fresh=fresh, replay_from_ms=replay_from_ms
        )


def _begun(
    plan: Plan,
    rundir: RunDirectory,
    config: Config,
    flow: FlowBook | None,
    host: Host,
    version: GraphVersion | None,
    saved: OpenedSavepoint | None,
    *,
    fresh: bool,
    replay_from_ms: int | None,
) -> Execution:
    if replay_from_ms is not None:
        replay_from(plan.graph, replay_from_ms)  # before anything is deleted
        if not fresh:
            rundir.make_aside(replay_from_ms)
    version = version or version_of(plan, fingerprint)
    is_cleared = fresh or saved is not None
    code = None
    if is_cleared or not rundir.versions.has_code_of(version):
        # First: what is compiled may hold options with their secrets, which must not be written.
        code = code_if_possible(plan.graph)
    try:
        execution = _prepared(
            plan, rundir, config, flow, host, fresh=fresh, replay_from_ms=replay_from_ms, saved=saved
        )
        execution.record = rundir.begin(plan, version, code)
        CheckpointFiles(rundir.home).note_periodic(execution.context.transactional)
    except BaseException:
        rundir.give_up_aside()
        if rundir.is_taken_over:
            rundir.clear()
        raise
    if saved is not None:
        rundir.taken_over()
    return execution


def _prepared(
    plan: Plan,
    rundir: RunDirectory,
    config: Config,
    flow: FlowBook | None,
    host: Host,
    *,
    fresh: bool,
    replay_from_ms: int | None,
    saved: OpenedSavepoint | None,
) -> Execution:
    sinks = open_sinks(plan, rundir, config)
    if fresh:
        _forget(rundir, sinks)
        if replay_from_ms is not None:
            rundir.make_aside(replay_from_ms)
    if saved is not None:
        rundir.take_over(saved.manifest.life.elsewhere())
        saved.bring_into(plan, rundir)
        sinks = open_sinks(plan, rundir, config)
    rundir.refuse_another_graph(plan)
    first_run = not rundir.started
    if first_run or replay_from_ms is not None:
        _validate_sources(plan, config)
    for sink in sinks.values():
        sink.validate()
    if saved is not None:
        abort_others(sinks)
    restored = _settled(plan, rundir, config, sinks, life_ends=replay_from_ms is not None and not first_run)
    execution = _started(plan, rundir, config, sinks, flow, host)
    execution.notices += map(notice, written_out(plan.graph, config))
    if restored is not None:
        execution.notices.append(restored)
    if saved is not None:
        parts = int(execution.engine.spark.conf.get("spark.sql.shuffle.partitions", "2"))
        execution.notices.append(saved.notice(parts))
    try:
        execution.compile_all()
    except BaseException:
        if first_run:
            rundir.clear()  # nothing has run: the next try lists its inputs again
        raise
    return execution


def _forget(rundir: RunDirectory, sinks: Mapping[str, SinkWriter]) -> None:
    """Delete the state and the results."""
    for sink in sinks.values():
        sink.check_fresh()
    # The state first: a state without its results would continue, results without a state are refused.
    rundir.clear()
    for sink in sinks.values():
        sink.fresh()


def _settled(
    plan: Plan, rundir: RunDirectory, config: Config, sinks: Mapping[str, SinkWriter], *, life_ends: bool
) -> str | None:
    """Publish or restore what earlier runs had prepared; returns a notice for the user, if any."""
    if life_ends:
        publish_prepared(sinks)  # the new life does not compute the results of this one again
    if makes_checkpoints(plan, config):
        return restore_lost(plan, rundir, sinks)
    if CheckpointFiles(rundir.home).transaction() is not None:
        publish_prepared(sinks)  # prepared while checkpoints were on; now each batch is published separately
    return None


def _validate_sources(plan: Plan, config: Config) -> None:
    """Raise errors that can be found without Spark, at once. Later runs use the inputs that they listed."""
    for node in plan.graph.nodes.values():
        if node.operation.any_source is not None:
            check_source(node.operation.any_source, config)


def join(plan: Plan, rundir: RunDirectory, config: Config, flow: FlowBook, host: Host = SPARK) -> Execution:
    """An application that another process has prepared (`rundir.preparation`); `rundir` is shared."""
    execution = _started(plan, rundir, config, open_sinks(plan, rundir, config), flow, host)
    for id, schema in rundir.preparation.schemas.items():
        execution.context.schemas[id] = StructType.fromJson(schema)
    return execution


def look_at(plan: Plan, rundir: RunDirectory, config: Config) -> CompileContext:
    """Compile everything, to have Spark analyse it; `rundir` is a scratch directory."""
    execution = _started(plan, rundir, config, open_sinks(plan, rundir, config))
    execution.compile_all()
    return execution.context


def printed_by_hooks(application: Application, result: RunResult) -> str:
    """Call the `when_finished` hooks of an application; returns their output. Raises their errors."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        application.call_finish_hooks(result)
    return printed.getvalue()


def finish(rundir: RunDirectory, result: RunResult) -> None:
    """Record in the state directory that the application has finished."""
    rundir.finish({"at": time.time(), "outputs": [output.target for output in result.outputs]})


def _started(
    plan: Plan,
    rundir: RunDirectory,
    config: Config,
    sinks: OpenSinks,
    flow: FlowBook | None = None,
    host: Host = SPARK,
) -> Execution:
    engine = host.engine(plan, config)
    replay = replay_in(plan.graph, rundir.life)
    context = CompileContext(
        engine.spark,
        plan,
        rundir,
        config,
        run_id=uuid.uuid4().hex,
        replay=replay,
        transactional=makes_checkpoints(plan, config),
    )
    return Execution(context, engine, sinks, flow or FlowBook(config), host.part)

"""An application in one process: the parts that its fragments share, and the query of each attempt.

Problem: `drivetrain run` runs all fragments of an application in one process, a cluster runs them in several,
each restarted alone. Both must run a fragment in the same way.

Design: an `Execution`, which `preparing` makes, compiles a `FragmentQuery` for each attempt of a fragment.

Invariants:

1. An attempt is compiled from the current state directory; one that was compiled while preparing is used only
   if no process has run the fragment since.

Called by `preparing`, by `embedded` and by the cluster's executor.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from drivetrain.config.catalog import run as run_keys
from drivetrain.core.change.graph_version import GraphVersion
from drivetrain.core.plan.plan import Fragment, Plan
from drivetrain.core.plan.realtime import require_realtime, with_how
from drivetrain.errors import GraphError
from drivetrain.runtime.channel.store import ChannelStore
from drivetrain.runtime.checkpoints.copied_checkpoints import CopiedCheckpoints
from drivetrain.runtime.checkpoints.transaction_file import CheckpointFiles
from drivetrain.runtime.running_config import RunningConfig
from drivetrain.runtime.state.dropped_state import DroppedState
from drivetrain.spark.batch.branches import Branches, channel_store
from drivetrain.spark.batch.fragment_query import FragmentQuery
from drivetrain.spark.batch.message_counts import Counts
from drivetrain.spark.batch.micro_batch_query import MicroBatchQuery
from drivetrain.spark.batch.query_parts import QueryParts
from drivetrain.spark.batch.realtime_query import RealtimeQuery, require_cores
from drivetrain.spark.checkpoints.participants import CheckpointBook
from drivetrain.spark.checkpoints.participation import Participation
from drivetrain.spark.flow.flow_book import FlowBook
from drivetrain.spark.measure.batch_limit import BatchLimit
from drivetrain.spark.prepare.compile_context import CompileContext
from drivetrain.spark.prepare.largest_batches import largest_batches
from drivetrain.spark.prepare.opened_sinks import OpenSinks
from drivetrain.spark.repair.late_sampler import LateSampler
from drivetrain.spark.run.host import SPARK

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

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
    """The fragments of this process that take part in checkpoints."""
    notices: list[str] = field(default_factory=list)
    """Notices for the user about the preparation."""
    record: GraphVersion | None = None
    """The version of the graph that it was prepared with; None where another process has prepared it."""
    versions: ApplicationVersions | None = None
    """The versions of the graph among which its fragments can switch, where that is possible."""
    first_version: Callable[[str], CompileContext | None] | None = None
    """The context of a fragment's next query, if it is not that of the version in force."""
    copies: CopiedCheckpoints | None = None
    """Where its checkpoints are copied to before their results are published."""
    leaving: dict[str, CompileContext] = field(default_factory=dict)
    """The contexts of fragments that leave the application, by fragment."""
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
        DroppedState(self.rundir.fragment(id)).settle()
        before, query = self._compiled.pop(id, ("", None))
        earlier = None if self.first_version is None or id in self.leaving else self.first_version(id)
        context = earlier or self.context_of(id)  # read once: a change may come into force meanwhile
        is_settled = self.versions is not None and self.versions.settle_state(id, context)
        is_current = counts is None and mark in (None, before) and earlier is None and not is_settled
        if query is not None and is_current:
            return self._with_versions(query)
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
        """The context in which a fragment is compiled now."""
        return self.leaving.get(fragment) or self.context

    def new_fragment(
        self, context: CompileContext, sinks: Mapping[str, SinkWriter], fragment: Fragment
    ) -> FragmentQuery:
        """The first attempt of a fragment of a version that is not in force yet; raises the same errors as
        `fragment`."""
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
        if fragment.stateful is not None:
            query.late = LateSampler(query, config)
        return query

"""Changes a fragment's query to other branches between two batches, with everything that depends on them.

Problem: a version of the graph replaces the branches of a query while Spark keeps running it. The channels,
sinks, clock and flow of the query must follow in one step, and a batch that ends without a commit must leave
a record of which versions may run it again.

Design: `query_versions` decides which set of branches a batch runs. This module applies the decision, in
Spark's thread, with the query's turn.

What if we die here: the version is recorded before anything changes in memory, and a channel's beginning is
written before its first entry; a query that starts again goes through the same steps.

Invariants:

1. All parts of the query change between two batches, never during one.
2. A channel that a version adds has begun before its fragment appends to it.

Called by `micro_batch_query`. Versions of the application call `switch_to` before the query starts.
"""

from __future__ import annotations

from typing import Final

from drivetrain.core.channel.channel_log import NO_BATCH
from drivetrain.crash_points import CrashPoint, maybe_crash
from drivetrain.runtime.channel.beginning import ChannelBeginning
from drivetrain.runtime.channel.segments import MessageLossError
from drivetrain.runtime.channel.store import ChannelStore
from drivetrain.spark.batch.branches import channel_store
from drivetrain.spark.batch.fragment_query import FragmentQuery
from drivetrain.spark.batch.pipeline import BatchPipeline
from drivetrain.spark.batch.query_versions import BranchSet
from drivetrain.spark.connector.publishing import RollingSinks
from drivetrain.spark.session.spark_errors import translated


class VersionChanges:
    """Applies versions to one query, whose batches `pipeline` runs."""

    def __init__(self, query: FragmentQuery, pipeline: BatchPipeline) -> None:
        self._query: Final = query
        self._pipeline: Final = pipeline
        self._is_chosen = False  # whether the version of the running batch is recorded

    def planned(self) -> None:
        """A batch is about to run; no version has been chosen for it."""
        self._is_chosen = False

    def choose(self, batch_id: int) -> None:
        """Switch to another version, if one is wanted and the batch is not bound to its own."""
        versions = self._query.versions
        if versions is None:
            return
        chosen = versions.before_batch(batch_id)
        self._is_chosen = True
        maybe_crash(CrashPoint.VERSION_NOTED)
        if chosen.branches is not self._query.branches:
            for id, store in self.switch_to(chosen).items():
                self.begin_channel(store)
                self._query.flow.adds(id, store)

    def switch_to(self, chosen: BranchSet) -> dict[str, ChannelStore]:
        """Switch to other branches from the next batch on. No batch may be running.

        Returns the channels that the fragment did not write before, by id; they have to begin.
        """
        query = self._query
        stores, wanted = query.branches.stores, chosen.plan.outputs(chosen.fragment.id)
        added = [channel.id for channel in wanted if channel.id not in stores]
        for id in stores.keys() - {channel.id for channel in wanted}:
            query.flow.drops(id)
            del stores[id]
        query.plan, query.fragment, query.branches = chosen.plan, chosen.fragment, chosen.branches
        for part in (query.clock, query.steps, query.flow):
            part.switch_to(chosen.plan, chosen.fragment)
        self._pipeline.switch_to(chosen.plan, chosen.branches)
        query.rolling = RollingSinks(chosen.branches.sinks.values(), query.released)
        rundir = chosen.branches.context.rundir
        for id in added:
            stores[id] = channel_store(chosen.plan, rundir, chosen.fragment.id, id)
        return {id: stores[id] for id in added}

    def begin_channel(self, store: ChannelStore) -> None:
        """Begin a channel that was added while the application ran, unless it has begun."""
        query = self._query
        newest_ms = None
        if query.versions is not None and query.batch_id != NO_BATCH:  # before its first one it lacks nothing
            newest_ms = query.versions.newest_ms()
        ChannelBeginning(store.uri).begin(store, query.batch_id, query.clock_ms, newest_ms)

    def failed(self, batch_id: int, error: BaseException, *, is_stopped: bool) -> None:
        """Record which versions may run a batch that has ended without a commit.

        One that was stopped midway, or whose input was lost, is like one that a crash interrupted: outputs
        may have it already, and no other version is needed to run it.
        """
        versions = self._query.versions
        if versions is None:
            return
        if not self._is_chosen:
            versions.not_begun(batch_id)
        elif not is_stopped and not is_loss(error):
            versions.failed(batch_id)


def is_loss(error: BaseException) -> bool:
    """Whether a batch has met lost messages, which are repaired before it runs again."""
    return isinstance(translated(error), MessageLossError)

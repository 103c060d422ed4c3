"""The clock of one fragment after a batch.

Problem: everything after a fragment, and the application's clock, depend on one number, below which no more
messages are expected. It must follow from Spark's records of the batch, so that a repeated batch gives the
same clock as the first time.

Design: the extent of the batch (offsets of the inputs, the watermark) comes from Spark's own offset log.

- with state: Spark's watermark during the batch, which is the clock of the inputs: every window that
  ends at or before it has been emitted, so all later results have later timestamps;
- without state, after channels: the smallest clock of the last entries that were read;
- without state, at a source: the largest timestamp seen minus the declared disorder, per source, and the
  smallest of these; for a source with partitions, see `source_clock`.

The progress of each input is recorded (`newest_record`) if there are several: a new query continues
from that, and passes it to Spark through the clock streams of the inputs.

With state, the clock of a source with partitions is published to the query's own clock stream. It moves
after a batch, and between batches when a partition has become idle.

Invariants:

1. A fragment has no clock until each of its inputs has one.

Called by `fragment_query`: in the thread that runs batches, and in the one that polls, never at the same
time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property

from pyspark.sql.streaming import StreamingQuery

from drivetrain.actor.purgatory import monotonic_ms
from drivetrain.api.connectors.application_stream import ApplicationStream
from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS, clock_behind, known_clock
from drivetrain.core.plan.plan import Fragment, Plan
from drivetrain.spark.batch.newest_bound import NewestBound
from drivetrain.spark.batch.newest_record import NewestRecord, NewestTimestamps
from drivetrain.spark.channel.clock_source import publish_clock
from drivetrain.spark.channel.watermark import clock_of
from drivetrain.spark.connector.newest import Newest
from drivetrain.spark.prepare.source_clock import PartitionClocks, partitions_of, read_newest
from drivetrain.spark.prepare.trunk import Trunk, newest_name


class FragmentClock:
    """Derives the clock of one fragment from its batches; `channels` are the ids of its channel inputs.

    `record` stores how far its inputs have come, `bound` a time that none of their messages has passed.
    """

    def __init__(
        self,
        plan: Plan,
        fragment: Fragment,
        trunk: Trunk,
        channels: frozenset[str],
        record: NewestRecord,
        bound: NewestBound,
    ) -> None:
        self.plan = plan
        self.fragment = fragment
        self.trunk = trunk
        self.channels = channels
        self._newest: dict[str, int] = {}
        self._parted: dict[str, PartitionClocks] = {}
        self._began_ms = monotonic_ms()
        self._record = record
        self._bound = bound

    @property
    def newest_ms(self) -> dict[str, int]:
        """The largest timestamps so far, by the processor that assigned them; from any thread."""
        return dict(self._newest)

    @property
    def bound_ms(self) -> int | None:
        """No message that a fragment without state has processed is later; None: no message had a time.

        Messages from its channels are covered by their producers' bounds. Raises InputError for a damaged
        file.
        """
        return self._bound.bound_ms

    @property
    def has_outgrown(self) -> bool:
        """Whether a source has partitions that the query does not know: it must be compiled again."""
        return any(parted.has_outgrown for parted in self._parted.values())

    @property
    def waiting_for(self) -> str | None:
        """The partition that holds the clock, as text after "waiting for"; None without any."""
        return next((parted.waiting_for for parted in self._parted.values()), None)

    @property
    def silent(self) -> list[str]:
        """The partitions that the clock ignores, as PROCESSOR/NUMBER; from any thread."""
        return [f"{id}/{number}" for id, parted in dict(self._parted).items() for number in parted.silent]

    def switch_to(self, plan: Plan, fragment: Fragment) -> None:
        """Another version of the branches runs from now on; the state of the inputs stays."""
        before, parted = self._event_times(), self._parted
        self.plan, self.fragment = plan, fragment
        self.__dict__.pop("_is_recorded", None)
        times = self._event_times()
        # Replaced, not changed: another thread may be looking at them.
        self._newest = {id: ms for id, ms in self._newest.items() if id in times}
        self._parted = {id: clocks for id, clocks in parted.items() if times.get(id) == before[id]}
        for id in times.keys() & parted.keys() - self._parted.keys():
            self._restore_partitions(id, parted[id].newest_ms)

    def observe(self, newest: Mapping[str, Newest], planned_ms: int) -> None:
        """Note the largest timestamps of a batch that was planned at `planned_ms` (monotonic), by the
        processor that assigned them."""
        for id, of_batch in newest.items():
            if of_batch.newest_ms is not None:
                ms = of_batch.newest_ms
                self._newest[id] = max(ms, self._newest.get(id, ms))
            if of_batch.is_partitioned:
                self._clocks_of(id).observe(of_batch, planned_ms, monotonic_ms())

    def reached(self, clock_ms: int) -> None:
        """Record that the sources of the fragment have reached `clock_ms`: nothing older follows."""
        now_ms = monotonic_ms()
        for id, disorder_ms in self._event_times().items():
            newest_ms = clock_ms + disorder_ms
            self._newest[id] = max(newest_ms, self._newest.get(id, newest_ms))
            partitions = partitions_of(self.plan.graph, id, self.trunk.sources)
            if partitions is not None:
                of_all = dict.fromkeys(range(partitions.count), newest_ms)
                self._clocks_of(id).observe(Newest(None, of_all, is_partitioned=True), now_ms, now_ms)

    def restore(self, batch_id: int) -> None:
        """Continue from the record of earlier queries after batch `batch_id`; before this query's batches."""
        if not self._is_recorded:
            return
        times = self._event_times()
        for id, known in self._record.read(batch_id).items():
            if id not in times:
                continue
            if known.newest_ms is not None:
                self._newest[id] = known.newest_ms
            self._restore_partitions(id, known.by_partition)

    def _restore_partitions(self, id: str, known: Mapping[int, int]) -> None:
        now_ms = monotonic_ms()
        partitions = partitions_of(self.plan.graph, id, self.trunk.sources)
        if partitions is not None:
            by_partition = {n: ms for n, ms in known.items() if n < partitions.count}
            self._clocks_of(id).observe(Newest(None, by_partition, is_partitioned=True), now_ms, now_ms)

    def note(self, batch_id: int) -> None:
        """Record the state after a batch for the next query; before the batch's entries are appended."""
        if self.fragment.stateful is None and self._newest:
            self._bound.observe(max(self._newest.values()))
        if self._is_recorded:
            newest = {
                id: NewestTimestamps(self._newest.get(id), self._by_partition(id))
                for id in {*self._newest, *self._parted}
            }
            self._record.note(batch_id, newest)

    def _by_partition(self, id: str) -> dict[int, int]:
        return dict(self._parted[id].newest_ms) if id in self._parted else {}

    @cached_property
    def _is_recorded(self) -> bool:
        """Whether a silent input could hold the clock: one of several, or a partition."""
        if self.trunk.only_at_end:
            return False
        if self.fragment.stateful is not None:
            return bool(self.trunk.clock_paths)
        times = self._event_times()
        if len(times) + sum(self._carries_clock(id) for id in self.trunk.inputs if id is not None) > 1:
            return True
        return any(partitions_of(self.plan.graph, id, self.trunk.sources) is not None for id in times)

    def looked(self) -> bool:
        """Note that the query waits for data; returns whether that moved a clock."""
        now_ms = monotonic_ms()
        moved = [parted.looked(now_ms) for parted in self._parted.values()]
        return any(moved)

    def publish(self) -> None:
        """Publish the clocks of the query's sources with partitions, for its next batches."""
        for id, path in self.trunk.clock_paths.items():
            parted = self._parted.get(id)
            if parted is not None and parted.clock_ms is not None:
                publish_clock(path, parted.clock_ms)

    def publish_reached(self, clock_ms: int, path: str) -> None:
        """Publish to the query's clock streams that its sources have reached `clock_ms`, if they have event
        time.

        `path` is where the clock of sources without one of their own is published.
        """
        if None in self.trunk.inputs and self._event_times():
            for own in (path, *self.trunk.clock_paths.values()):
                publish_clock(own, clock_ms)

    def publish_known(self, clock_ms: int | None, path: str) -> None:
        """Publish the common clock of all inputs to a starting query, and each input's own clock.

        Spark runs no batch for the common clock, and does not keep the others.
        """
        if clock_ms is None or None not in self.trunk.inputs:
            return
        for own in (path, *self.trunk.clock_paths.values()):
            publish_clock(own, clock_ms)
        for id, own in self.trunk.clock_paths.items():
            newest_ms = self._newest.get(id)
            if newest_ms is not None and id not in self._parted:
                publish_clock(own, clock_behind(newest_ms, self._event_times()[id]))

    def _clocks_of(self, id: str) -> PartitionClocks:
        if id not in self._parted:
            partitions = partitions_of(self.plan.graph, id, self.trunk.sources)
            assert partitions is not None
            disorder_ms = self._event_times()[id]
            self._parted[id] = PartitionClocks(partitions, disorder_ms, self._began_ms)
        return self._parted[id]

    def after(self, watermark_ms: int, offsets: list[str | None], *, ends_input: bool) -> int | None:
        """The clock after a batch with that watermark and those end offsets, in ms; None if not known yet."""
        if self.trunk.only_at_end:
            return FINAL_CLOCK_MS if ends_input else None
        if self.fragment.stateful is not None:
            return self._state_clock(watermark_ms)
        clocks: list[int | None] = []
        for id, offset in zip(self.trunk.inputs, offsets, strict=False):
            if id is None:
                continue
            if self._carries_clock(id):
                # The offset has the clock of the last entry below it, which the producer may have trimmed.
                clocks.append(known_clock(json.loads(offset)["clock"]) if offset else None)
        for id, disorder_ms in self._event_times().items():
            if not self._reaches_output(id):
                continue
            newest = self._newest.get(id)
            if id in self._parted:
                clocks.append(self._parted[id].clock_ms)
            else:
                clocks.append(None if newest is None else clock_behind(newest, disorder_ms))
        known = [c for c in clocks if c is not None]
        return min(known) if known and len(known) == len(clocks) else None

    def observed_in_trunk(self, query: StreamingQuery | None) -> dict[str, Newest]:
        """The largest timestamps of the batch, for each event time that the trunk assigns."""
        if not self.trunk.observed or query is None:
            return {}
        # Spark reports to Python only after the batch, but the batch's entry must have its clock.
        observed = query._jsq.streamingQuery().lastExecution().observedMetrics()
        found: dict[str, Newest] = {}
        for id in self.trunk.observed:
            row = observed.get(newest_name(id))
            if row.isDefined():
                values = row.get()
                names = list(values.schema().fieldNames())
                longs = {n: None if values.isNullAt(i) else values.getLong(i) for i, n in enumerate(names)}
                found[id] = read_newest(longs)
        return found

    def _carries_clock(self, id: str) -> bool:
        """Whether an input's log has the clock: a channel (also one of another application), or the store
        of a source without event time.
        """
        if id in self.channels:
            return self._reaches_output(self.plan.channel(id).producer)
        if isinstance(self.plan.graph.nodes[id].operation.stream_source, ApplicationStream):
            return self._reaches_output(id)
        return id in self.trunk.stored and not self._event_times()

    def _reaches_output(self, id: str) -> bool:
        """Whether messages of a processor leave the fragment with the same timestamps."""
        readers = [n for n in self.plan.graph.consumers(id) if n.id in self.fragment.processors]
        if not readers or any(c.producer == id for c in self.plan.outputs(self.fragment.id)):
            return True
        return any(n.operation.assigned_time is None and self._reaches_output(n.id) for n in readers)

    def _state_clock(self, watermark_ms: int) -> int | None:
        clock_ms = clock_of(watermark_ms)
        if clock_ms is None or clock_ms >= FINAL_CLOCK_MS:
            return clock_ms
        operation = self.plan.graph.nodes[str(self.fragment.stateful)].operation
        return clock_ms - operation.result_lag_ms

    def _event_times(self) -> dict[str, int]:
        """Disorder in ms of every event time that this fragment assigns, by processor id."""
        times = {id: self.plan.graph.nodes[id].operation.assigned_time for id in self.fragment.processors}
        return {id: time.max_disorder_ms for id, time in times.items() if time is not None}

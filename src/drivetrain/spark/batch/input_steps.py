"""The steps of a batch that concern its inputs: check the sources, observe timestamps, advance the clock.

Problem: a micro-batch and an interval of real-time mode differ in how messages are written. Their effect on
sources and on the fragment's clock is the same.

Design: each step takes the end offsets of the batch, which come from Spark's offset log, so a repeated
batch has the same effect as the first time.

Called by `pipeline` and `fragment_query`: in the thread that runs batches, and in the one that polls, never
at the same time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from drivetrain.core.plan.plan import Fragment, Plan
from drivetrain.core.replay.replay import source_time
from drivetrain.spark.batch.fragment_clock import FragmentClock
from drivetrain.spark.batch.message_counts import Counts
from drivetrain.spark.batch.query_inputs import QueryInputs
from drivetrain.spark.connector.newest import Newest
from drivetrain.spark.prepare.source_clock import PartitionsChangedError, newest_of_all
from drivetrain.spark.prepare.trunk import Trunk


class InputSteps:
    """The inputs of one fragment's query; `clock` is the fragment's, `counts` gets the sources' losses."""

    def __init__(
        self,
        plan: Plan,
        fragment: Fragment,
        trunk: Trunk,
        inputs: QueryInputs,
        clock: FragmentClock,
        counts: Counts,
    ) -> None:
        self.inputs = inputs
        self.clock = clock
        self.counts = counts
        self._plan = plan
        self._fragment = fragment
        self._trunk = trunk

    def switch_to(self, plan: Plan, fragment: Fragment) -> None:
        """Another version of the branches runs from now on."""
        self._plan, self._fragment = plan, fragment

    def check_partitions(self) -> None:
        """Raise `PartitionsChangedError` when a source has more partitions than the query knows."""
        if self.clock.has_outgrown:
            raise PartitionsChangedError(
                "a source has more partitions than when the query began",
                where=f"fragment {self._fragment.id}",
                remedy="nothing to do: the query is compiled again with all partitions, and continues",
            )

    def check_sources(self, offsets: Sequence[str | None]) -> None:
        """Raise `InputError` when a source has changed since Spark planned the batch."""
        for id, offset in self.inputs.by_id(offsets):
            if id in self._trunk.sources:
                source = self._trunk.sources[id]
                source.check(offset)
                self.counts.lost[id] = source.lost()

    def observe(
        self,
        newest: Mapping[str, Newest],
        offsets: Sequence[str | None],
        batch_id: int,
        planned_ms: int,
    ) -> None:
        """Take the largest timestamps of a batch that was planned at `planned_ms` (monotonic).

        They go into the fragment's clock, and to the sources whose messages got their timestamps here.
        """
        self.clock.observe(newest, planned_ms)
        self.clock.note(batch_id)
        self.clock.publish()
        for id, source in self._trunk.sources.items():
            time, index = source_time(self._plan.graph, id), self._trunk.inputs.index(id)
            if time is None or not set(time.places) <= set(self._fragment.processors):
                continue
            found = [newest[place] for place in time.places if place in newest]
            known = newest_of_all(found) if len(found) == len(time.places) else None
            source.ran(self.inputs.offset(id), offsets[index] if index < len(offsets) else None, known)

    def clock_after(self, offsets: Sequence[str | None], watermark_ms: int) -> int | None:
        """The fragment's clock after a batch in ms; None if not known yet."""
        ends_input = self.inputs.end_with(offsets)
        return self.clock.after(watermark_ms, list(offsets), ends_input=ends_input)

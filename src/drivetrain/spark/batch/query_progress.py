"""How far a fragment has come, as users see it: the counts, rates and lags of one query.

Problem: Spark's progress counts rows of its inputs, among them our punctuations, rows that stand for ranges,
and rows that say an end; and it tells of a batch a moment after the batch. What waits in channels, and how
far the clock is behind what was read, Spark does not know.

Design: Spark's reports are taken once each; channels are looked at by `channel_watch`. What only others
know of a channel (what its producer has not heard of, what was lost) they add by `notes`.

Invariants:

1. Every batch is counted once.
2. A message is a row that a source gave or a producer wrote; nothing else is counted.

Called by `query`, from the thread that polls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark.sql.streaming.listener import StreamingQueryProgress

from drivetrain.core.channel.channel_progress import ChannelProgress
from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS
from drivetrain.core.job.run_progress import FragmentProgressed
from drivetrain.core.plan.plan import Fragment, Plan
from drivetrain.runtime.channel.store import ChannelStore
from drivetrain.spark.batch.message_counts import Counts
from drivetrain.spark.batch.query_engine import RunningQuery
from drivetrain.spark.channel.backlog import ChannelWatch
from drivetrain.spark.channel.watermark import clock_of, parse_watermark
from drivetrain.spark.prepare.trunk import Trunk


class QueryProgress:
    """The batches of one query that Spark has reported; durations in ms."""

    def __init__(
        self,
        plan: Plan,
        fragment: Fragment,
        trunk: Trunk,
        readers: Mapping[str, ChannelStore],
        counts: Counts,
    ) -> None:
        self.fragment = fragment
        self.trunk = trunk
        self.readers = readers
        self.counts = counts
        self.rows_total = 0
        self.rows_per_s = 0.0
        self.batch_ms = 0
        self.seen = -1
        """The newest batch that was reported."""
        self.counted: dict[str, int] = {}
        """Rows taken up to the last look, of sources that count rows."""
        self.notes: list[Callable[[ChannelProgress], ChannelProgress]] = []
        """Each adds to the record of an input channel what it knows of it."""
        self.on_taken: Callable[[str, str | None, str | None, int], None] | None = None
        """Hears of each committed batch what it took of a channel: id, offsets, messages."""
        self.blocked_by: str | None = None
        """The subscriber whose full window the fragment waits for."""
        self._newest_ms: int | None = None  # of the rows that a source gave to the trunk's watermark
        producers = {c.id: c.producer_fragment for c in plan.channels}
        self._watches = {
            id: ChannelWatch(id, producers[id], fragment.id, store) for id, store in readers.items()
        }

    def read(self, query: RunningQuery | None) -> list[StreamingQueryProgress]:
        """Take what Spark has reported since the last time: the batches that have run, oldest first."""
        new: list[StreamingQueryProgress] = []
        for progress in () if query is None else query.reports():
            if progress.batchId <= self.seen or "addBatch" not in progress.durationMs:
                continue
            new.append(progress)
            self.seen = progress.batchId
            self.batch_ms = int(progress.durationMs.get("triggerExecution", 0))
            rows = 0
            for id, source in zip(self.trunk.inputs, progress.sources, strict=False):
                if id is None:
                    continue
                n = int(source.numInputRows)
                is_log = id in self.readers or id in self.trunk.stored
                n = max(0, n - 1) if is_log and n else n  # one of the rows is the punctuation
                if id in self.trunk.sources and self.trunk.sources[id].unit == "rows" and not is_log:
                    n = self._rows_since(id, source.endOffset)  # one input row stands for a range
                elif n and id in self.trunk.sources and self.trunk.sources[id].has_end_row:
                    n -= self.trunk.sources[id].position(source.endOffset).finished
                rows += n
                if id in self.readers and self.on_taken is not None:
                    self.on_taken(id, source.startOffset, source.endOffset, n)
                if id in self.trunk.sources:
                    self.counts.add(self.counts.out, id, n)
            self.rows_total += rows
            self.rows_per_s = rows * 1000 / max(self.batch_ms, 1)
            self._see_event_time(progress.eventTime.get("max"))
            late = sum(s.numRowsDroppedByWatermark for s in progress.stateOperators)
            if late and self.fragment.stateful is not None:
                self.counts.add(self.counts.late, self.fragment.stateful, late)
        return new

    def told(
        self,
        batch_id: int,
        clock_ms: int | None,
        positions: Mapping[str, int | None],
        newest_ms: Mapping[str, int],
    ) -> FragmentProgressed:
        """The fragment now.

        `positions` are entry numbers by channel, None before the first batch; `newest_ms` the largest
        timestamps that the fragment's own event times gave.
        """
        channels = tuple(
            self._noted(watch.look(positions[id], clock_ms)) for id, watch in self._watches.items()
        )
        taken = [self._newest_ms, *newest_ms.values(), *(w.newest_taken_ms for w in self._watches.values())]
        newest = max((ms for ms in taken if ms is not None), default=None)
        delay_ms = None
        if newest is not None and clock_ms is not None and clock_ms < FINAL_CLOCK_MS - 1:
            delay_ms = max(0, newest - clock_ms)
        return FragmentProgressed(
            self.fragment.id,
            batch_id,
            self.rows_total,
            self.rows_per_s,
            self.batch_ms,
            sum(channel.lag_rows for channel in channels) if channels else None,
            clock_ms,
            channels,
            delay_ms,
            blocked_by=self.blocked_by,
        )

    def _noted(self, channel: ChannelProgress) -> ChannelProgress:
        for note in self.notes:
            channel = note(channel)
        return channel

    def _see_event_time(self, text: str | None) -> None:
        """Take Spark's largest value of the watermark's column: of sources that is their event time."""
        if text is None:
            return
        ms = clock_of(parse_watermark(text))
        if ms is not None and ms < FINAL_CLOCK_MS and (self._newest_ms is None or ms > self._newest_ms):
            self._newest_ms = ms

    def _rows_since(self, id: str, offset: str | None) -> int:
        """How many rows a source that counts rows has given since the last time it was asked."""
        done = self.trunk.sources[id].position(offset).done
        before, self.counted[id] = self.counted.get(id, 0), done
        return max(0, done - before)

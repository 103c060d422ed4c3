"""A fragment's progress for users: the counts, rates and lags of one query.

Problem: Spark's progress counts rows of its inputs, including punctuations, rows that stand for ranges, and
rows that mark an end; and it reports a batch a moment after the batch. Spark does not know what waits in
channels, nor how far the clock is behind the messages that were read.

Design: each of Spark's reports is taken once; `backlog` looks at channels. Other parts add what
only they know of a channel (unacknowledged messages, losses) by `notes`.

Invariants:

1. Every batch is counted once.
2. A message is a row from a source or a producer; no other rows are counted.

Called by `fragment_query`, from the polling thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pyspark.sql.streaming.listener import StreamingQueryProgress

from drivetrain.core.channel.channel_progress import ChannelProgress
from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS
from drivetrain.core.job.run_progress import FragmentProgressed
from drivetrain.core.plan.plan import Fragment, Plan
from drivetrain.runtime.channel.store import ChannelStore
from drivetrain.spark.batch.message_counts import Counts
from drivetrain.spark.batch.query_engine import RunningQuery
from drivetrain.spark.batch.query_figures import QueryFigures
from drivetrain.spark.channel.backlog import ChannelWatch
from drivetrain.spark.channel.watermark import clock_of, parse_watermark
from drivetrain.spark.prepare.trunk import Trunk, count_name


class QueryProgress:
    """The batches of one query that Spark has reported; durations in ms."""

    def __init__(
        self,
        plan: Plan,
        fragment: Fragment,
        trunk: Trunk,
        readers: Mapping[str, ChannelStore],
        counts: Counts,
        figures: QueryFigures,
    ) -> None:
        self.fragment = fragment
        self.trunk = trunk
        self.readers = readers
        self.counts = counts
        self.figures = figures
        self.rows_total = 0
        self.rows_per_s = 0.0
        self.batch_ms = 0
        self.seen = -1
        """The newest reported batch."""
        self.newest_with_late = -1
        """The newest reported batch in which Spark dropped late messages."""
        self.counted: dict[str, int] = {}
        """Rows taken up to the last look, for sources that count rows."""
        self.notes: list[Callable[[ChannelProgress], ChannelProgress]] = []
        """Each adds its own figures to the record of an input channel."""
        self.on_taken: Callable[[str, str | None, str | None, int], None] | None = None
        """Called for each committed batch and channel, with what the batch took: id, offsets, messages."""
        self.blocked_by: str | None = None
        """The subscriber whose full window the fragment waits for."""
        self.newest_ms: int | None = None
        """The largest timestamp of the rows from a source, in the trunk's watermark."""
        producers = {c.id: c.producer_fragment for c in plan.channels}
        self._watches = {
            id: ChannelWatch(id, producers[id], fragment.id, store) for id, store in readers.items()
        }

    def read(self, query: RunningQuery | None) -> list[StreamingQueryProgress]:
        """Take Spark's reports since the last call: the batches that have run, oldest first."""
        new: list[StreamingQueryProgress] = []
        for progress in () if query is None else query.reports(self.seen):
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
                elif not n and id in self.trunk.sources and self.trunk.may_be_direct:
                    n = self.trunk.sources[id].messages(source.startOffset, source.endOffset)
                elif id in self.trunk.counted:
                    n = _observed(progress, count_name(id))
                elif n and id in self.trunk.sources and self.trunk.sources[id].has_end_row:
                    n -= self.trunk.sources[id].position(source.endOffset).finished
                rows += n
                if id in self.readers and self.on_taken is not None:
                    self.on_taken(id, source.startOffset, source.endOffset, n)
                if id in self.trunk.sources:
                    self.counts.add(self.counts.out, id, n)
                    taken = self.trunk.sources[id].taken_of_partitions
                    self.figures.record_rows(id, taken(source.startOffset, source.endOffset))
            self.rows_total += rows
            self.rows_per_s = rows * 1000 / max(self.batch_ms, 1)
            self.figures.reported(progress, rows)
            self._see_event_time(progress.eventTime.get("max"))
            late = sum(s.numRowsDroppedByWatermark for s in progress.stateOperators)
            if late and self.fragment.stateful is not None:
                self.counts.add(self.counts.late, self.fragment.stateful, late)
                self.newest_with_late = progress.batchId
        return new

    def current(
        self,
        batch_id: int,
        clock_ms: int | None,
        positions: Mapping[str, int | None],
        newest_ms: Mapping[str, int],
        silent: Sequence[str] = (),
    ) -> FragmentProgressed:
        """The fragment's current progress.

        `positions` are entry numbers by channel, None before the first batch; `newest_ms` the largest
        timestamps that the fragment's own event times gave; `silent` are partitions that the clock ignores.
        """
        channels = tuple(
            self._noted(watch.look(positions[id], clock_ms)) for id, watch in self._watches.items()
        )
        of_channels = [w.newest_taken_ms for w in self._watches.values()]
        taken = [self.newest_ms, *newest_ms.values(), *of_channels]
        newest = max((ms for ms in taken if ms is not None), default=None)
        figures = self.figures.look(
            batch_id, max((ms for ms in of_channels if ms is not None), default=self.newest_ms), silent
        )
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
            figures=figures,
        )

    def _noted(self, channel: ChannelProgress) -> ChannelProgress:
        for note in self.notes:
            channel = note(channel)
        return channel

    def _see_event_time(self, text: str | None) -> None:
        """Take Spark's largest value of the watermark's column: for sources that is their event time."""
        if text is None:
            return
        ms = clock_of(parse_watermark(text))
        if ms is not None and ms < FINAL_CLOCK_MS and (self.newest_ms is None or ms > self.newest_ms):
            self.newest_ms = ms

    def _rows_since(self, id: str, offset: str | None) -> int:
        """How many rows a source that counts rows has delivered since the last call."""
        done = self.trunk.sources[id].position(offset).done
        before, self.counted[id] = self.counted.get(id, 0), done
        return max(0, done - before)


def _observed(progress: StreamingQueryProgress, name: str) -> int:
    """The number that Spark observed under that name while the batch passed."""
    row = progress.observedMetrics.get(name)
    return 0 if row is None else int(row[0] or 0)

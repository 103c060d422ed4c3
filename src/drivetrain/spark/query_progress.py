"""What Spark reports of a fragment's batches, as the counts and rates that users see.

Problem: Spark's progress counts rows of its inputs, among them our punctuations, rows that stand for ranges,
and rows that say an end; and it tells of a batch a moment after the batch.

Invariants:

1. Every batch is counted once.
2. A message is a row that a source gave or a producer wrote; nothing else is counted.

Called by `query`, from the thread that polls.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.streaming import StreamingQuery

from drivetrain.core.plan import Fragment
from drivetrain.spark.channel.store import ChannelStore
from drivetrain.spark.counting import Counts
from drivetrain.spark.fragment import Trunk


class QueryProgress:
    """The batches of one query that Spark has reported; durations in ms."""

    def __init__(
        self, fragment: Fragment, trunk: Trunk, readers: Mapping[str, ChannelStore], counts: Counts
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

    def read(self, query: StreamingQuery | None) -> None:
        """Take what Spark has reported since the last time."""
        if query is None:
            return
        for progress in query.recentProgress:
            if progress.batchId <= self.seen or "addBatch" not in progress.durationMs:
                continue
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
                elif n and id in self.trunk.sources and self.trunk.sources[id].says_end:
                    n -= self.trunk.sources[id].position(source.endOffset).finished
                rows += n
                if id in self.trunk.sources:
                    self.counts.add(self.counts.out, id, n)
            self.rows_total += rows
            self.rows_per_s = rows * 1000 / max(self.batch_ms, 1)
            late = sum(s.numRowsDroppedByWatermark for s in progress.stateOperators)
            if late and self.fragment.stateful is not None:
                self.counts.add(self.counts.late, self.fragment.stateful, late)

    def _rows_since(self, id: str, offset: str | None) -> int:
        """How many rows a source that counts rows has given since the last time it was asked."""
        done = self.trunk.sources[id].position(offset).done
        before, self.counted[id] = self.counted.get(id, 0), done
        return max(0, done - before)

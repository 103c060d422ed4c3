"""The figures of a query: the time of its batches by step, the size of its state, the delay of its results.

Problem: Spark reports the durations of its own steps and the size of the state, a moment after each batch.
Only the batch itself can measure its steps within `foreachBatch`. Users want both in one report.

Design: the thread that runs batches leaves what it measured here (`ran`); the thread that polls joins it with
Spark's report of the same batch (`reported`). Spark is asked for nothing beyond the reports that it makes
anyway. A result counts as shown once the outputs have its batch or, if sinks publish with checkpoints, once
its checkpoint is published (`published`).

Invariants:

1. Counters never fall, even when one query of an attempt follows another (`go_on`).
2. The memory for batches that wait for their report or their publication is bounded.

Called by `fragment_query` and `query_progress`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pyspark.sql.streaming.listener import StateOperatorProgress, StreamingQueryProgress

from drivetrain.core.job.fragment_figures import (
    MOST_NAMED,
    Counters,
    FragmentFigures,
    LastBatch,
    Phases,
)
from drivetrain.core.job.latencies import Latencies
from drivetrain.core.job.recent_partitions import RecentPartitions
from drivetrain.spark.batch.user_counters import PythonWork
from drivetrain.spark.measure.batch_times import BatchTimes, Phase

_MOST_WAITING: Final = 1_000
"""Batches that wait for Spark's report, or until they are published."""
_ON_DISK: Final = "rocksdbSstFileSize"


@dataclass(frozen=True)
class CompletedBatch:
    """A batch whose outputs have it: when (wall clock), and the newest timestamp of what was assigned here
    (None: it takes the timestamps of channels)."""

    id: int
    ended_ms: int
    newest_ms: int | None
    has_input: bool
    times: BatchTimes
    work: PythonWork


@dataclass
class BlockedTime:
    """How long batches waited for space, in ms: by channel since the query began, and the current one."""

    by_channel: dict[str, int] = field(default_factory=dict)
    now_ms: int = 0


class QueryFigures:
    """The figures of one query; `cores` is how many tasks run at once, `blocked` looks at its channels.

    `counts_rows` is whether Spark counts the rows of a state: otherwise it reports none.
    """

    def __init__(self, cores: int, blocked: Callable[[], BlockedTime], *, counts_rows: bool = True) -> None:
        self.publishes_later: Callable[[], bool] = lambda: False
        """Whether results are shown only when a checkpoint is published; it can change with the version."""
        self.trigger_ms: int | None = None
        """How long a batch is meant to take; None: as short as it can."""
        self._cores: Final = cores
        self._counts_rows: Final = counts_rows
        self._blocked: Final = blocked
        self._before = Counters()
        self._ran: Final[dict[int, CompletedBatch]] = {}
        self._unseen: Final[deque[CompletedBatch]] = deque(maxlen=_MOST_WAITING)
        self._unpublished: Final[deque[tuple[int, int]]] = deque(maxlen=_MOST_WAITING)
        self._published: Final[deque[tuple[int, int]]] = deque(maxlen=_MOST_WAITING)
        self._last = LastBatch()
        self._batches = self._python_ms = self._state_ms = 0
        self._phases = Phases()
        self._state: tuple[int | None, int | None] = (None, None)
        self._state_partitions: int | None = None
        self._latencies: Final = Latencies()
        self._partitions: Final = RecentPartitions()
        self._alignment = (-1, 0)
        self._aligning_ms = 0

    def go_on(self, before: FragmentFigures) -> None:
        """Continue counting where an earlier query of the same attempt stopped."""
        self._before = before.counters

    # -- in the thread that runs batches ---------------------------------------------------------------

    def ran(self, batch: CompletedBatch) -> None:
        """Record a batch that all outputs have."""
        self._ran[batch.id] = batch
        while len(self._ran) > _MOST_WAITING:
            self._ran.pop(next(iter(self._ran)))
        if batch.has_input:
            self._unseen.append(batch)

    # -- from any thread ---------------------------------------------------------------------------------

    @property
    def state_rows(self) -> int | None:
        """The rows of the state after the newest batch that was reported; None if they are not counted."""
        return self._state[0]

    def published(self, batch_id: int) -> None:
        """A checkpoint has shown the results of all batches up to this one."""
        self._published.append((batch_id, int(time.time() * 1000)))

    def aligned(self, txid: int, ms: int) -> None:
        """Record how long inputs were held at the barriers of a checkpoint."""
        self._aligning_ms += ms
        self._alignment = (txid, ms)

    # -- in the thread that polls ------------------------------------------------------------------------

    def reported(self, report: StreamingQueryProgress, rows: int) -> None:
        """Add a committed batch that Spark has reported, with its number of messages."""
        ran = self._ran.pop(report.batchId, None)
        times, work = (BatchTimes(), PythonWork()) if ran is None else (ran.times, ran.work)
        phases = phases_of(report.durationMs, times)
        state_ms = sum(
            int(o.allUpdatesTimeMs) + int(o.allRemovalsTimeMs) + int(o.commitTimeMs)
            for o in report.stateOperators
        )
        self._last = LastBatch(
            report.batchId,
            rows,
            phases,
            dict(list(times.by_name(Phase.SINK).items())[:MOST_NAMED]),
            work.total_ms,
            work.longest_ms,
            work.tasks,
            state_ms,
        )
        self._batches += 1
        self._phases = self._phases.plus(phases)
        self._python_ms += work.total_ms
        self._state_ms += state_ms
        if report.stateOperators:
            rows, size = state_size(report.stateOperators)
            self._state = (rows if self._counts_rows else None, size)
            self._state_partitions = max(int(o.numShufflePartitions) for o in report.stateOperators)

    def record_rows(self, source: str, rows_by_partition: Mapping[int, int]) -> None:
        """Add how many messages a batch took of each partition of a source."""
        self._partitions.record_rows(
            {f"{source}/{n}": rows for n, rows in rows_by_partition.items()}, int(time.monotonic() * 1000)
        )

    def look(self, batch_id: int, newest_taken_ms: int | None, silent: Sequence[str]) -> FragmentFigures:
        """The figures now.

        The newest batch that ran is `batch_id`, `newest_taken_ms` the largest timestamp of what was taken
        from channels up to it, `silent` are the partitions that the clock ignores.
        """
        self._see_latencies(batch_id, newest_taken_ms)
        blocked = self._blocked()
        before = self._before
        sums = {**before.blocked_ms}
        for channel, ms in blocked.by_channel.items():
            sums[channel] = sums.get(channel, 0) + ms
        return FragmentFigures(
            Counters(
                before.batches + self._batches,
                before.phases.plus(self._phases),
                before.python_ms + self._python_ms,
                before.state_ms + self._state_ms,
                before.aligning_ms + self._aligning_ms,
                dict(list(sums.items())[:MOST_NAMED]),
            ),
            self._last,
            self._cores,
            *self._state,
            blocked.now_ms,
            *self._alignment,
            self._latencies.share(0.5),
            self._latencies.share(0.99),
            len(self._latencies),
            self._partitions.rows(),
            tuple(silent[:MOST_NAMED]),
            self.trigger_ms,
            self._state_partitions,
        )

    def _see_latencies(self, batch_id: int, newest_taken_ms: int | None) -> None:
        while self._unseen:
            batch = self._unseen.popleft()
            newest_ms = batch.newest_ms
            if newest_ms is None and batch.id == batch_id:
                newest_ms = newest_taken_ms  # the newest timestamp at the time of earlier batches is unknown
            if newest_ms is None:
                continue
            if self.publishes_later():
                self._unpublished.append((batch.id, newest_ms))
            else:
                self._latencies.add(batch.ended_ms - newest_ms)
        while self._published:
            shown_to, shown_ms = self._published.popleft()
            while self._unpublished and self._unpublished[0][0] <= shown_to:
                self._latencies.add(shown_ms - self._unpublished.popleft()[1])


def phases_of(durations_ms: Mapping[str, int], times: BatchTimes) -> Phases:
    """Spark's durations of a batch, and those of its steps, as disjoint phases.

    >>> durations = {"triggerExecution": 100, "latestOffset": 5, "queryPlanning": 10, "walCommit": 20}
    >>> phases_of(durations, BatchTimes()).other_ms
    65
    """

    def spark(*names: str) -> int:
        return sum(int(durations_ms.get(name, 0)) for name in names)

    known = Phases(
        waiting_ms=times.ms(Phase.WAITING),
        source_ms=spark("latestOffset", "getBatch") + times.ms(Phase.SOURCE),
        planning_ms=spark("queryPlanning") + times.ms(Phase.PLANNING),
        computing_ms=times.ms(Phase.COMPUTING),
        sink_ms=times.ms(Phase.SINK),
        channel_ms=times.ms(Phase.CHANNEL),
        log_ms=spark("walCommit", "commitOffsets", "commitBatch"),
    )
    rest_ms = max(0, spark("triggerExecution") - known.together_ms)
    return known.plus(Phases(other_ms=rest_ms))


def state_size(operators: Sequence[StateOperatorProgress]) -> tuple[int, int]:
    """Rows and bytes of a state: what it takes in memory and, of RocksDB, in its files."""
    rows = sum(int(operator.numRowsTotal) for operator in operators)
    size = sum(
        int(operator.memoryUsedBytes) + int(operator.customMetrics.get(_ON_DISK, 0)) for operator in operators
    )
    return rows, size

"""Moves the clock of a fragment between batches, when no message comes.

Problem: the clock follows from batches, but Spark runs none without messages. Silent partitions would hold
the clock for ever, a test that feeds the sources could not let time pass, and new partitions of a source
would stay unread.

Design: the polling thread looks at most every `LOOK_S`. It holds the query's turn meanwhile, so no batch
runs. A fragment with state gets the clock by its clock streams, in a separate batch; a fragment without state
appends it to its channels.

Invariants:

1. The clock moves only when every batch is committed, and never back.
2. No thread ends the query while it holds the turn: the end waits for a batch, which may wait for the turn.

Called by `micro_batch_query`.
"""

from __future__ import annotations

import time
from typing import Final

from drivetrain.core.job.run_progress import FragmentState
from drivetrain.spark.batch.fragment_query import FragmentQuery
from drivetrain.spark.prepare.source_clock import PartitionsChangedError
from drivetrain.spark.prepare.trunk import CLOCK

LOOK_S: Final = 0.25
"""How often Spark is asked whether a query waits for data, if that can move a clock."""


class IdleClock:
    """The clock of one query between its batches."""

    def __init__(self, query: FragmentQuery) -> None:
        self._query: Final = query
        self._looked_s = time.monotonic()

    def look(self) -> None:
        """Move the clock, if partitions of a source have become idle and no batch runs.

        Ends the query with `PartitionsChangedError` when a source has more partitions than the query knows.
        """
        query = self._query
        if query.state is not FragmentState.RUNNING or query.clock.waiting_for is None:
            return
        now_s = time.monotonic()
        if now_s - self._looked_s < LOOK_S or not query.turn.acquire(blocking=False):
            return
        self._looked_s = now_s
        try:
            outgrown = self._look_between_batches()
        finally:
            query.turn.release()
        if outgrown is not None:
            query.fail(outgrown)  # waits for a batch that has begun meanwhile, and that waits for the turn

    def _look_between_batches(self) -> PartitionsChangedError | None:
        query = self._query
        if not query.active or not query.is_committed():
            return None
        try:
            query.steps.check_partitions()
        except PartitionsChangedError as error:
            return error
        if query.waits_for_data and query.clock.looked():
            self._move()
        return None

    def advance(self, clock_ms: int) -> None:
        """Move the clock to `clock_ms` without a message; the caller guarantees that no older one follows.

        A fragment without sources, or one that has ended, is left as it is. Called between batches.
        """
        query = self._query
        if not query.trunk.sources or query.state is not FragmentState.RUNNING:
            return
        with query.turn:
            query.clock.reached(clock_ms)
            query.clock.publish_reached(clock_ms, str(query.directory / CLOCK))
            self._move()

    def _move(self) -> None:
        query = self._query
        query.clock.publish()  # with state, the query's own next batch gets it
        if query.fragment.stateful is not None:
            return
        clock_ms = query.clock.after(0, query.inputs.offsets, ends_input=False)
        if clock_ms is None or (query.clock_ms is not None and clock_ms <= query.clock_ms):
            return
        for store in query.branches.stores.values():
            store.append_clock(clock_ms)
        query.flow.appended()
        query.take_clock(clock_ms)
        if query.checkpoints is not None:
            query.checkpoints.ran()  # windows that the clock fires elsewhere are worth a checkpoint, too

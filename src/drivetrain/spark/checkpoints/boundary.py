"""A query between two of its batches, where a checkpoint can be taken.

Problem: Spark runs a batch, records in its log that it is committed, plans the next, and only then calls
back. A snapshot must be of a committed batch, before anything of the next has run.

Design: batches run while they hold the query's `turn`. A thread that takes the turn and waits until the last
batch is in Spark's commit log is between two batches: Spark may have planned the next, whose run waits for
the turn. A batch that was planned before a crash and not committed runs before any snapshot: outputs may
already have it.

Invariants:

1. `between_batches` yields True only at a boundary, and no batch runs until the context is left.

Called by `participation`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from drivetrain.core.channel.channel_log import TrimmedError
from drivetrain.core.checkpoint.transaction import Command
from drivetrain.core.job.run_progress import FragmentState
from drivetrain.runtime.channel.segments import MessageLossError

if TYPE_CHECKING:
    from drivetrain.spark.batch.fragment_query import FragmentQuery

_LOOK_S: Final = 0.002
_REST_S: Final = 0.02


class QueryBoundary:
    """The boundaries of `query`."""

    def __init__(self, query: FragmentQuery) -> None:
        self._query: Final = query

    @property
    def is_finished(self) -> bool:
        """Whether the query has finished."""
        return self._query.state is FragmentState.FINISHED

    @property
    def goes_on(self) -> bool:
        """Whether there is, or will be, a boundary."""
        return self.is_finished or (self._query.error is None and self._query.active)

    @contextmanager
    def between_batches(self, wait_s: float) -> Iterator[bool]:
        """Stay between two batches; yields False if that is impossible within `wait_s` (0: at once)."""
        query = self._query
        deadline = time.monotonic() + wait_s
        if not query.turn.acquire(timeout=wait_s):
            yield False
            return
        try:
            must_run = query.batch_id < query.replay_until
            while not must_run and not query.is_committed() and time.monotonic() < deadline:
                time.sleep(_LOOK_S)
            yield not must_run and query.is_committed() and self.goes_on
        finally:
            query.turn.release()
            if must_run and wait_s:
                time.sleep(_REST_S)  # the batch needs the turn, and locks are not fair

    @property
    def last_number(self) -> int:
        """The number under which sinks know the last batch."""
        final = 1 if self.is_finished and self._query.has_final_batch else 0
        return self._query.branches.first_batch + self._query.batch_id + final

    def barriers(self) -> dict[str, Command]:
        """The barriers directly ahead of the query, by channel; the newest if there are several."""
        found: dict[str, Command] = {}
        for channel, position in self.positions()[1].items():
            store = self._query.readers[channel]
            with suppress(MessageLossError, TrimmedError):  # the reader reports them
                for number in range(position, store.length()):
                    barrier = store.entry(number).barrier
                    if barrier is None:
                        break
                    found[channel] = barrier
        return found

    def positions(self) -> tuple[dict[str, str], dict[str, int]]:
        """The positions after the last batch: the offsets of sources, and for channels the next entries."""
        sources: dict[str, str] = {}
        channels: dict[str, int] = {}
        for id, offset in self._query.inputs.by_id(list(self._query.inputs.offsets)):
            if not offset:
                continue
            if id in self._query.readers:
                channels[id] = int(json.loads(offset)["entry"])
            else:
                sources[id] = offset
        for id in self._query.readers:
            channels.setdefault(id, 0)
        return sources, channels

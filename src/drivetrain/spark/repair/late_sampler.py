"""Keeps samples of a fragment's late messages: decides which batches to look at, and what to store of them.

Problem: "where did my message go?" needs late messages to look at, but looking costs a second reading of a
batch (`late_batch`). An application with many late messages must not spend its time on them.

Design: a batch with late messages is looked at once it is committed, in a thread, while the next batches run;
then no batch is looked at for `PAUSES` times as long as that took. So looks take a twentieth of the time at
most, and an application without late messages pays nothing. A fragment that ends waits a moment for its last
look. The input of the two newest batches, and of one that is being looked at, is not deleted from channels.
A batch that has waited for its turn may have lost its input by then; that is only logged: these are samples,
and the counts are exact without them.

Invariants:

1. At most one look runs at a time, and none after `stop`.
2. An error of a look ends nothing but the look.

Called by `micro_batch_query`, from the polling thread; made by `spark.run.execution`.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Final

from drivetrain.api.graphs.graph import Node
from drivetrain.config.catalog import run as run_keys
from drivetrain.runtime.late_samples import LONGEST, LateMessage, LateSamples
from drivetrain.runtime.running_config import RunningConfig
from drivetrain.spark.batch.fragment_query import FragmentQuery
from drivetrain.spark.channel.watermark import clock_of
from drivetrain.spark.repair.late_batch import LateBatch, LateRecord
from drivetrain.spark.repair.steps import wait_done
from drivetrain.spark.session.offset_log import entries_after, read_offsets

log = logging.getLogger(__name__)

PAUSES: Final = 20
"""The pause after a look, as a multiple of the time that the look took."""
REPORT_S: Final = 2.0
"""How long the end of a fragment waits for Spark's reports, which show late messages."""
LAST_LOOK_S: Final = 20.0
"""The longest that the end of a fragment waits for a look."""
MOST_OF_BATCH: Final = 20
"""The most samples of one batch."""


class LateSampler:
    """The samples of late messages of the fragment of `query`; `config` may change while it runs."""

    def __init__(self, query: FragmentQuery, config: RunningConfig) -> None:
        self._query: Final = query
        self._fragment: Final = query.fragment
        self._config: Final = config
        self._noted = -1  # the newest batch with late messages
        self._looked = -1  # the newest batch that was looked at
        self._next_s = 0.0  # when it may look again
        self._thread: threading.Thread | None = None
        self._is_stopping = threading.Event()
        self._ends_s: float | None = None

    def note(self, batch_id: int) -> None:
        """A batch had late messages."""
        self._noted = max(self._noted, batch_id)

    def look(self) -> None:
        """Look at the newest batch with late messages, if it is time."""
        if not self._is_busy and time.monotonic() >= self._next_s:
            self._begin()

    def is_settled(self, *, is_reported: bool) -> bool:
        """Whether the fragment may end: its last batches are reported, and the newest with late messages was
        looked at, or one of the two takes too long."""
        if not self._config[run_keys.LATE_SAMPLES]:
            return True
        if self._ends_s is None:
            self._ends_s = time.monotonic()
        waited_s = time.monotonic() - self._ends_s
        if not is_reported and waited_s < REPORT_S:
            return False
        if not self._is_busy:
            self._begin()
        return not self._is_busy or waited_s > LAST_LOOK_S

    def oldest_needed(self, newest: int) -> int:
        """The oldest batch whose input must be there, if `newest` is the newest that is committed."""
        oldest = newest - 1  # Spark reports the late messages of a batch a moment after it has committed it
        return min(oldest, self._looked) if self._is_busy else oldest

    def stop(self) -> None:
        """End a look that runs, and begin no other."""
        self._is_stopping.set()
        if self._thread is not None:
            self._thread.join(LAST_LOOK_S)

    @property
    def _is_busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _begin(self) -> None:
        batch_id, keep = self._noted, self._config[run_keys.LATE_SAMPLES]
        if batch_id <= self._looked or not keep or self._is_stopping.is_set():
            return
        self._looked = batch_id
        name = f"late messages of {self._fragment.id}"
        self._thread = threading.Thread(target=self._look_at, args=(batch_id, keep), name=name, daemon=True)
        self._thread.start()

    def _look_at(self, batch_id: int, keep: int) -> None:
        began_s = time.monotonic()
        try:
            self._sample(batch_id, keep)
        except Exception as error:  # noqa: BLE001 - the input may be gone, a function may fail
            if not self._is_stopping.is_set():
                log.warning("no samples of the late messages of batch %d: %s", batch_id, error)
        finally:
            now_s = time.monotonic()
            self._next_s = now_s + PAUSES * (now_s - began_s)

    def _sample(self, batch_id: int, keep: int) -> None:
        metadata, _ = read_offsets(self._query.directory / "checkpoint" / "offsets" / str(batch_id))
        clock_ms = clock_of(int(metadata.get("batchWatermarkMs", 0)))
        if clock_ms is None or self._fragment.stateful is None:
            return
        if not self._has_input(batch_id):
            log.info("no samples of the late messages of batch %d: its input has been deleted", batch_id)
            return
        context = self._query.branches.context
        of_batch = LateBatch(
            context,
            self._query.engine,
            self._fragment,
            batch_id,
            clock_ms,
            min(keep, MOST_OF_BATCH),
            self._query.directory / "late",
        )
        found = wait_done(of_batch.found(), self._is_stopping.is_set, self._fragment.id)
        node, now_ms = context.plan.graph.nodes[self._fragment.stateful], time.time_ns() // 1_000_000

        def samples(first: int) -> list[LateMessage]:
            return [
                _sample(first + number, one, node, clock_ms, batch_id, now_ms)
                for number, one in enumerate(found)
            ]

        if found:
            LateSamples(context.rundir.path, self._fragment.id).add(samples, keep)

    def _has_input(self, batch_id: int) -> bool:
        """Whether the application's channels still contain all that the batch has read."""
        query = self._query
        first = entries_after(query.directory / "checkpoint", batch_id - 1, query.trunk.inputs)
        logs = query.inputs.logs
        return all(logs[id].oldest() <= entry for id, entry in first.items() if id in logs)


def _sample(
    number: int, found: LateRecord, node: Node, clock_ms: int, batch_id: int, now_ms: int
) -> LateMessage:
    return LateMessage(
        number=number,
        processor=node.id,
        message=found.message[:LONGEST],
        is_cut=len(found.message) > LONGEST,
        timestamp_ms=found.timestamp_ms,
        clock_ms=clock_ms,
        batch=batch_id,
        stored_ms=now_ms,
    )

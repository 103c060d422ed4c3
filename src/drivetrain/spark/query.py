"""The life of one fragment's query: its batches, its clock, and how it ends.

Spark calls `_on_batch` for every batch. What the batch is made of (offsets of the inputs, the
watermark) is read from Spark's own offset log, which was written before the batch began: so a batch
that is run again sees the clock it saw the first time.

How its clock follows from that is in `fragment_clock`; what Spark reports of batches, in `query_progress`.

Invariants:

1. The clock never moves back.
2. The fragment is finished only when its inputs are, every batch is committed, and its last entry
   says the final clock.
"""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

from drivetrain.api.graph import Process
from drivetrain.core.clock import FINAL_CLOCK_MS
from drivetrain.core.plan import Fragment, Plan
from drivetrain.core.progress import FragmentProgressed, FragmentState
from drivetrain.errors import DrivetrainError
from drivetrain.spark.branches import Batch, Branches
from drivetrain.spark.channel.clock_source import publish_clock
from drivetrain.spark.channel.store import ChannelStore
from drivetrain.spark.counting import Counts
from drivetrain.spark.failures import translated
from drivetrain.spark.fragment import Trunk
from drivetrain.spark.fragment_clock import FragmentClock, known_clock
from drivetrain.spark.query_progress import QueryProgress
from drivetrain.spark.sources import Position

REPORT_S = 2.0
TRIM_S = 5.0
"""How often channels are trimmed: a crash repeats nothing for it, so it need not be often."""


class DrainedError(RuntimeError):
    """Ends a query between two batches, when the application is asked to stop."""


class BatchFailedError(RuntimeError):
    """What Spark is told when a batch fails; the error itself is kept by the query."""


class FragmentQuery:
    """One fragment as a running query. The engine polls it; Spark calls it back for each batch."""

    def __init__(
        self,
        plan: Plan,
        fragment: Fragment,
        trunk: Trunk,
        branches: Branches,
        directory: Path,
        readers: dict[str, ChannelStore],
        counts: Counts,
    ) -> None:
        self.plan = plan
        self.fragment = fragment
        self.trunk = trunk
        self.branches = branches
        self.directory = directory
        self.checkpoint = directory / "checkpoint"
        self.readers = readers
        self.counts = counts
        self.progress = QueryProgress(plan, fragment, trunk, readers, counts)
        self.state = FragmentState.STARTING
        self.clock_ms: int | None = None
        self.batch_id = -1
        self.batches = 0
        self.busy = False
        self.error: BaseException | None = None
        self._offsets: list[str | None] = []
        self._clock = FragmentClock(plan, fragment, trunk, frozenset(readers))
        self._draining = threading.Event()
        self._query: StreamingQuery | None = None
        self._trimmed_s = time.monotonic()
        self._replay_until = max(batch_numbers(self.checkpoint / "offsets"), default=-1)
        if self._replay_until <= max(batch_numbers(self.checkpoint / "commits"), default=-1):
            self._replay_until = -1

    # -- life --------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the query, or go on from its checkpoint."""
        self._recover()
        for store in (*self.branches.stores.values(), self.branches.letters):
            store.clean_orphans()
        for stored in self.trunk.stored.values():
            stored.ingest.start()
        writer = (
            self.trunk.df.writeStream.outputMode(self.trunk.mode)
            .queryName(f"{self.plan.application}/{self.fragment.id}")
            .option("checkpointLocation", str(self.checkpoint))
            .foreachBatch(self._on_batch)
        )
        self._query = writer.start()
        self.state = FragmentState.RUNNING

    def drain(self) -> None:
        """Let the running batch finish, and stop before the next."""
        self._draining.set()

    def stop(self) -> None:
        """Stop the query now; what the running batch did not commit runs again next time."""
        for stored in self.trunk.stored.values():
            stored.ingest.stop()
        if self._query is not None:
            self._query.stop()

    @property
    def active(self) -> bool:
        """Whether Spark still runs the query."""
        return self._query is not None and self._query.isActive

    def failure(self) -> DrivetrainError | None:
        """What stopped the query, in the user's terms; None while it runs or when it was drained."""
        if self._query is None or self._query.isActive:
            return None
        if isinstance(self.error, DrainedError) or self.state is FragmentState.FINISHED:
            return None
        error = self.error or self._query.exception()
        if error is None:
            return None
        for source in self.trunk.sources.values():
            meant = source.explain(f"{error}\n{error.__cause__ or ''}")
            if meant is not None:
                return meant
        return translated(error, where=f"fragment {self.fragment.id}")

    # -- batches -------------------------------------------------------------------------------------

    def _on_batch(self, df: DataFrame, batch_id: int) -> None:
        self.busy = True
        try:
            self._refuse_when_draining()
            metadata, offsets = read_offsets(self.checkpoint / "offsets" / str(batch_id))
            self._check_sources(offsets)
            batch = Batch(df, batch_id, self.clock_ms, replayed=batch_id <= self._replay_until)
            if self.trunk.only_at_end and not self._ends_input(offsets):
                df.write.format("noop").mode("overwrite").save()  # Spark's state goes on, nothing is told
            else:
                self.branches.run(batch)
            self._clock.saw({**self.branches.newest_ms(batch), **self._clock.observed_in_trunk(self._query)})
            clock_ms = self._clock_after(metadata, offsets)
            if clock_ms is not None and (self.clock_ms is None or clock_ms > self.clock_ms):
                self.clock_ms = clock_ms
            self.branches.append(batch, self._told_clock())
            self._offsets, self.batch_id = offsets, batch_id
            self.batches += 1
        except BaseException as error:  # noqa: BLE001 - kept whole, and raised by the engine
            self.error = error
            # Spark gets the short story: it runs regular expressions over whatever Python tells it.
            raise BatchFailedError(
                f"batch {batch_id} of {self.fragment.id}: {type(error).__name__}"
            ) from None
        finally:
            self.busy = False

    def _refuse_when_draining(self) -> None:
        if self._draining.is_set():
            raise DrainedError(self.fragment.id)

    def _check_sources(self, offsets: list[str | None]) -> None:
        for id, offset in zip(self.trunk.inputs, offsets, strict=False):
            if id is not None and id in self.trunk.sources:
                self.trunk.sources[id].check(offset)

    def _ends_input(self, offsets: list[str | None]) -> bool:
        """Whether a batch with these end offsets takes the last of every input."""
        for id, offset in zip(self.trunk.inputs, offsets, strict=False):
            if id is None:
                continue
            if id in self.readers:
                if not offset or json.loads(offset)["clock"] < FINAL_CLOCK_MS:
                    return False
            elif not self.trunk.sources[id].position(offset).finished:
                return False
        return True

    def _clock_after(self, metadata: dict[str, Any], offsets: list[str | None]) -> int | None:
        watermark_ms = int(metadata.get("batchWatermarkMs", 0))
        return self._clock.after(watermark_ms, offsets, ends_input=self._ends_input(offsets))

    def _recover(self) -> None:
        """Take up the position and the clock of the last committed batch, and what channels were told.

        Without it, a run that died between its last batch and its end would wait for a batch for ever.
        """
        told = [s.last() for s in self.branches.stores.values()]
        clocks = [known_clock(entry.clock_ms) for entry in told if entry is not None]
        committed = max(batch_numbers(self.checkpoint / "commits"), default=-1)
        if committed >= 0:
            metadata, self._offsets = read_offsets(self.checkpoint / "offsets" / str(committed))
            self.batch_id = committed
            for id, source in self.trunk.sources.items():
                self.progress.counted[id] = source.position(self._offset(id)).done
            clocks.append(self._clock_after(metadata, self._offsets))
        self.clock_ms = max((c for c in clocks if c is not None), default=None)

    # -- the end -------------------------------------------------------------------------------------

    def poll(self) -> None:
        """Look whether the fragment has come to its end, and do what the end asks for."""
        self.progress.read(self._query)
        self._trim()
        if self.state is not FragmentState.RUNNING or not self._committed():
            return
        if not all(self._input_done(id) for id in self.trunk.inputs if id is not None):
            return
        if self.fragment.stateful is not None:
            if any(id is None for id in self.trunk.inputs):
                publish_clock(str(self.directory / "clock"), FINAL_CLOCK_MS)
            if self.clock_ms != FINAL_CLOCK_MS and not (self.trunk.only_at_end and self.batch_id < 0):
                return
        elif not self.trunk.sources and self.clock_ms != FINAL_CLOCK_MS:
            return
        self._finish()

    def _trim(self) -> None:
        """Delete what every reader of what this fragment writes (or stores) has passed."""
        now = time.monotonic()
        if now - self._trimmed_s < TRIM_S:
            return
        self._trimmed_s = now
        for store in (*self.branches.stores.values(), *(s.store for s in self.trunk.stored.values())):
            positions = store.positions()
            if positions:
                store.trim(positions)

    def _finish(self) -> None:
        self.clock_ms = FINAL_CLOCK_MS
        self.state = FragmentState.FINISHED
        if self._has_last_batch:
            self._last_batch()
        for store in self.branches.stores.values():
            store.append_clock(FINAL_CLOCK_MS)
        deadline = time.monotonic() + REPORT_S
        while self.progress.seen < self.batch_id and self.batches and time.monotonic() < deadline:
            time.sleep(0.01)  # Spark reports a batch a moment after it has committed it
            self.progress.read(self._query)
        self.stop()

    def _told_clock(self) -> int | None:
        """What channels are told of the clock after a batch: the end only once nothing can follow it."""
        if self._has_last_batch and self.clock_ms == FINAL_CLOCK_MS:
            return FINAL_CLOCK_MS - 1
        return self.clock_ms

    @property
    def _has_last_batch(self) -> bool:
        return any(isinstance(n.operation, Process) for n in self.branches.nodes)

    def _last_batch(self) -> None:
        """One more, empty batch, in which Tasks hear of the final clock and that they stop."""
        spark = self.trunk.df.sparkSession
        empty = spark.createDataFrame([], self.trunk.df.schema)
        batch = Batch(empty, self.batch_id + 1, FINAL_CLOCK_MS, final=True)
        self.branches.run(batch)
        self.branches.append(batch, FINAL_CLOCK_MS)

    def _input_done(self, id: str) -> bool:
        """Whether everything of an input has been taken, and nothing will follow.

        A producer, in whatever process, has finished when its channel says the final clock.
        """
        if id in self.readers:
            last = self.readers[id].last()
            if last is None or last.clock_ms < FINAL_CLOCK_MS:
                return False
            offset = self._offset(id)
            return offset is not None and json.loads(offset)["entry"] >= self.readers[id].length()
        return self.position(id).finished

    def position(self, source: str) -> Position:
        """How far a source has been taken by committed batches."""
        return self.trunk.sources[source].position(self._offset(source))

    def progressed(self) -> FragmentProgressed:
        """How far it has come, its channels included; for the thread that polls."""
        entries: dict[str, int | None] = {}
        for id in self.readers:
            offset = self._offset(id)
            entries[id] = json.loads(offset)["entry"] if offset else None
        return self.progress.told(self.batch_id, self.clock_ms, entries, self._clock.newest_ms)

    def _offset(self, id: str) -> str | None:
        index = self.trunk.inputs.index(id)
        return self._offsets[index] if index < len(self._offsets) else None

    def _committed(self) -> bool:
        """Whether Spark has committed the newest batch that ran."""
        return self.batch_id < 0 or (self.checkpoint / "commits" / str(self.batch_id)).exists()


def read_offsets(path: Path) -> tuple[dict[str, Any], list[str | None]]:
    """Spark's record of a batch: its metadata, and the end offset of every source, in plan order."""
    version, metadata, *offsets = path.read_text().splitlines()
    if version != "v1":
        raise DrivetrainError(
            f"Spark's offset log has version {version}, this is made for v1", where=str(path)
        )
    return json.loads(metadata), [None if o == "-" else o for o in offsets]


def batch_numbers(directory: Path) -> list[int]:
    """The ids of the batches that one of Spark's logs knows, in no order; none without a log."""
    if not directory.is_dir():
        return []
    return [int(p.name) for p in directory.iterdir() if p.name.isdigit()]

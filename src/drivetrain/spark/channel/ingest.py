"""Source-end store: write a source that cannot replay into a channel, and read it from there.

Problem: a socket or a Python generator delivers everything once. A batch that Spark replays needs the same
rows again, a crash must not lose received rows, and a slow application must slow the source down instead of
filling the disk.

Design: the thread that pulls rows passes them to `Ingest`, one by one, while there is room. Its steps store
them as segments and entries, when there are enough rows or bytes, or after a short wait. The batch id of an
entry is the number of rows stored up to it, so after a restart the last entry alone gives the number of rows
to skip, however much was trimmed. `ingest_threads` has the threads.

Invariants:

1. Rows are stored in the order of their arrival, each once.
2. The clock after an entry is the largest timestamp stored minus the disorder, never less than before.
3. Only the end of the feed appends the final clock. A stored final clock ends the stream for good.
4. While more than `unread_bytes` are unread, nothing is appended and there is room for one entry's rows only.
5. An error of the feed is raised by a step, after the rows before it are stored.

Called by: `ingest_threads`.

Source: Apache Gearpump's source-end message store.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS, NO_CLOCK_MS, clock_behind, known_clock
from drivetrain.runtime.channel.columns import TS
from drivetrain.runtime.channel.segments import indexed_by, newest_before_end_ms, write_segment
from drivetrain.spark.channel.row_batches import RowBatches

if TYPE_CHECKING:
    from collections.abc import Callable

    from drivetrain.runtime.channel.store import ChannelStore

_BLOCKED_S = 0.02
"""How long a step waits for subscribers to read."""


@dataclass(frozen=True)
class IngestLimits:
    """When an entry is written, and when the source must wait.

    An entry is written at `rows` rows or about `bytes` bytes, or `wait_ms` after the last one. `unread_bytes`
    bounds the bytes that are stored and not read. `idle_ms`: with arrival time, the clock advances after so
    long without a row.
    """

    rows: int = 20_000
    bytes: int = 8 << 20
    wait_ms: int = 100
    unread_bytes: int = 256 << 20
    idle_ms: int = 1_000


def _arrival_ms() -> int:
    return time.time_ns() // 1_000_000


class Ingest:
    """Stores rows in a channel, step by step, until they end or `stop` is called.

    `schema` is the Arrow schema of the data columns, without `__ts`. A row is a tuple or mapping of them;
    with a single column it may be the bare value. `event_time_ms` returns a row's timestamp (default: the
    time of storing); `disorder_ms` is how late a row may come. `position` returns the entry that the slowest
    subscriber reads next (default: from the positions recorded in the channel). `index` names the column that
    gives segments their range of timestamps (default: `__ts`).
    """

    def __init__(
        self,
        store: ChannelStore,
        schema: Any,
        *,
        event_time_ms: Callable[[Any], int] | None = None,
        disorder_ms: int = 0,
        limits: IngestLimits | None = None,
        position: Callable[[], int] | None = None,
        now_ms: Callable[[], int] = _arrival_ms,
        index: str | None = None,
    ) -> None:
        self.store: Final = store
        self.stored = 0
        """How many rows the channel has received, over all runs."""
        self.is_finished = False
        """Whether the rows have ended and the final clock is stored."""
        self._rows: Final = RowBatches(schema, event_time_ms or (lambda _: now_ms()), where=store.uri)
        self._by_arrival: Final = event_time_ms is None
        self._disorder_ms: Final = disorder_ms
        self._limits: Final = limits or IngestLimits()
        self._position: Final = position or self._recorded_position
        self._now_ms: Final = now_ms
        self._index: Final = index
        self._pulled: Final[deque[Any]] = deque()
        self._has_ended = False
        self._is_left = False
        self._is_stopping = False
        self._unread: Final[deque[tuple[int, int]]] = deque()
        self._unread_bytes = 0
        self._row_bytes = 0.0
        self._clock_ms: int | None = None
        self._last_write_s: float | None = None

    def resume(self) -> bool:
        """Continue after the channel's last entry; False if the rows ended in an earlier run."""
        last = self.store.last()
        if last is not None:
            self.stored = max(0, self.store.last_batch())
            self._clock_ms = known_clock(last.clock_ms)
            for entry in self.store.entries(max(self.store.start(), self._position())):
                self._count_unread(entry.number, entry.bytes)
                if entry.rows:  # as long as nobody reads, nothing is written that could tell
                    self._row_bytes = entry.bytes / entry.rows
            self.is_finished = last.clock_ms >= FINAL_CLOCK_MS
        return not self.is_finished

    # -- rows come, possibly in another thread -----------------------------------------------------

    @property
    def is_full(self) -> bool:
        """Whether the rows that wait are enough for an entry: no more should be pulled."""
        return len(self._pulled) >= self._enough()

    def take(self, row: Any) -> None:
        """A row has come."""
        self._pulled.append(row)

    def fail(self, error: Exception) -> None:
        """No more rows come, because of an error."""
        self._pulled.append(_Failure(error))

    def end(self) -> None:
        """No more rows will ever come."""
        self._has_ended = True

    def leave(self) -> None:
        """The thread that pulls rows adds no more in this run."""
        self._is_left = True

    def stop(self) -> None:
        """Store the rows received so far now; the steps end once no thread adds rows any more."""
        self._is_stopping = True

    # -- they are stored ---------------------------------------------------------------------------

    def step(self, now_s: float) -> float | None:
        """Store the rows of one entry, if that is due; raises errors in them, or of their source.

        `now_s` is in seconds of a clock that is never set back. Returns for how many seconds nothing becomes
        due unless rows come, or None when all is stored.
        """
        wait_s = self._limits.wait_ms / 1000
        # Both are read before rows are taken: the last row comes before either is set.
        has_ended, is_left = self._has_ended, self._is_left
        if self._last_write_s is None:
            self._last_write_s = now_s
        if self._pulled:
            due_s = 0.0 if has_ended or self._is_stopping or self.is_full else self._last_write_s + wait_s
            if due_s > now_s:
                return due_s - now_s
            if self._is_blocked() and not self._is_stopping:  # when it stops, the rest is small
                return _BLOCKED_S
            self._store_rows([self._pulled.popleft() for _ in range(min(len(self._pulled), self._enough()))])
            self._last_write_s = now_s
            return 0.0
        if has_ended:
            self.store.append_clock(FINAL_CLOCK_MS)
            self.is_finished = True
            return None
        self._move_idle_clock()
        return None if self._is_stopping and is_left else wait_s

    def _enough(self) -> int:
        """How many rows make an entry, estimated from the size of the rows so far."""
        if self._row_bytes <= 0:
            return self._limits.rows
        return max(1, min(self._limits.rows, int(self._limits.bytes / self._row_bytes)))

    def _store_rows(self, rows: list[Any]) -> None:
        failure: BaseException | None = None
        if isinstance(rows[-1], _Failure):
            failure = rows.pop().error
        good, bad = self._rows.converted(rows, self.stored)
        if good is not None:
            self._append(good)
        if bad is not None:
            raise bad
        if failure is not None:
            raise failure

    def _append(self, batch: Any) -> None:
        count = self.stored + batch.num_rows
        segment = write_segment(self.store.files, f"ingest-{count}", [batch])
        clock_ms = self._clock_after(batch)
        if self._index is not None:
            segment = indexed_by(segment, batch.column(self._index))
        entry = self.store.append(count, [segment], NO_CLOCK_MS if clock_ms is None else clock_ms)
        self.stored = count
        self._clock_ms = clock_ms
        self._row_bytes = segment.bytes / batch.num_rows
        if entry is not None:
            self._count_unread(entry.number, entry.bytes)

    def _clock_after(self, batch: Any) -> int | None:
        newest_ms = newest_before_end_ms(batch.column(TS))
        if newest_ms is None:
            return self._clock_ms
        reached_ms = clock_behind(newest_ms, self._disorder_ms)
        return reached_ms if self._clock_ms is None else max(self._clock_ms, reached_ms)

    def _move_idle_clock(self) -> None:
        # Only arrival time advances without rows; event times from the rows are unknown in a silence.
        if not self._by_arrival or self._clock_ms is None:
            return
        reached_ms = self._now_ms() - self._disorder_ms
        if reached_ms - self._clock_ms >= self._limits.idle_ms:
            entry = self.store.append_clock(reached_ms)
            self._clock_ms = reached_ms
            if entry is not None:
                self._count_unread(entry.number, 0)

    # -- back-pressure -------------------------------------------------------------------------

    def _is_blocked(self) -> bool:
        """Whether too many bytes are unread."""
        if self._unread_bytes >= self._limits.unread_bytes:
            position = self._position()
            while self._unread and self._unread[0][0] < position:
                self._unread_bytes -= self._unread.popleft()[1]
        return self._unread_bytes >= self._limits.unread_bytes

    def _count_unread(self, number: int, size: int) -> None:
        self._unread.append((number, size))
        self._unread_bytes += size

    def _recorded_position(self) -> int:
        return min(self.store.positions().values(), default=0)


@dataclass(frozen=True)
class _Failure:
    """The feed's exception, queued after the rows before it."""

    error: BaseException

"""Source-end store: write a source that cannot replay into a channel, and read it from there.

Problem: a socket or a Python generator delivers everything once. A batch that Spark replays needs the same
rows again, a crash must not lose received rows, and a slow application must slow the source down instead of
filling the disk.

Design: two threads in the driver. One pulls rows, since a source may block at any time. The other stores the
pulled rows as segments and entries, when there are enough rows or bytes, or after a short wait. The batch id
of an entry is the number of rows stored up to it, so after a restart the last entry alone gives the number of
rows to skip, however much was trimmed.

Invariants:

1. Rows are stored in the order of their arrival, each once.
2. The clock after an entry is the largest timestamp stored minus the disorder, never less than before.
3. Only the end of the feed appends the final clock. A stored final clock ends the stream for good.
4. While more than `unread_bytes` are unread, nothing is appended and the feed is not read further.
5. An error in either thread is kept until the engine calls `raise_error`; rows pulled before it are stored.

Called by: the engine, for iterable and socket sources.

Source: Apache Gearpump's source-end message store.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS, NO_CLOCK_MS, clock_behind, known_clock
from drivetrain.errors import UnavailableError
from drivetrain.runtime.channel.columns import TS
from drivetrain.runtime.channel.segments import indexed_by, newest_before_end_ms, write_segment
from drivetrain.spark.channel.row_batches import RowBatches

if TYPE_CHECKING:
    from collections.abc import Callable

    from drivetrain.runtime.channel.store import ChannelStore
    from drivetrain.spark.channel.feeds import Feed

_BLOCKED_S = 0.02


@dataclass(frozen=True)
class IngestLimits:
    """When an entry is written, and when the source must wait.

    An entry is written at `rows` rows or about `bytes` bytes, or `wait_ms` after the last one. `unread_bytes`
    bounds the bytes that are stored and not read. `idle_ms`: with arrival time, the clock moves on after so
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
    """Stores the rows of a feed in a channel until it ends or `stop` is called.

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
        feed: Feed,
        *,
        event_time_ms: Callable[[Any], int] | None = None,
        disorder_ms: int = 0,
        limits: IngestLimits | None = None,
        position: Callable[[], int] | None = None,
        now_ms: Callable[[], int] = _arrival_ms,
        index: str | None = None,
    ) -> None:
        self._store = store
        self._rows = RowBatches(schema, event_time_ms or (lambda _: now_ms()), where=store.uri)
        self._feed = feed
        self._by_arrival = event_time_ms is None
        self._disorder_ms = disorder_ms
        self._limits = limits or IngestLimits()
        self._position = position or self._recorded_position
        self._now_ms = now_ms
        self._index = index
        self._pulled: deque[Any] = deque()
        self._news = threading.Condition()
        self._ended = False
        self._stopping = threading.Event()
        self._finished = threading.Event()
        self._error: BaseException | None = None
        self._unread: deque[tuple[int, int]] = deque()
        self._unread_bytes = 0
        self._row_bytes = 0.0
        self._stored = 0
        self._clock_ms: int | None = None
        self._last_write_s = 0.0
        self._threads = [
            threading.Thread(target=self._pull, name="drivetrain-ingest-pull", daemon=True),
            threading.Thread(target=self._write, name="drivetrain-ingest-write", daemon=True),
        ]

    # -- the engine's side ---------------------------------------------------------------------

    def start(self) -> None:
        """Continue after the channel's last entry; returns at once."""
        last = self._store.last()
        if last is not None:
            self._stored = max(0, self._store.last_batch())
            self._clock_ms = known_clock(last.clock_ms)
            for entry in self._store.entries(max(self._store.start(), self._position())):
                self._count_unread(entry.number, entry.bytes)
            if last.clock_ms >= FINAL_CLOCK_MS:
                self._finished.set()
                return
        for thread in self._threads:
            thread.start()

    @property
    def stored(self) -> int:
        """How many rows the channel has received, over all runs."""
        return self._stored

    @property
    def finished(self) -> bool:
        """Whether the feed has ended and its final clock is stored."""
        return self._finished.is_set()

    def raise_error(self) -> None:
        """Raise the error of a thread, if there is one; the engine calls it between batches."""
        if self._error is not None:
            raise self._error

    def wait_finished(self, timeout_s: float) -> bool:
        """Wait for the final clock; False if it is not stored within the timeout. Raises a thread's error."""
        deadline = time.monotonic() + timeout_s
        while not self._finished.wait(_BLOCKED_S):
            self.raise_error()
            if time.monotonic() > deadline:
                return False
        return True

    def stop(self, timeout_s: float = 10.0) -> None:
        """Store the pulled rows, and end both threads. A feed that blocks for good is abandoned.

        Raises UnavailableError if the rows cannot be stored within the timeout.
        """
        self._stopping.set()
        self._feed.close()
        with self._news:
            self._news.notify_all()
        pull, write = self._threads
        if write.ident is None:
            return
        write.join(timeout_s)
        pull.join(min(timeout_s, 1.0))
        if write.is_alive():
            raise UnavailableError(
                f"rows were still being stored after {timeout_s} s",
                where=self._store.uri,
                remedy="check the file system of the channel; the next run continues with what is stored",
            )

    # -- pulling -------------------------------------------------------------------------------

    def _pull(self) -> None:
        try:
            for row in self._feed.open(self._stored):
                self._pulled.append(row)
                if len(self._pulled) >= self._enough():
                    self._wait_room()
                if self._stopping.is_set() and not self._feed.ends_on_close:
                    break
            else:
                self._ended = not self._stopping.is_set()
        except Exception as error:  # noqa: BLE001 - kept; the writer raises it after the rows before it
            if not self._stopping.is_set():
                self._pulled.append(_Failure(error))
        finally:
            with self._news:
                self._news.notify_all()

    def _wait_room(self) -> None:
        with self._news:
            self._news.notify_all()
            while len(self._pulled) >= self._enough() and not self._stopping.is_set():
                self._news.wait(_BLOCKED_S)

    def _enough(self) -> int:
        """How many rows make an entry, estimated from the size of the rows so far."""
        if self._row_bytes <= 0:
            return self._limits.rows
        return max(1, min(self._limits.rows, int(self._limits.bytes / self._row_bytes)))

    # -- writing -------------------------------------------------------------------------------

    def _write(self) -> None:
        try:
            self._last_write_s = time.monotonic()
            while self._write_some():
                pass
        except Exception as error:  # noqa: BLE001 - kept for the engine
            self._error = error
            self._stopping.set()
            self._feed.close()

    def _write_some(self) -> bool:
        """Wait for enough rows or time, then store them; False when nothing is left to do."""
        with self._news:
            if not (self._pulled or self._ended or self._stopping.is_set()):
                self._news.wait(self._limits.wait_ms / 1000)
            deadline = self._last_write_s + self._limits.wait_ms / 1000
            while len(self._pulled) < self._enough() and not self._ended and not self._stopping.is_set():
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    break
                self._news.wait(left_s)
        ended = self._ended  # read before taking rows: the last row is pulled before `_ended` is set
        rows = [self._pulled.popleft() for _ in range(min(len(self._pulled), self._enough()))]
        with self._news:
            self._news.notify_all()
        if rows:
            self._store_rows(rows)
            return True
        if ended:
            self._store.append_clock(FINAL_CLOCK_MS)
            self._finished.set()
            return False
        self._move_idle_clock()
        return not self._stopping.is_set() or self._pulling_still()

    def _pulling_still(self) -> bool:
        """When stopping: whether a feed that ends on close still delivers rows."""
        pull = self._threads[0]
        pull.join(self._limits.wait_ms / 1000)
        return bool(self._pulled) or (pull.is_alive() and self._feed.ends_on_close)

    def _store_rows(self, rows: list[Any]) -> None:
        failure: BaseException | None = None
        if isinstance(rows[-1], _Failure):
            failure = rows.pop().error
        good, bad = self._rows.converted(rows, self._stored)
        self._wait_read()
        if good is not None:
            self._append(good)
        if bad is not None:
            raise bad
        if failure is not None:
            raise failure

    def _append(self, batch: Any) -> None:
        count = self._stored + batch.num_rows
        segment = write_segment(self._store.files, f"ingest-{count}", [batch])
        clock_ms = self._clock_after(batch)
        if self._index is not None:
            segment = indexed_by(segment, batch.column(self._index))
        entry = self._store.append(count, [segment], NO_CLOCK_MS if clock_ms is None else clock_ms)
        self._stored = count
        self._clock_ms = clock_ms
        self._row_bytes = segment.bytes / batch.num_rows
        self._last_write_s = time.monotonic()
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
            entry = self._store.append_clock(reached_ms)
            self._clock_ms = reached_ms
            if entry is not None:
                self._count_unread(entry.number, 0)

    # -- back-pressure -------------------------------------------------------------------------

    def _wait_read(self) -> None:
        """Wait until few enough bytes are unread. When stopping, the small rest is stored at once."""
        while self._unread_bytes >= self._limits.unread_bytes and not self._stopping.is_set():
            position = self._position()
            while self._unread and self._unread[0][0] < position:
                self._unread_bytes -= self._unread.popleft()[1]
            if self._unread_bytes < self._limits.unread_bytes:
                return
            self._stopping.wait(_BLOCKED_S)

    def _count_unread(self, number: int, size: int) -> None:
        self._unread.append((number, size))
        self._unread_bytes += size

    def _recorded_position(self) -> int:
        return min(self._store.positions().values(), default=0)


@dataclass(frozen=True)
class _Failure:
    """The feed's exception, queued after the rows before it."""

    error: BaseException

"""Limits how much the next batch of a fragment may take.

Problem: the readers decide what a batch takes, in processes that Spark runs; only this process knows how long
batches take.

Design: each batch is measured, and `core.channel.batch_size` decides on a share of the largest batch. When it
has changed noticeably, it is written into a small file of the fragment's directory, which a reader reads when
it plans a batch. Spark's offset log has the extent of each batch, so a repeated batch takes the same,
regardless of the file.

What if we die here: the file is replaced as a whole; if it is missing, or empty after a power cut, batches
have their full size until one has been measured.

Called by: `micro_batch_query` (`measured`, `look`), and the planning halves of channel, file and generator
readers (`limited`).
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from drivetrain.config.catalog import run as run_keys
from drivetrain.core.channel.batch_size import BatchSize
from drivetrain.durable import write_whole, writing
from drivetrain.runtime.running_config import RunningConfig

FILE = "batch-share"
DEFAULT_BATCH_ROWS = 5_000_000
"""The most rows of a batch of the generator, if nothing else limits it."""
_NOTICEABLE = 0.05


class BatchLimit:
    """The share of the largest batch that a fragment's next one may take, kept in `directory`.

    `largest` is the most that a batch takes, by input, in the unit in which that input is limited. Batches
    are measured in Spark's thread, and changed limits noticed in the one that polls.
    """

    def __init__(self, directory: Path, largest: Mapping[str, int], config: RunningConfig) -> None:
        self.largest = largest
        self._path = directory / FILE
        self._config = config
        self._lock = threading.Lock()
        self._known = self._limits()
        self._size = BatchSize(*self._known)
        self._kept = self._size.share = _read(str(self._path))
        self._size.limit(*self._known)
        self._keep()

    @property
    def share(self) -> float:
        """The share that the next batch may take, 0 to 1."""
        return self._size.share

    def look(self) -> None:
        """Have the next batch keep to limits that were changed since the last one."""
        limits = self._limits()
        if limits == self._known:
            return
        with self._lock:
            self._known = limits
            self._size.limit(*limits)
            self._keep()

    def record(self, shares: Iterable[float], duration_ms: float) -> None:
        """Measure a batch that took these shares of the largest, one per input, in this time."""
        with self._lock:
            self._size.record(max(shares, default=0.0), duration_ms)
            self._keep()

    def _limits(self) -> tuple[float, int, float]:
        """The least share, the longest desired duration in ms, and the largest share."""
        most, now = self._config.started_with(run_keys.MAX_BATCH_BYTES), self._config
        floor = now[run_keys.MIN_BATCH_BYTES] / most
        return floor, now[run_keys.BATCH_TARGET], now[run_keys.MAX_BATCH_BYTES] / most

    def _keep(self) -> None:
        """Write the share for the sources, if it has changed by much."""
        share = self._size.share
        if abs(share - self._kept) > _NOTICEABLE * self._kept or (share == 1.0) != (self._kept == 1.0):
            with writing("the size of batches", self._path):
                write_whole(self._path, str(share).encode(), synced=False)
            self._kept = share

    def measured(self, taken: Mapping[str, int], took_ms: int) -> None:
        """Measure a batch that took these amounts of its inputs, in each input's unit.

        `took_ms` includes the time in which it waited for its subscribers.
        """
        shares = [amount / self.largest[id] for id, amount in taken.items() if id in self.largest]
        self.record(shares, took_ms)


def limited(most: int, path: str | None) -> int:
    """How much of `most` (bytes or messages, 0: any) a batch may take by the file at `path`; at least 1."""
    if path is None or most <= 0:
        return most
    return max(1, int(most * _read(path)))


def _read(path: str) -> float:
    with suppress(FileNotFoundError):
        text = Path(path).read_text()
        if text:
            return float(text)
    return 1.0

"""The size of a channel's backlog: how soon a consumer that starts with it has finished its first batch.

The producer writes all messages before the consumer begins, as if the consumer had been away. A channel's
window has 50 batches of the producer at most, so a larger backlog is one of larger batches. The consumer's
first batch is bounded by `run.max-batch-bytes`, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.curves.curve import Curve, Figure

FILE_ROWS, PAYLOAD_BYTES = 250_000, 92
LEAST_BATCH_MIB, BATCHES = 32, 40


def application(source: Path) -> Any:
    """Messages of 100 bytes through a channel, then counted per key."""
    from drivetrain import Application, agg, sinks, sources

    app = Application("channel-backlog")
    messages = app.read(sources.parquet(source)).filter("id >= 0").cut()
    messages.group_by("key").aggregate(n=agg.count()).sink(sinks.none())
    return app


def measure(megabytes: int, work: Path) -> Mapping[str, float]:
    """Hold the consumer back until the producer has ended, then time its first batch."""
    from drivetrain import run
    from drivetrain.config import Config
    from drivetrain.core.job.run_progress import FragmentProgressed
    from drivetrain.spark.run import embedded
    from drivetrain.spark.run.fragment_driver import FragmentDriver

    write_messages(work / "in", megabytes)
    began: list[float] = []
    first: list[tuple[float, float]] = []
    known: list[FragmentDriver] = []

    class Waiting(FragmentDriver):
        """A fragment that reads a channel starts when the fragment before it has finished."""

        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            self._before = list(known)
            self._is_started = False
            known.append(self)

        def start(self) -> None:
            if self.query.readers and not all(one.is_finished for one in self._before):
                return
            if self.query.readers:
                began.append(time.perf_counter())
            self._is_started = True
            super().start()

        def step(self, look: Callable[[Any], None]) -> None:
            if self._is_started:
                super().step(look)
            else:
                self.start()

    class Listener:
        def on_event(self, event: Any) -> None:
            if (
                began
                and not first
                and isinstance(event, FragmentProgressed)
                and event.channels
                and event.batch_ms
            ):
                waiting = sum(
                    path.stat().st_size
                    for path in (work / "state").glob("**/channels/**/*")
                    if path.is_file()
                )
                first.append((time.perf_counter(), waiting / 2**20))

        def stop_requested(self) -> bool:
            return bool(first)

    embedded.FragmentDriver = Waiting  # type: ignore[misc]
    window = {
        "channel.window-bytes": "1 TiB",
        "channel.window-batches": "50",
        "run.max-batch-bytes": f"{max(LEAST_BATCH_MIB, megabytes // BATCHES)} MiB",
    }
    run(
        application(work / "in"),
        Config.load(None, {}, {"state.dir": str(work / "state"), **window}),
        Listener(),
    )
    ended, backlog_mib = first[0]
    return {"first_s": ended - began[0], "backlog_mib": backlog_mib}


def write_messages(directory: Path, megabytes: int) -> None:
    """Write so many megabytes of messages, whose payload cannot be compressed."""
    directory.mkdir(parents=True)
    rng = np.random.default_rng(5)
    rows = megabytes * 10_000
    for number, first in enumerate(range(0, rows, FILE_ROWS)):
        count = min(FILE_ROWS, rows - first)
        payload = pa.Array.from_buffers(
            pa.binary(PAYLOAD_BYTES), count, [None, pa.py_buffer(rng.bytes(count * PAYLOAD_BYTES))]
        )
        table = pa.table(
            {
                "id": np.arange(first, first + count),
                "key": rng.integers(0, 1_000, count),
                "payload": payload.cast(pa.binary()),
            }
        )
        pq.write_table(table, directory / f"{number:05}.parquet", compression="none")


CURVE = Curve(
    name="channel_backlog",
    title="A consumer's first batch, by the backlog in its channel",
    quantity="MB of messages",
    points=(10, 100, 1_000, 5_000),
    quick_points=(10, 100),
    figures=(
        Figure("first_s", "seconds from the start of the consumer to the end of its first batch"),
        Figure("backlog_mib", "backlog on disk, MiB"),
        Figure("peak_mib", "peak memory, MiB"),
    ),
    measure=measure,
)

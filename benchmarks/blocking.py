"""A consumer that starts with its producer's first data, and one that waits until its producer has finished.

The application of `hop` over a bounded input, in batches of two files: messages from Parquet files go through
a channel to a fragment that counts them per key and minute. *drivetrain* runs both fragments at once. With *a
blocking edge* the consumer's query starts when the producer has ended; the channel then keeps everything, so
its window is lifted. `kept, MiB` is the most that the channel had on disk.

    python -m benchmarks.blocking [--quick] [--json] [--rounds N] [--only CONTENDER]
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import data, hop, peers
from benchmarks.measure import OURS, Contender, Job, Scale, Timed, main

BLOCKING = "drivetrain, a blocking edge"
WINDOW = {"channel.window-bytes": "8 GiB", "channel.window-batches": "50"}
SAMPLE_S = 0.1


def messages(scale: Scale) -> int:
    return 200_000 if scale.quick else 1_000_000


def directory(scale: Scale) -> Path:
    return data.made(f"hop-{messages(scale)}", lambda made: hop.write(made, messages(scale)))


class Kept(threading.Thread):
    """The most that the channels below a directory have on disk at once."""

    def __init__(self, state: Path) -> None:
        super().__init__(daemon=True)
        self._state = state
        self._done = threading.Event()
        self.most_mib = 0.0

    def run(self) -> None:
        while not self._done.wait(SAMPLE_S):
            size = 0
            for path in self._state.glob("**/channels/**/*"):
                try:
                    size += path.stat().st_size if path.is_file() else 0
                except FileNotFoundError:  # trimmed between the listing and the look
                    continue
            self.most_mib = max(self.most_mib, size / 2**20)

    def __enter__(self) -> Kept:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self.join()


def make_edges_blocking() -> None:
    """In this process: a fragment that reads channels starts when all fragments before it have finished."""
    from drivetrain.spark.run import embedded
    from drivetrain.spark.run.fragment_driver import FragmentDriver

    known: list[FragmentDriver] = []

    class Waiting(FragmentDriver):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            self._producers = list(known)
            self._has_started = False
            known.append(self)

        def start(self) -> None:
            if self.query.readers and not all(producer.is_finished for producer in self._producers):
                return
            self._has_started = True
            super().start()

        def step(self, look: Callable[[Any], None]) -> None:
            if self._has_started:
                super().step(look)
            else:
                self.start()

    embedded.FragmentDriver = Waiting  # type: ignore[misc]


def run_with(scale: Scale, work: Path, *, blocking: bool) -> dict[str, float]:
    from drivetrain import run
    from drivetrain.config import Config

    _, start_s = peers.start_drivetrain(work)
    source = directory(scale)
    two_files = 2 * max(file.stat().st_size for file in (source / "messages").iterdir())
    if blocking:
        make_edges_blocking()

    def config(home: Path) -> Config:
        batch = {"run.max-batch-bytes": f"{two_files} B"}
        return Config.load(None, {}, {"state.dir": str(home / "state"), **batch, **WINDOW})

    run(hop.application(source / "warm", work / "warm-out", cut=True), config(work / "warm"))
    with Kept(work / "state") as kept, Timed() as timed:
        run(hop.application(source / "messages", work / "out", cut=True), config(work))
    return timed.figures(kept_mib=kept.most_mib, start_s=start_s)


JOB = Job(
    name="blocking",
    title="A consumer that waits for the end of its producer",
    unit="s",
    contenders=(
        Contender(OURS, lambda scale, work: run_with(scale, work, blocking=False)),
        Contender(BLOCKING, lambda scale, work: run_with(scale, work, blocking=True)),
    ),
    prepare=directory,
    units=messages,
    check=lambda scale, work: hop.check_output(directory(scale), work),
    measure="seconds",
    lower_is_better=True,
    columns=(("cpu_s", "CPU, s"), ("kept_mib", "kept, MiB"), ("peak_mib", "peak memory, MiB")),
)

if __name__ == "__main__":
    raise SystemExit(main(JOB, __doc__))

"""What a batch of a persistent Task costs when it touches 10,000 keys: of 10,000 in all, and of a million.

Batches of 10,000 messages, each for another key, put all keys there; others follow. The figure is the median
time of those that follow, as Spark reports it (`triggerExecution`), the first two left out.

    python -m benchmarks.state_size [--quick] [--json] [--rounds N] [--only CONTENDER]
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import data
from benchmarks.measure import OURS, Contender, Job, Scale, WrongResultError, main

if TYPE_CHECKING:
    from drivetrain.core.job.run_progress import ProgressEvent

TOUCHED = 10_000
FEW = 10_000
MANY = 1_000_000
SMALL = "drivetrain, 10,000 keys"
COLD_BATCHES = 2


def batches(scale: Scale) -> int:
    return 6 if scale.quick else 12


def application(source: Path) -> Any:
    from drivetrain import Application, PersistentTask, State, agg, sinks, sources

    class Counts(PersistentTask[Any, Any]):
        key = "key"
        state = State(agg.count())

    app = Application("state-size")
    messages = app.read(sources.parquet(source))
    messages.process(Counts, name="counts").sink(sinks.none())
    return app


class Listener:
    """Collects how long batches took."""

    def __init__(self) -> None:
        self.batch_ms: dict[int, float] = {}

    def on_event(self, event: ProgressEvent) -> None:
        from drivetrain.core.job.run_progress import FragmentProgressed

        if isinstance(event, FragmentProgressed) and event.batch_ms:
            self.batch_ms[event.batch_id] = event.batch_ms

    def stop_requested(self) -> bool:
        return False


def run_with(count: int, scale: Scale, work: Path) -> dict[str, float]:
    from drivetrain import run, state
    from drivetrain.config import Config

    draw = np.random.default_rng(3)
    (work / "in").mkdir()
    everything = draw.permutation(count)
    filling = [everything[first : first + TOUCHED] for first in range(0, count, TOUCHED)]
    following = [draw.choice(count, TOUCHED, replace=False) for _ in range(batches(scale))]
    for number, keys in enumerate(filling + following):
        pq.write_table(pa.table({"key": [f"key-{n}" for n in keys]}), work / "in" / f"{number:05}.parquet")
    app = application(work / "in")
    largest = max(file.stat().st_size for file in (work / "in").iterdir())
    limit = {"run.max-batch-bytes": f"{largest} B"}  # one file a batch
    config = Config.load(None, {}, {"state.dir": str(work / "state"), **limit})
    listener = Listener()
    run(app, config, listener)
    kept = state(app, "counts", config).items()
    total = sum(one.value for one in kept)
    if (len(kept), total) != (count, count + TOUCHED * batches(scale)):
        raise WrongResultError(f"{len(kept)} keys with {total} messages")
    warm = [ms for id, ms in sorted(listener.batch_ms.items()) if id >= len(filling) + COLD_BATCHES]
    return {"batch_ms": statistics.median(warm), "batches": len(warm)}


JOB = Job(
    name="state_size",
    title="A batch that touches 10,000 of 1,000,000 keys",
    unit="ms a batch",
    contenders=(
        Contender(OURS, lambda scale, work: run_with(MANY, scale, work)),
        Contender(SMALL, lambda scale, work: run_with(FEW, scale, work)),
    ),
    prepare=lambda _scale: data.root(),
    units=batches,
    check=lambda _scale, _work: None,
    measure="batch_ms",
    lower_is_better=True,
    goals={SMALL: 0.2},
)

if __name__ == "__main__":
    raise SystemExit(main(JOB, __doc__))

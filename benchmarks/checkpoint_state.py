"""How long a checkpoint takes, by the size of the state: 10,000 keys and a million, with as many touched.

A count per key, in Spark's keyed state; all keys are written first, then each batch touches 10,000 of them.
What is measured are the checkpoints of the second part, one each second: from PREPARE to the last COMMIT,
and what a snapshot has.

    python -m benchmarks.checkpoint_state [--quick] [--json] [--rounds N] [--only CONTENDER]
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from benchmarks import peers
from benchmarks.measure import OURS, Contender, Job, Scale, main

MANY = f"{OURS}, 1 M keys"
TOUCHED = 10_000
SECONDS = 20


def keys_of(scale: Scale, *, many: bool) -> int:
    return (100_000 if scale.quick else 1_000_000) if many else TOUCHED


class Durations:
    """Collects how long checkpoints took once all keys are there, and asks to stop when there are enough."""

    def __init__(self, keys: int) -> None:
        self._keys = keys
        self._rows = 0
        self.seen: dict[int, Any] = {}

    def on_event(self, event: Any) -> None:
        from drivetrain.core.job.run_progress import CheckpointsProgressed

        self._rows = max(self._rows, getattr(event, "rows_total", 0))
        last = event.figures.last if isinstance(event, CheckpointsProgressed) else None
        if last is not None and self._rows >= self._keys:
            self.seen[last.txid] = last

    def stop_requested(self) -> bool:
        return len(self.seen) >= SECONDS


def run_keys(scale: Scale, work: Path, *, many: bool) -> dict[str, float]:
    from drivetrain import Application, agg, run, sinks, sources, windows
    from drivetrain.config import Config

    _, start_s = peers.start_drivetrain(work)
    count = keys_of(scale, many=many)
    app = Application("checkpoint_state")
    made = app.read(sources.generate(rate_per_s=float(TOUCHED * 2), columns={"key": f"id % {count}"}))
    counted = made.group_by("key").window(windows.tumbling("365 d", emission="accumulating"))
    counted.aggregate(step="counts", n=agg.count()).sink(sinks.none())
    durations = Durations(count)
    keys = {"checkpoint.mode": "on", "run.max-batch-rows": str(TOUCHED)}
    run(app, Config.load(None, {}, keys | {"state.dir": str(work / "state")}), durations)
    took = [done.duration_ms for done in durations.seen.values()]
    sizes = [done.bytes / 2**20 for done in durations.seen.values()]
    return {
        "seconds": sum(took) / 1000,
        "start_s": start_s,
        "checkpoint_ms": statistics.median(took),
        "longest_ms": max(took),
        "snapshot_mib": statistics.median(sizes),
    }


JOB = Job(
    name="checkpoint_state",
    title="Checkpoints: duration by the size of the state",
    unit="ms",
    contenders=(
        Contender(OURS, lambda scale, work: run_keys(scale, work, many=False)),
        Contender(MANY, lambda scale, work: run_keys(scale, work, many=True)),
    ),
    prepare=lambda _scale: None,
    units=lambda _scale: SECONDS,
    check=lambda _scale, _work: None,  # nothing is written but checkpoints
    measure="checkpoint_ms",
    lower_is_better=True,
    columns=(("longest_ms", "longest, ms"), ("snapshot_mib", "snapshot, MiB")),
)

if __name__ == "__main__":
    raise SystemExit(main(JOB, __doc__))

"""How long messages wait while an application changes, beside the same change by stopping and starting.

    python -m benchmarks.changes [--quick]

All contenders pass 1,000 messages a second through a filter, and note when each batch of results comes out.
The change is another filter.

- *ours, the swap*: `RunningApplication.update`, twenty times: from the last result of the old version to the
  first of the new one, less the median of the times between results before.
- *ours, update*: the longest time between results from the command until five batches after it, less the
  same median. An hourly window behind a channel runs beside the filter and is not changed; it has the same
  measure.
- *ours, nothing changed*: the same measures over as many batches, each time after the update. The longest of
  several times is longer than their median, also without a change.
- *ours, restarted*: `stop`, `wait`, and `start` of the new application, in the same process.
- *PySpark, restarted*: the query is stopped and started with its checkpoint, in the same session.
- *Flink SQL, restarted*: stop with a savepoint, and the new statement from it. Its output is printed by row.

Reported are the longest time without results around a change, less the median of those before it: the median
of that over the changes, the least and the worst. The goals are those of the swap. Every process is warm:
each contender has changed twice before it counts.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import arrivals, peers
from benchmarks.arrivals import BEFORE, Times, longest_gap_ms
from drivetrain import Application, agg, sinks, sources, start, windows
from drivetrain.core.change.difference import touched
from drivetrain.core.plan.planner import plan
from drivetrain.runtime.planned_version import planned_version

RATE_PER_S = 1000
SETTLE_BATCHES = 5
WARM = 2
GOAL_MS = 50
GOAL_SHARE = 0.1


class Waits:
    """The added waits of one kind of batches over all changes."""

    def __init__(self) -> None:
        self.added_ms: list[float] = []
        self.before_ms: list[float] = []

    def add(self, times: Sequence[float], began_s: float, ended_s: float) -> None:
        longest, before = longest_gap_ms(times, began_s, ended_s)
        self.added_ms.append(longest - before)
        self.before_ms.append(before)

    def add_swap(self, batches: Sequence[tuple[float, int]], version: int) -> None:
        """Add the time before the first batch of a version; batches have their time and their version."""
        first = next(at for at, (_, ran) in enumerate(batches) if ran == version)
        times = [time_s for time_s, _ in batches]
        _, before = longest_gap_ms(times, times[first - 1], times[first])
        self.added_ms.append(1000 * (times[first] - times[first - 1]) - before)
        self.before_ms.append(before)

    def figures(self) -> dict[str, float]:
        return {
            "added_ms": statistics.median(self.added_ms),
            "least_ms": min(self.added_ms),
            "worst_ms": max(self.added_ms),
            "before_ms": statistics.median(self.before_ms),
        }


def application(version: int) -> Application:
    app = Application("changing")
    read = app.read(sources.generate(rate_per_s=RATE_PER_S, every="10 s", columns={"n": "id"}), name="read")
    changed = read.filter(f"n >= -{version}", name="large")
    changed.sink(sinks.batches(lambda _table, _id: arrivals.MAPPED.note(version)), name="mapped")
    hourly = read.window(windows.tumbling("1 h")).aggregate(n=agg.count(), step="hourly")
    hourly.sink(sinks.batches(lambda _table, _id: arrivals.WINDOWED.note()), name="windowed")
    return app


def require_one_change(before: int, after: int) -> None:
    """Raise unless the change is of the filter's fragment alone, whatever has come out meanwhile."""
    one = planned_version(plan(application(before).graph()))
    for times in (arrivals.MAPPED, arrivals.WINDOWED):
        times.note()
    changed = touched(one, planned_version(plan(application(after).graph())))
    for times in (arrivals.MAPPED, arrivals.WINDOWED):
        times.seen.clear()
    if changed != {"read"}:
        raise RuntimeError(f"the change is of {', '.join(sorted(changed))}, not of the filter alone")


def ours(work: Path, changes: int) -> dict[str, dict[str, float]]:
    """Update the running application; then stop and start it."""
    mapped, windowed = arrivals.MAPPED, arrivals.WINDOWED
    config = peers.config(work)
    swap, own, other, same, other_same, restarted = (Waits() for _ in range(6))
    require_one_change(1, 2)
    running = start(application(1), config)
    try:
        for version in range(2, changes + WARM + 2):
            mapped.wait_for_more(BEFORE + SETTLE_BATCHES)
            began_s = time.perf_counter()
            begun = len(mapped.seen)
            running.update(application(version), "2 min")
            mapped.wait_for_more(SETTLE_BATCHES)
            windowed.wait_for_more(2)
            if version >= WARM + 2:
                swap.add_swap(mapped.batches(), version)
                own.add(mapped.seen, began_s, time.perf_counter())
                other.add(windowed.seen, began_s, time.perf_counter())
                batches = len(mapped.seen) - begun
                mapped.wait_for_more(BEFORE + SETTLE_BATCHES)
                began_s = time.perf_counter()
                mapped.wait_for_more(batches)
                windowed.wait_for_more(2)
                same.add(mapped.seen, began_s, time.perf_counter())
                other_same.add(windowed.seen, began_s, time.perf_counter())
        for version in range(2 + WARM + 3):
            mapped.wait_for_more(BEFORE + SETTLE_BATCHES)
            began_s = time.perf_counter()
            running.stop()
            running.wait("2 min")
            running = start(application(100 + version), config)
            mapped.wait_for_more(1)
            if version >= WARM:
                restarted.add(mapped.seen, began_s, time.perf_counter())
    finally:
        running.stop()
        running.wait("2 min")
    return {
        "ours, the swap": swap.figures(),
        "ours, update": own.figures(),
        "ours, nothing changed": same.figures(),
        "ours, update: the other fragment": other.figures(),
        "ours, nothing changed: the other": other_same.figures(),
        "ours, restarted": restarted.figures(),
    }


def pyspark(work: Path, changes: int) -> dict[str, dict[str, float]]:
    """Stop the query and start the changed one with its checkpoint."""
    spark, _ = peers.start_drivetrain(work)
    times, waits = Times(), Waits()

    def started(version: int) -> Any:
        def write(batch: Any, _batch_id: int) -> None:
            batch.write.format("noop").mode("overwrite").save()
            times.note()

        read = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", RATE_PER_S // 5).load()
        mapped = read.where(f"value >= -{version}")
        return (
            mapped.writeStream.option("checkpointLocation", str(work / "check")).foreachBatch(write).start()
        )

    query = started(1)
    for version in range(2, changes + WARM + 2):
        times.wait_for_more(BEFORE + SETTLE_BATCHES)
        began_s = time.perf_counter()
        query.stop()
        query = started(version)
        times.wait_for_more(1)
        if version >= WARM + 2:
            waits.add(times.seen, began_s, time.perf_counter())
    query.stop()
    return {"PySpark, restarted": waits.figures()}


def flink(work: Path, changes: int) -> dict[str, dict[str, float]]:
    """Stop with a savepoint and start the changed statement from it; what it prints is timed here."""
    script = Path(__file__).with_name("changes_flink_job.py")
    given = {"rate_per_s": RATE_PER_S, "changes": changes + WARM, "work": str(work)}
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "SPARK_HOME")}
    line = [str(peers.flink_python()), str(script), json.dumps(given)]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    times: list[float] = []
    spans: list[list[float]] = []
    for text in process.stdout:
        now_s = time.perf_counter()
        if text.startswith("stopping"):
            spans.append([now_s])
        elif text.startswith("started"):
            spans[-1].append(now_s)
        elif "+I[" in text and (not times or now_s - times[-1] > 0.01):
            times.append(now_s)  # rows that come together are one batch
    if process.wait() != 0:
        raise RuntimeError("Flink's job failed: its output is above")
    waits = Waits()
    for began_s, ended_s in spans[WARM:]:
        waits.add(times, began_s, ended_s)
    return {"Flink SQL, restarted": waits.figures()}


def main() -> int:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--quick", action="store_true", help="four changes, and without Flink")
    given = parser.parse_args()
    changes = 4 if given.quick else 20
    contenders: list[Callable[[Path, int], dict[str, dict[str, float]]]] = [ours, pyspark]
    missing = "--quick leaves it out" if given.quick else peers.flink_missing()
    if missing is None:
        contenders.append(flink)
    found: dict[str, dict[str, float]] = {}
    print("longest time without results, ms: more than before (median, least, worst); between batches before")
    for contender in contenders:
        with tempfile.TemporaryDirectory() as work:
            figures = contender(Path(work), changes if contender is ours else min(changes, 5))
        for name, one in figures.items():
            line = (one["added_ms"], one["least_ms"], one["worst_ms"], one["before_ms"])
            print(f"  {name:34}", *(f"{ms:8.0f}" for ms in line), flush=True)
        found |= figures
    if missing is not None:
        print(f"  Flink: {missing}")
    added_ms = found["ours, the swap"]["added_ms"]
    best = min(one["added_ms"] for name, one in found.items() if name.endswith("restarted"))
    share = added_ms / best
    print(
        f"the swap adds {added_ms:.0f} ms (goal {GOAL_MS}), "
        f"{share:.2f} of the best restart (goal {GOAL_SHARE})"
    )
    return 0 if added_ms <= GOAL_MS and added_ms <= GOAL_SHARE * best else 1


if __name__ == "__main__":
    raise SystemExit(main())

"""How long a test of an application takes once Spark has started, beside the same test by hand in PySpark.

    python -m benchmarks.run_app [--quick] [--rounds N]

Ours is `drivetrain.testing.run_app` with three rows, and its results are read. By hand it is a JSON file, a
query with `availableNow` into a table in memory, and its rows, in a session with the same settings. A window
in PySpark has its last result only in mode `complete`, which is what its test uses. Both run once before the
clock starts; the figures are medians, wall clock and CPU seconds of all processes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.measure import Timed
from drivetrain import Application, PersistentTask, State, agg, sinks, sources, windows
from drivetrain.config import Config
from drivetrain.spark.session.spark_session import session
from drivetrain.testing import run_app

SCHEMA = "at timestamp, item string, amount bigint"
ROWS = [("2026-01-01T00:10", "tea", 3), ("2026-01-01T00:20", "tea", 4), ("2026-01-01T01:20", "pie", 5)]
GOAL_S = 1.0


class Totals(PersistentTask[Any, tuple[str, int]]):
    """The total of each item so far."""

    key = "item"
    state = State(agg.sum("amount"))

    def on_change(self, key: str, total: int) -> list[tuple[str, int]]:
        return [(key, total)]


def orders() -> tuple[Application, Any]:
    app = Application("orders")
    source = sources.json("in/", schema=SCHEMA, event_time="at", max_disorder="10 min", watch=True)
    return app, app.read(source, name="orders")


def filtered() -> int:
    app, read = orders()
    read.filter("amount > 3", name="large").sink(sinks.none())
    return len(run_app(app, {"orders": ROWS}).emitted("large"))


def windowed() -> int:
    app, read = orders()
    hourly = read.group_by("item").window(windows.tumbling("1 h"))
    hourly.aggregate(step="hourly", total=agg.sum("amount")).sink(sinks.none())
    return len(run_app(app, {"orders": ROWS}).emitted("hourly"))


def persistent() -> int:
    app, read = orders()
    read.process(Totals, name="totals").sink(sinks.none())
    return len(run_app(app, {"orders": ROWS}).emitted("totals"))


def by_hand(shape: Callable[[Any], Any], mode: str) -> int:
    """The same test in PySpark: the number of results."""
    spark = session(Config.load(None, {}, {"spark.shuffle-partitions": "1"}))
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as place:
        (Path(place) / "in").mkdir()
        lines = [json.dumps(dict(zip(("at", "item", "amount"), row, strict=True))) for row in ROWS]
        (Path(place) / "in/1.json").write_text("\n".join(lines))
        read = spark.readStream.schema(SCHEMA).json(f"{place}/in")
        query = shape(read.withWatermark("at", "10 minutes")).writeStream.format("memory").outputMode(mode)
        named = query.queryName("found").option("checkpointLocation", f"{place}/checkpoint")
        named.trigger(availableNow=True).start().awaitTermination()
        return len(spark.table("found").collect())


def filtered_by_hand() -> int:
    return by_hand(lambda read: read.where("amount > 3"), "append")


def windowed_by_hand() -> int:
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

    def shape(read: Any) -> Any:
        return read.groupBy("item", F.window("at", "1 hour")).agg(F.sum("amount").alias("total"))

    return by_hand(shape, "complete")


CASES: tuple[tuple[str, Callable[[], int], Callable[[], int] | None, int], ...] = (
    ("a filter", filtered, filtered_by_hand, 2),
    ("a window", windowed, windowed_by_hand, 2),
    ("a persistent Task", persistent, None, 2),
)


def measured(test: Callable[[], int], expected: int, rounds: int) -> tuple[float, float]:
    """Median seconds and CPU seconds of a test, after the first ones."""
    runs = []
    for _ in range(rounds + 2):
        with Timed() as timed:
            found = test()
        assert found == expected, f"{found} results, not {expected}"
        runs.append((timed.seconds, timed.cpu_s))
        time.sleep(0.2)  # what a run leaves behind ends meanwhile
    wall, cpu = zip(*runs[2:], strict=True)
    return statistics.median(wall), statistics.median(cpu)


def main() -> int:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int, default=15)
    given = parser.parse_args()
    rounds = 3 if given.quick else given.rounds
    print(f"medians of {rounds} tests, after the start of Spark; seconds (CPU seconds)")
    reached = True
    for name, ours, hand, expected in CASES:
        wall, cpu = measured(ours, expected, rounds)
        reached = reached and wall < GOAL_S
        line = f"  {name:20} run_app {wall:5.2f} ({cpu:5.2f})"
        if hand is not None:
            theirs, their_cpu = measured(hand, expected, rounds)
            line += f"   PySpark by hand {theirs:5.2f} ({their_cpu:5.2f})   ours / it {wall / theirs:.2f}"
        print(line, flush=True)
    print(f"goal: below {GOAL_S:g} s: {'reached' if reached else 'missed'}")
    return 0 if reached else 1


if __name__ == "__main__":
    raise SystemExit(main())

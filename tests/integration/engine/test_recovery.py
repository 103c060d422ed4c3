"""Kill it at any moment, run it again: the output is an undisturbed run's."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from harness import Harness, at, events, ms

from drivetrain import Application, agg, windows
from drivetrain.code.application_file import load_application
from drivetrain.core.job.run_progress import ProgressEvent, RunOutcome
from drivetrain.errors import DrivetrainError, UnavailableError, UserError
from drivetrain.spark.batch.fragment_query import FragmentQuery
from drivetrain.spark.batch.micro_batch_query import MicroBatchQuery
from nightly_run import is_nightly

KILLS, PARTS, ROWS = (3, 12, 4000) if is_nightly() else (1, 4, 1600)
SCHEMA = "ts timestamp, key string, n bigint"
SECOND = 1000

CHAINED = """
from drivetrain import Application, agg, sinks, sources, windows
app = Application("chained")
source = sources.parquet(app.setting("input"))
out = app.setting("output")
events = app.read(source).event_time("ts", max_disorder="20 s")
events.filter("n % 10 = 0", name="tenth").sink(sinks.csv(out + "/tenth"))
grouped = events.group_by("key").window(windows.tumbling("10 s"))
short = grouped.aggregate(step="short", n=agg.count(), total=agg.sum("n"))
short.sink(sinks.parquet(out + "/short"))
long = short.group_by("key").window(windows.tumbling("1 min")).aggregate(step="long", n=agg.sum("n"))
long.sink(sinks.json(out + "/long"))
"""


def rows(count: int) -> list[tuple[Any, str, int]]:
    draw = random.Random(11)
    known = sorted(
        (ts + draw.randrange(20 * SECOND), ts, i)
        for i in range(count)
        for ts in [draw.randrange(600 * SECOND)]
    )
    return [(at(ts), "abcd"[i % 4], i) for _, ts, i in known]


def write_parts(directory: Path, data: list[tuple[Any, str, int]], parts: int) -> None:
    directory.mkdir()
    schema = pa.schema([("ts", pa.timestamp("us", "UTC")), ("key", pa.string()), ("n", pa.int64())])
    size = -(-len(data) // parts)
    for i in range(parts):
        columns = list(zip(*data[i * size : (i + 1) * size], strict=True))
        pq.write_table(
            pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema),
            directory / f"{i:02}.parquet",
        )


def results(out: Path) -> tuple[Counter[Any], Counter[Any], int]:
    short = ds.dataset(sorted(map(str, (out / "short").glob("*.parquet")))).to_table().to_pylist()
    long = ds.dataset(sorted(map(str, (out / "long").glob("*.json"))), format="json").to_table().to_pylist()
    tenth = ds.dataset(sorted(map(str, (out / "tenth").glob("*.csv"))), format="csv").count_rows()
    return (
        Counter((r["key"], ms(r["window_start"]), r["n"], r["total"]) for r in short),
        Counter((r["key"], str(r["window_start"])[:16], r["n"]) for r in long),
        tenth,
    )


def wanted(data: list[tuple[Any, str, int]]) -> Counter[Any]:
    groups: dict[tuple[str, int], list[int]] = defaultdict(list)
    for time_, key, n in data:
        groups[key, ms(time_) // 10_000 * 10_000].append(n)
    return Counter((k, w, len(ns), sum(ns)) for (k, w), ns in groups.items())


def command(app: Path, directory: Path) -> subprocess.Popen[bytes]:
    line = [
        sys.executable, "-m", "drivetrain.cli", "run", str(app),
        "--set", f"input={directory / 'in'}", "--set", f"output={directory / 'out'}",
        "--set", "spark.driver-memory=1 GiB", "--set", "run.max-batch-bytes=8 KiB",
        "--set", "spark.master=local[2]", "--state-dir", str(directory / "state"),
    ]  # fmt: skip
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)


@pytest.mark.timeout(900)
@pytest.mark.nightly("test_guarantee_delivery kills one run at one point of each kind")
def test_a_run_killed_again_and_again_ends_with_the_output_of_an_undisturbed_one(drive: Harness) -> None:
    directory = drive.directory
    data = rows(ROWS)
    write_parts(directory / "in", data, parts=PARTS)
    app = directory / "chained.py"
    app.write_text(CHAINED)
    published = directory / "out" / "tenth"
    draw, kills = random.Random(5), 0
    for _ in range(KILLS):
        process = command(app, directory)
        goal = len(list(published.glob("*.csv"))) + draw.choice([1, 1, 2])
        deadline = time.monotonic() + 200
        while process.poll() is None and len(list(published.glob("*.csv"))) < goal:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        time.sleep(draw.random() * 2)  # not waiting for anything: a random moment to die at
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            kills += 1
        output = process.communicate(timeout=250)[0]
        assert process.returncode in (0, -signal.SIGKILL), output.decode()
    assert kills >= 1
    settings = {"input": str(directory / "in"), "output": str(directory / "out")}
    last = drive.run(load_application(str(app), settings), run__max_batch_bytes="8 KiB")
    assert last.outcome in (RunOutcome.FINISHED, RunOutcome.ALREADY_FINISHED)
    short, long, tenth = results(directory / "out")
    assert short == wanted(data)
    assert sum(n for _, _, n in long.elements()) == len(data)
    assert len(long) == sum(long.values())
    assert tenth == sum(1 for _, _, n in data if n % 10 == 0)


@pytest.mark.nightly("test_windows reaches what it reaches")
def test_running_a_finished_application_again_does_nothing_and_fresh_starts_over(drive: Harness) -> None:
    data = rows(200)

    def build() -> Application:
        app = Application("again")
        drive.sink(
            events(app, data, SCHEMA, "20 s")
            .group_by("key")
            .window(windows.tumbling("10 s"))
            .aggregate(n=agg.count(), total=agg.sum("n"))
        )
        return app

    drive.run(build())
    first = drive.rows()
    again = drive.run(build())
    assert again.outcome is RunOutcome.ALREADY_FINISHED
    assert again.batches == 0
    assert drive.rows() == first
    fresh = drive.run(build(), fresh=True)
    assert fresh.outcome is RunOutcome.FINISHED
    assert drive.rows() == first


class StopAfter:
    """Asks to stop after some batches of some fragment."""

    def __init__(self, batches: int) -> None:
        self.left = batches

    def on_event(self, event: ProgressEvent) -> None:
        if type(event).__name__ == "FragmentProgressed":
            self.left -= 1

    def stop_requested(self) -> bool:
        return self.left <= 0


@pytest.mark.nightly("test_guarantee_delivery continues after a kill")
def test_a_stopped_run_goes_on_where_it_stopped(drive: Harness) -> None:
    data = rows(3000)
    write_parts(drive.directory / "in", data, parts=10)

    def build() -> Application:
        from drivetrain import sources

        app = Application("stopped")
        stream = app.read(sources.parquet(drive.directory / "in")).event_time("ts", max_disorder="20 s")
        drive.sink(
            stream.group_by("key")
            .window(windows.tumbling("10 s"))
            .aggregate(n=agg.count(), total=agg.sum("n"))
        )
        return app

    stopped = drive.run(build(), listener=StopAfter(3), run__max_batch_bytes="8 KiB")
    assert stopped.outcome is RunOutcome.STOPPED
    result = drive.run(build(), run__max_batch_bytes="8 KiB")
    assert result.outcome is RunOutcome.FINISHED
    found = Counter((r["key"], ms(r["window_start"]), r["n"], r["total"]) for r in drive.rows())
    assert found == wanted(data)


@pytest.mark.nightly("test_windows reaches what it reaches")
def test_a_start_that_was_killed_within_its_first_write_to_sparks_log_goes_on(drive: Harness) -> None:
    data = rows(100)
    app = Application("first")
    drive.sink(events(app, data, SCHEMA, "20 s").group_by("key").window(windows.tumbling("10 s")).count())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MicroBatchQuery, "start", killed_before_any_batch)
        with pytest.raises(DrivetrainError, match="killed"):
            drive.run(app)
    assert drive.run(app).outcome is RunOutcome.FINISHED
    assert sum(row["count"] for row in drive.rows()) == len(data)


def killed_before_any_batch(query: FragmentQuery) -> None:
    """What Spark leaves when it dies while it writes its record of the first batch."""
    for log in ("offsets", "commits"):
        (query.checkpoint / log).mkdir(parents=True)
    (query.checkpoint / "offsets" / ".0.963022aa-ec0f-42c4-9d10-35e8265b76c8.tmp").touch()
    raise UnavailableError("killed")


@pytest.mark.nightly("test_difference")
def test_another_graph_on_the_same_state_is_refused(drive: Harness) -> None:
    data = rows(100)
    app = Application("changed")
    drive.sink(events(app, data, SCHEMA, "20 s").group_by("key").window(windows.tumbling("10 s")).count())
    drive.run(app, listener=StopAfter(1))
    other = Application("changed")
    drive.sink(events(other, data, SCHEMA, "20 s").group_by("key").window(windows.tumbling("20 s")).count())
    with pytest.raises(UserError, match="graph has changed") as refused:
        drive.run(other)
    assert "was made with aggregate" in str(refused.value)

"""A replay from T takes every message of then or later once more, and none that is older, in any order."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from harness import Harness, at, events, ms

from drivetrain import Application, agg, sources, windows
from drivetrain.code.application_file import load_application
from drivetrain.core.job.run_progress import RunOutcome
from drivetrain.core.replay.replay import ReplayError
from drivetrain.errors import DrivetrainError
from nightly_run import first_seed, is_nightly

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "ts timestamp, key string, n bigint"
SECOND = 1000
DISORDER = 20 * SECOND
SEED = first_seed(7)

Row = tuple[int, str, int]


def disordered(count: int, seed: int) -> list[Row]:
    """Messages of ten minutes, each at most `DISORDER` behind the newest before it."""
    draw = random.Random(seed)
    stamps = [draw.randrange(600 * SECOND) for _ in range(count)]
    arrivals = sorted((ts + draw.randrange(DISORDER), ts, i) for i, ts in enumerate(stamps))
    return [(ts, "abcd"[i % 4], i) for _, ts, i in arrivals]


def write_parts(directory: Path, data: list[Row], parts: int) -> None:
    directory.mkdir()
    schema = pa.schema([("ts", pa.timestamp("us", "UTC")), ("key", pa.string()), ("n", pa.int64())])
    size = -(-len(data) // parts)
    for i in range(parts):
        ts, key, n = zip(*data[i * size : (i + 1) * size], strict=True)
        table = pa.table([pa.array([at(t) for t in ts]), pa.array(key), pa.array(n)], names=schema.names)
        pq.write_table(table.cast(schema), directory / f"{i:02}.parquet")


def windowed(data: list[Row], width_ms: int) -> Counter[Any]:
    groups: dict[tuple[str, int], list[int]] = defaultdict(list)
    for ts, key, n in data:
        groups[key, ts // width_ms * width_ms].append(n)
    return Counter((key, start, len(ns), sum(ns)) for (key, start), ns in groups.items())


def published(directory: Path, life: int) -> list[dict[str, Any]]:
    """What a sink has published in one life of the application."""
    lives = {path: int(name[4]) if (name := path.name.split("-")[-2]).startswith("life") else 1
             for path in directory.glob("*.parquet")}  # fmt: skip
    files = sorted(str(path) for path, of in lives.items() if of == life)
    return ds.dataset(files).to_table().to_pylist() if files else []


def windows_of(directory: Path, life: int) -> Counter[Any]:
    rows = published(directory, life)
    return Counter((r["key"], ms(r["window_start"]), r["n"], r["total"]) for r in rows)


def chained(drive: Harness, stream: Any) -> None:
    """Every third message as it is, windows, and windows of windows behind a channel."""
    short = windowed_beside(drive, stream)
    long = short.group_by("key").window(windows.tumbling("1 min"))
    drive.sink(long.aggregate(step="long", n=agg.sum("n"), total=agg.sum("total")), "long")


def windowed_beside(drive: Harness, stream: Any) -> Any:
    """Every third message as it is, and windows, which are returned."""
    drive.sink(stream.filter("n % 3 = 0", name="third"), "third")
    short = stream.group_by("key").window(windows.tumbling("10 s")).aggregate(
        step="short", n=agg.count(), total=agg.sum("n")
    )  # fmt: skip
    drive.sink(short, "short")
    return short


def assert_life(drive: Harness, life: int, data: list[Row], what: str, *, is_chained: bool = True) -> None:
    """That all outputs of a life are those of a batch computation over `data`."""
    third = sorted(r["n"] for r in published(drive.out("third"), life))
    assert third == sorted(n for _, _, n in data if n % 3 == 0), what
    assert windows_of(drive.out("short"), life) == windowed(data, 10 * SECOND), what
    if is_chained:
        assert windows_of(drive.out("long"), life) == windowed(data, 60 * SECOND), what


@pytest.mark.nightly("a store without event time, below, test_kafka_replay and test_replay")
def test_files_are_replayed_exactly_from_any_moment_again_and_again(drive: Harness) -> None:
    """A replay that is stopped goes on by itself; event time may be assigned behind a function."""
    draw = random.Random(SEED)
    data = disordered(1600, SEED)
    write_parts(drive.directory / "in", data, parts=2)

    def build() -> Application:
        app = Application("files")
        stream = app.read(sources.parquet(drive.directory / "in")).filter("n >= 0")
        chained(drive, stream.event_time("ts", max_disorder="20 s"))
        return app

    drive.run(build(), run__max_batch_bytes="14 KiB")
    for life in (2, 3) if is_nightly() else (2,):
        from_ms = draw.randrange(100 * SECOND, 500 * SECOND)
        what = f"seed {SEED}, replayed from {from_ms} ms"
        stopped = drive.run(
            build(), replay_from_ms=from_ms, listener=StopAfter(2), run__max_batch_bytes="14 KiB"
        )
        assert stopped.outcome is RunOutcome.STOPPED
        assert (stopped.life, stopped.replay_from_ms) == (life, from_ms)
        result = drive.run(build(), run__max_batch_bytes="14 KiB")
        assert result.outcome is RunOutcome.FINISHED
        assert (result.life, result.replay_from_ms) == (life, from_ms)
        young = [row for row in data if row[0] >= from_ms]
        assert stopped.skipped + result.skipped >= len(data) - len(young), what
        assert_life(drive, life, young, what)
    assert_life(drive, 1, data, "what the first life had published stays")
    assert drive.run(build()).outcome is RunOutcome.ALREADY_FINISHED


class StopAfter:
    """Asks to stop after some batches of some fragment."""

    def __init__(self, batches: int) -> None:
        self.left = batches

    def on_event(self, event: Any) -> None:
        if type(event).__name__ == "FragmentProgressed":
            self.left -= 1

    def stop_requested(self) -> bool:
        return self.left <= 0


@pytest.mark.nightly(
    "test_files_are_replayed_exactly_from_any_moment_again_and_again, and test_ingest_under_kills"
)
def test_what_a_source_said_once_is_replayed_from_its_store(drive: Harness) -> None:
    data = disordered(1500, SEED + 2)
    rows = [(at(ts), key, n) for ts, key, n in data]

    def build(given: list[Any]) -> Application:
        app = Application("items")
        windowed_beside(drive, events(app, given, SCHEMA, "20 s"))
        return app

    drive.run(build(rows))
    from_ms = 300_001
    result = drive.run(build([]), replay_from_ms=from_ms)
    assert result.outcome is RunOutcome.FINISHED
    young = [row for row in data if row[0] >= from_ms]
    assert_life(drive, 2, young, f"seed {SEED + 2}", is_chained=False)
    if is_nightly():
        nothing = drive.run(build([]), replay_from_ms=10**12)
        assert nothing.outcome is RunOutcome.FINISHED
        assert_life(drive, 3, [], "nothing is that young", is_chained=False)


def test_a_store_without_event_time_is_replayed_by_arrival(drive: Harness) -> None:
    def build() -> Application:
        app = Application("arrivals")
        drive.sink(app.read(sources.items([(n,) for n in range(10)], schema="n bigint")), "out")
        return app

    before_ms = int(time.time() * 1000)
    drive.run(build())
    drive.run(build(), replay_from_ms=before_ms)
    assert sorted(r["n"] for r in published(drive.out(), 2)) == list(range(10))
    drive.run(build(), replay_from_ms=before_ms + 3_600_000)
    assert published(drive.out(), 3) == []


@pytest.mark.nightly("test_restore reaches what it reaches")
def test_the_generator_begins_with_the_first_row_of_the_replay(drive: Harness) -> None:
    def build() -> Application:
        app = Application("generated")
        rows = sources.generate(rows=1000, start="1970-01-01T00:00:00Z", every="1 s")
        drive.sink(app.read(rows).window(windows.tumbling("100 s")).aggregate(n=agg.count()))
        return app

    drive.run(build())
    result = drive.run(build(), replay_from_ms=850_500)
    assert result.skipped == 0
    assert {ms(r["window_start"]): r["n"] for r in published(drive.out(), 2)} == {800_000: 49, 900_000: 100}
    if is_nightly():
        assert drive.run(build(), replay_from_ms=10**9).outcome is RunOutcome.FINISHED
        assert published(drive.out(), 3) == []


def test_a_replay_that_cannot_be_leaves_everything_as_it_was(drive: Harness) -> None:
    write_parts(drive.directory / "in", disordered(50, 1), parts=1)

    def build(column: str | None) -> Application:
        app = Application("refused")
        stream = app.read(sources.parquet(drive.directory / "in"))
        timed = stream if column is None else stream.event_time(column, max_disorder="20 s")
        drive.sink(timed.filter("n % 3 = 0"))
        return app

    drive.run(build("ts"))
    before = drive.rows()
    with pytest.raises(ReplayError, match="no timestamp"):
        drive.run(build(None), replay_from_ms=0)
    with pytest.raises(DrivetrainError, match="missing"):  # found by Spark, when the new life is made aside
        drive.run(build("missing"), replay_from_ms=0)
    assert drive.rows() == before
    assert drive.run(build("ts")).outcome is RunOutcome.ALREADY_FINISHED


def test_a_trimmed_store_refuses_a_replay_of_what_is_gone(drive: Harness) -> None:
    from drivetrain.runtime.channel.store import ChannelStore
    from drivetrain.spark.prepare.source_store import Retention

    rows = [(at(i * SECOND), "a", i) for i in range(100)]
    app = Application("trimmed")
    drive.sink(events(app, rows, SCHEMA))
    drive.run(app)
    uri = next((drive.directory / "state").glob("*/stores/*"))
    store = ChannelStore(str(uri))
    for subscriber in store.positions():
        store.record_position(subscriber, store.length())
    Retention(0, 10**12).trim(store)
    assert store.start() == store.length() - 1
    with pytest.raises(ReplayError, match="no longer stored") as refused:
        drive.run(app, replay_from_ms=50 * SECOND)
    assert "1970-01-01T00:01:39" in str(refused.value)
    assert drive.run(app, replay_from_ms=200 * SECOND).outcome is RunOutcome.FINISHED


FILE = """
from drivetrain import Application, agg, sinks, sources, windows
app = Application("killed")
source = sources.parquet(app.setting("input"), event_time="ts", max_disorder="20 s")
out = app.setting("output")
events = app.read(source)
events.filter("n % 3 = 0").sink(sinks.parquet(out + "/third"))
short = events.group_by("key").window(windows.tumbling("10 s")).aggregate(
    step="short", n=agg.count(), total=agg.sum("n"))
short.sink(sinks.parquet(out + "/short"))
long = short.group_by("key").window(windows.tumbling("1 min"))
long.aggregate(step="long", n=agg.sum("n"), total=agg.sum("total")).sink(sinks.parquet(out + "/long"))
"""


@pytest.mark.nightly("a replay that is stopped goes on, in the tests above, and test_recovery kills a run")
@pytest.mark.timeout(600)
def test_a_replay_that_is_killed_has_begun_or_not_and_goes_on(tmp_path: Path, spark: SparkSession) -> None:
    """The first life may begin with a replay as well; what goes on needs no process of its own."""
    data = disordered(300, SEED + 3)
    write_parts(tmp_path / "in", data, parts=3)
    app = tmp_path / "killed.py"
    app.write_text(FILE)
    from_ms = 250_000
    settings = {"input": str(tmp_path / "in"), "output": str(tmp_path / "out")}
    line = [
        sys.executable, "-m", "drivetrain.cli", "run", str(app), "--replay-from", "1970-01-01T00:04:10",
        *(text for name, value in settings.items() for text in ("--set", f"{name}={value}")),
        "--set", "spark.driver-memory=1 GiB", "--set", "run.max-batch-bytes=8 KiB",
        "--set", "spark.master=local[2]", "--state-dir", str(tmp_path / "state"),
    ]  # fmt: skip
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    deadline = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < deadline:
        if any((tmp_path / "out" / "third").glob("*.parquet")):
            break
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=180)
    result = Harness(tmp_path).run(load_application(str(app), settings), run__max_batch_bytes="8 KiB")
    assert result.outcome is RunOutcome.FINISHED
    assert (result.life, result.replay_from_ms) == (1, from_ms)
    drive = Harness(tmp_path / "out")
    assert_life(drive, 1, [row for row in data if row[0] >= from_ms], f"seed {SEED + 3}")

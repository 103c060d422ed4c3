"""One clock over partitions: one that is silent stops no window, one that is late holds them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness import Harness, ms

from drivetrain import Application, agg, sinks, sources, start, windows
from drivetrain.connectors.opening import open_source
from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS
from drivetrain.errors import DrivetrainError, InputError, UnavailableError
from drivetrain.runtime.channel.columns import PART
from drivetrain.spark.connector.source import OpenedSource
from drivetrain.spark.measure import small_batches
from drivetrain.spark.prepare import fragment
from drivetrain.spark.run.running_application import RunningApplication
from nightly_run import is_nightly

SCHEMA = "ts bigint, shard int"
WAIT = "120 s"
SILENT_S = 60 if is_nightly() else 0
"""For how long a partition is silent: a minute at night, otherwise until windows go on without it."""


class Lines:
    """A watched directory that gets files of events (seconds, shard)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.files = 0
        path.mkdir()

    def put(self, *events: tuple[int, int]) -> None:
        """Add a file."""
        self.files += 1
        hidden = self.path / f".{self.files}"
        hidden.write_text("".join(json.dumps({"ts": s * 1000, "shard": n}) + "\n" for s, n in events))
        hidden.rename(self.path / f"{self.files:04}.jsonl")


def wait_until(condition: Callable[[], bool], running: RunningApplication) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert running.is_running, running.wait()
        assert time.monotonic() < deadline, f"the clock is at {running.clock_ms}"
        time.sleep(0.05)


def counted(drive: Harness) -> dict[int, int]:
    return {ms(row["window_start"]) // 1000: row["n"] for row in drive.rows()}


def windowed(drive: Harness, lines: Lines, *, cut: bool, idle: str) -> Application:
    app = Application("shards")
    read = app.read(sources.json(lines.path, schema=SCHEMA, watch=True))
    timed = read.event_time("ts", partition="shard", partitions=2, idle_timeout=idle)
    if cut:
        timed = timed.cut().filter("shard >= 0")
    drive.sink(timed.window(windows.tumbling("10 s")).aggregate(n=agg.count()))
    return app


AT_NIGHT = pytest.mark.nightly("the other shapes of the application")
FUSED = pytest.param("fused", marks=AT_NIGHT)


@pytest.mark.nightly("test_clock_under_faults; the tests of silent inputs below")
@pytest.mark.parametrize("cut", [False, True], ids=["fused", "two fragments"])
def test_a_late_partition_holds_windows_and_a_silent_one_does_not(drive: Harness, cut: bool) -> None:
    lines = Lines(drive.directory / "lines")
    lines.put((1, 0), (95, 0), (2, 1), (25, 1))
    with start(windowed(drive, lines, cut=cut, idle="2 s"), drive.config()) as running:
        running.wait_clock(20_000, WAIT)
        wait_until(lambda: 0 in counted(drive), running)
        for second in range(26, 28):  # shard 1 goes on, far behind: shard 0 must wait for it
            lines.put((70 + second, 0), (second, 1))
            running.wait_clock(second * 1000 - 1000, WAIT)
        assert set(counted(drive)) <= {0, 10, 20}
        assert running.clock_ms is not None
        assert running.clock_ms < 40_000
        second = 110
        silent_until_s = time.monotonic() + SILENT_S
        while 90 not in counted(drive) or time.monotonic() < silent_until_s:  # shard 1 is silent, shard 0 not
            second += 1
            assert second < 500, "windows wait for a partition that is silent"
            lines.put((second, 0))
            time.sleep(0.5)
        running.wait_clock(second * 1000 - 10_000, WAIT)
        back = second + 200
        lines.put((back, 1), (back + 1, 0))  # and it may come back
        running.wait_clock(back * 1000, WAIT)
        wait_until(lambda: 110 in counted(drive), running)
    result = running.wait(WAIT)
    assert result.late == 0
    rows = counted(drive)
    assert (rows[0], rows[20]) == (2, 3)


@pytest.mark.nightly("test_small_batches_on_spark")
def test_batches_that_turn_out_too_large_for_the_driver_move_the_clock_and_are_counted(
    drive: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small_batches, "LIMIT_BYTES", 200)
    lines = Lines(drive.directory / "lines")
    app = Application("large")
    read = app.read(sources.json(lines.path, schema=SCHEMA, watch=True)).event_time("ts")
    kept = read.filter("shard >= 0", name="kept").cut()
    drive.sink(kept.window(windows.tumbling("10 s")).aggregate(n=agg.count()))
    with start(app, drive.config()) as running:
        for first in range(0, 300, 100):
            lines.put(*((second, second % 7 - 1) for second in range(first, first + 100)))
            running.wait_clock((first + 99) * 1000, WAIT)
        wait_until(lambda: 280 in counted(drive), running)
    told = {processor.processor: processor.messages_out for processor in running.wait(WAIT).processors}
    assert told["kept"] == sum(second % 7 > 0 for second in range(300))
    windows_of = range(0, 290, 10)
    assert counted(drive) == {w: sum(s % 7 > 0 for s in range(w, w + 10)) for w in windows_of}


def test_a_partition_that_has_said_nothing_holds_the_clock_until_it_is_idle(drive: Harness) -> None:
    lines = Lines(drive.directory / "lines")
    lines.put((1, 0), (50, 0))
    with start(windowed(drive, lines, cut=False, idle="1 h"), drive.config()) as running:
        lines.put((60, 0))
        with pytest.raises(UnavailableError, match="has not reached"):
            running.wait_clock(10_000, "2 s")
        lines.put((55, 1))
        assert running.wait_clock(50_000, WAIT) >= 50_000
    assert set(counted(drive)) <= {0, 50}


@pytest.mark.nightly("test_clock_under_faults")
def test_after_a_stop_the_clock_is_where_it_was_and_goes_on(drive: Harness) -> None:
    lines = Lines(drive.directory / "lines")
    lines.put((1, 0), (30, 0), (1, 1), (40, 1))
    app = windowed(drive, lines, cut=True, idle="1 h")
    with start(app, drive.config()) as running:
        reached_ms = running.wait_clock(29_000, WAIT)
    with start(app, drive.config()) as running:
        assert running.wait_clock(reached_ms, "20 s") >= reached_ms
        lines.put((70, 0), (80, 1))
        running.wait_clock(69_000, WAIT)
        wait_until(lambda: 0 in counted(drive), running)
    assert counted(drive)[0] == 2


@pytest.mark.nightly("simulated by test_clock_under_faults")
def test_a_partition_that_appears_later_is_not_passed_by_the_clock(
    drive: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = [1]

    def opened(*given: Any, **named: Any) -> OpenedSource:
        """A source that knows the number of its partitions when it is opened, as Kafka's does."""
        found = open_source(*given, **named)
        found.df = found.df.withColumn(PART, found.df["shard"])
        found.partitions, found.idle_ms = known[0], 3_600_000
        return found

    monkeypatch.setattr(fragment, "open_source", opened)
    lines = Lines(drive.directory / "lines")
    lines.put((1, 0), (12, 0))
    app = Application("growing")
    read = app.read(sources.json(lines.path, schema=SCHEMA, watch=True, event_time="ts"))
    drive.sink(read.window(windows.tumbling("10 s")).aggregate(n=agg.count()))
    with start(app, drive.config()) as running:
        running.wait_clock(12_000, WAIT)
        known[0] = 2
        lines.put((13, 1))
        lines.put((90, 0))
        with pytest.raises(UnavailableError, match="has not reached"):
            running.wait_clock(20_000, "3 s")
        lines.put((14, 1), (95, 1), (96, 0))
        running.wait_clock(95_000, WAIT)
        wait_until(lambda: 10 in counted(drive), running)
    assert running.wait(WAIT).late == 0
    assert counted(drive) == {0: 1, 10: 3}


@pytest.mark.nightly("test_clock_under_faults")
def test_bounded_partitions_are_never_idle_and_end(drive: Harness) -> None:
    lines = Lines(drive.directory / "lines")
    lines.put((1, 0), (95, 0))
    lines.put((2, 1), (25, 1))
    app = Application("bounded-shards")
    read = app.read(sources.json(lines.path, schema=SCHEMA))
    timed = read.event_time("ts", partition="shard", partitions=2, idle_timeout="1 ms")
    drive.sink(timed.window(windows.tumbling("10 s")).aggregate(n=agg.count()))
    result = drive.run(app, run__max_batch_bytes="1 KiB")
    assert (result.late, result.clock_ms) == (0, FINAL_CLOCK_MS)
    assert counted(drive) == {0: 2, 20: 1, 90: 1}


def test_a_message_of_an_undeclared_partition_is_an_error(drive: Harness) -> None:
    app = Application("strange-shard")
    timed = app.read(sources.items([(1, 0), (2, 7)], SCHEMA)).event_time(
        "ts", partition="shard", partitions=2
    )
    timed.sink(sinks.none())
    with pytest.raises(DrivetrainError, match="a partition that is not declared: shard is 7"):
        drive.run(app)


@pytest.mark.nightly("test_clock_under_faults")
def test_named_partitions_pass_python_functions(drive: Harness) -> None:
    app = Application("named")
    rows: list[Any] = [(1_000, "eu"), (95_000, "eu"), (2_000, "us"), (25_000, "us")]
    read = app.read(sources.items(rows, "ts bigint, place string"))
    timed = read.event_time("ts", partition="place", partitions=["eu", "us"])
    kept = timed.filter(lambda row: row.place != "")
    drive.sink(kept.window(windows.tumbling("10 s")).aggregate(n=agg.count()))
    assert drive.run(app).clock_ms == FINAL_CLOCK_MS
    assert counted(drive) == {0: 2, 20: 1, 90: 1}


def test_a_run_in_the_background_gives_its_result_and_its_error(drive: Harness) -> None:
    app = Application("background")
    app.read(sources.items([(1,), (2,)], "n long")).sink(sinks.none())
    running = start(app, drive.config())
    assert running.wait(WAIT).clock_ms == FINAL_CLOCK_MS
    assert running.wait_clock("2030-01-01", "1 s") == FINAL_CLOCK_MS
    missing = Application("missing")
    missing.read(sources.text(drive.directory / "nowhere")).sink(sinks.none())
    broken = start(missing, drive.config())
    with pytest.raises(InputError):
        broken.wait_clock("2030-01-01", WAIT)
    with pytest.raises(InputError):
        broken.wait(WAIT)


def two_inputs(drive: Harness, ahead: Lines, behind: Lines, shape: str) -> Application:
    app = Application("inputs")
    timed = [
        app.read(sources.json(lines.path, schema=SCHEMA, watch=True), name=name).event_time("ts")
        for name, lines in (("ahead", ahead), ("behind", behind))
    ]
    if shape == "a channel and a source":
        timed[0] = timed[0].cut().filter("shard >= 0")
    merged = timed[0].union(timed[1])
    if shape == "two fragments":
        merged = merged.cut().filter("shard >= 0")
    drive.sink(merged.window(windows.tumbling("10 s")).aggregate(n=agg.count()))
    return app


@pytest.mark.nightly("test_random_applications reaches what it reaches")
@pytest.mark.parametrize(
    "shape", [FUSED, pytest.param("two fragments", marks=AT_NIGHT), "a channel and a source"]
)
def test_an_input_that_is_silent_after_a_restart_does_not_hold_the_clock_where_it_was(
    drive: Harness, shape: str
) -> None:
    ahead, behind = Lines(drive.directory / "ahead"), Lines(drive.directory / "behind")
    ahead.put((1, 0), (95, 0))
    behind.put((2, 1), (25, 1))
    with start(two_inputs(drive, ahead, behind, shape), drive.config()) as running:
        running.wait_clock(24_000, WAIT)
        wait_until(lambda: 0 in counted(drive), running)
        assert running.clock_ms is not None
        assert running.clock_ms < 26_000
    behind.put((60, 1))
    with start(two_inputs(drive, ahead, behind, shape), drive.config()) as running:
        running.wait_clock(59_000, WAIT)
        wait_until(lambda: 20 in counted(drive), running)
        assert running.clock_ms is not None
        assert running.clock_ms < 61_000
    assert counted(drive) == {0: 2, 20: 1}


@pytest.mark.parametrize("cut", [pytest.param(False, marks=AT_NIGHT), True], ids=["fused", "two fragments"])
@pytest.mark.nightly("an input that is silent after a restart, above")
def test_a_partition_that_is_silent_after_a_restart_does_not_hold_the_clock_where_it_was(
    drive: Harness, cut: bool
) -> None:
    lines = Lines(drive.directory / "lines")
    lines.put((1, 0), (95, 0), (2, 1), (25, 1))
    with start(windowed(drive, lines, cut=cut, idle="1 h"), drive.config()) as running:
        running.wait_clock(24_000, WAIT)
        wait_until(lambda: 0 in counted(drive), running)
    lines.put((60, 1))
    with start(windowed(drive, lines, cut=cut, idle="1 h"), drive.config()) as running:
        running.wait_clock(59_000, WAIT)
        wait_until(lambda: 20 in counted(drive), running)
    assert counted(drive) == {0: 2, 20: 1}

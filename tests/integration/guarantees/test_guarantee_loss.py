"""Files of channels are damaged while they are read: the messages are made again, and the output is right."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from damage import Damager, Harm, channel_of, harm_entry, harm_segment
from harness import Harness, at, ms

from drivetrain import Application, agg, sources, windows
from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS
from drivetrain.core.job.run_progress import ProgressEvent, RunOutcome
from drivetrain.runtime.channel.loss_record import loss_record
from drivetrain.spark.repair.rerun_batch import LostForGoodError
from drivetrain.spark.session.offset_log import batch_numbers, committed, entries_after
from nightly_run import is_nightly

SECOND = 1000
NIGHTLY = is_nightly()
ROWS, PARTS = (3_000, 15) if NIGHTLY else (1_600, 8)
START_MS = 1_704_067_200_000
"""When the generator begins."""


def write_input(directory: Path, count: int, parts: int) -> list[tuple[Any, str, int]]:
    """Messages up to 20 s out of order, in Parquet files; returns them."""
    draw = random.Random(3)
    known = sorted(
        (ts + draw.randrange(20 * SECOND), ts, i)
        for i in range(count)
        for ts in [draw.randrange(600 * SECOND)]
    )
    data = [(at(ts), "abcd"[i % 4], i) for _, ts, i in known]
    directory.mkdir()
    schema = pa.schema([("ts", pa.timestamp("us", "UTC")), ("key", pa.string()), ("n", pa.int64())])
    size = -(-count // parts)
    for part in range(parts):
        columns = list(zip(*data[part * size : (part + 1) * size], strict=True))
        arrays = [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)]
        pq.write_table(pa.table(arrays, schema), directory / f"{part:02}.parquet")
    return data


def per_window(data: list[tuple[Any, str, int]], length_ms: int) -> Counter[Any]:
    groups: dict[tuple[str, int], list[int]] = {}
    for moment, key, n in data:
        groups.setdefault((key, ms(moment) // length_ms * length_ms), []).append(n)
    return Counter((k, w, len(ns), sum(ns)) for (k, w), ns in groups.items())


def found_windows(rows: list[dict[str, Any]]) -> Counter[Any]:
    return Counter((r["key"], ms(r["window_start"]), r["n"], r["total"]) for r in rows)


def chained(drive: Harness, *, is_long: bool = True) -> Application:
    """Source, a cut, windows of 10 s, a cut, windows of 1 min: a stateless and a stateful producer.

    With `is_long` False it ends with the short windows.
    """
    app = Application("lossy")
    stream = app.read(sources.parquet(drive.directory / "in")).event_time("ts", max_disorder="20 s")
    events = stream.filter("n >= 0", name="all").cut()
    short = (
        events.group_by("key")
        .window(windows.tumbling("10 s"))
        .aggregate(step="short", n=agg.count(), total=agg.sum("n"))
    )
    drive.sink(short, "short")
    if not is_long:
        return app
    long = short.group_by("key").window(windows.tumbling("1 min"))
    drive.sink(long.aggregate(step="long", n=agg.sum("n"), total=agg.sum("total")), "long")
    return app


def check_chained(drive: Harness, data: list[tuple[Any, str, int]]) -> None:
    assert found_windows(drive.rows("short")) == per_window(data, 10 * SECOND)
    assert found_windows(drive.rows("long")) == per_window(data, 60 * SECOND)


@pytest.mark.nightly("simulated by test_repair_under_kills")
def test_segments_that_are_damaged_while_they_are_read_are_made_again(drive: Harness) -> None:
    """Deleted and flipped segments and a cut entry are `test_two_executors`' as well."""
    data = write_input(drive.directory / "in", ROWS, PARTS)
    harms: list[Harm] = [harm_segment("cut"), harm_entry("deleted")]
    if NIGHTLY:
        harms += [harm_segment("deleted"), harm_segment("flipped"), harm_entry("cut")]
    count = len(harms)
    damager = Damager(drive.directory / "state", {"all--short": harms})
    result = drive.run(chained(drive), listener=damager, run__max_batch_bytes="4 KiB")
    assert result.outcome is RunOutcome.FINISHED
    check_chained(drive, data)
    record = loss_record(channel_of(drive.directory / "state", "all--short"))
    assert (record.losses, record.replays, record.open) == (count, count, ())
    assert [(c.losses, c.replays) for c in damager.channels["short"]] == [(count, count)]
    assert any("repaired" in text for text in damager.notices)


class StopWhenWritten:
    """Asks to stop as soon as the producer of a channel has ended and some of its entries are unread."""

    def __init__(self, state: Path, channel: str, unread: int) -> None:
        self._state, self._channel, self._unread = state, channel, unread

    def on_event(self, event: ProgressEvent) -> None:
        """It looks at the channel itself."""

    def stop_requested(self) -> bool:
        """Whether it is so now."""
        store = channel_of(self._state, self._channel)
        last = store.last()
        if last is None or last.clock_ms < FINAL_CLOCK_MS:
            return False
        assert store.length() - max(store.positions().values(), default=0) >= self._unread
        return True


def test_what_cannot_be_made_again_is_an_error_or_left_out_by_at_most_once(drive: Harness) -> None:
    data = write_input(drive.directory / "in", ROWS, PARTS)
    state = drive.directory / "state"
    keys = {"run__max_batch_bytes": "4 KiB"}
    stopped = drive.run(
        chained(drive, is_long=False), listener=StopWhenWritten(state, "all--short", 3), **keys
    )
    assert stopped.outcome is RunOutcome.STOPPED
    store = channel_of(state, "all--short")
    number = next(e.number for e in reversed(store.entries(store.start())) if e.segments)
    lost = store.entry(number).rows
    assert harm_segment("flipped")(store, number)
    for file in sorted((drive.directory / "in").iterdir()):
        table = pq.read_table(file)
        pq.write_table(table.slice(1), file)  # not what was read then
    wanted = rf"(?s)all--short, entry {number}.*{lost} messages.*file changed"
    with pytest.raises(LostForGoodError, match=wanted):
        drive.run(chained(drive, is_long=False), **keys)
    result = drive.run(chained(drive, is_long=False), **keys, run__delivery="at most once")
    assert result.outcome is RunOutcome.FINISHED
    record = loss_record(channel_of(state, "all--short"))
    assert (record.skipped_entries, record.skipped_messages, record.open) == (1, lost, ())
    found = found_windows(drive.rows("short"))
    assert sum(n for _, _, n, _ in found.elements()) == len(data) - lost


KILLED = """
from drivetrain import Application, agg, sinks, sources, windows
app = Application("killed")
out = app.setting("output")
def kept(message) -> bool:
    return message.id % 10 != 3
made = app.read(sources.generate(rows=9_000, every="50 ms", columns={"key": "id % 5"}), name="made")
events = made.filter(kept, name="kept").cut()
short = events.group_by("key").window(windows.tumbling("10 s"))
short = short.aggregate(step="short", n=agg.count(), total=agg.sum("id"))
short.sink(sinks.parquet(out + "/short"))
long = short.group_by("key").window(windows.tumbling("1 min"))
long.aggregate(step="long", n=agg.sum("n"), total=agg.sum("total")).sink(sinks.parquet(out + "/long"))
"""


class Run:
    """`drivetrain run` of the application above, in a process group of its own."""

    def __init__(self, directory: Path) -> None:
        line = [
            sys.executable, "-m", "drivetrain.cli", "run", str(directory / "app.py"),
            "--set", f"output={directory / 'out'}", "--set", "run.max-batch-rows=500",
            "--set", "run.max-batch-bytes=1 KiB",  # an entry at a time: the subscriber lags
            "--set", "spark.driver-memory=1 GiB", "--set", "spark.master=local[2]",
            "--state-dir", str(directory / "state"),
        ]  # fmt: skip
        self._process = subprocess.Popen(
            line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
        )

    def kill_when(self, condition: Callable[[], bool], timeout_s: float = 240) -> None:
        """SIGKILL it all at the moment when the condition holds; fails when it ends before."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise AssertionError(self._process.communicate()[0].decode())
            time.sleep(0.01)
        self.kill()

    def kill(self) -> None:
        """SIGKILL all its processes."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def wait_finished(self, timeout_s: float = 400) -> str:
        """What it printed."""
        try:
            output = self._process.communicate(timeout=timeout_s)[0].decode()
        finally:
            self.kill()
        assert self._process.returncode == 0, output
        return output


def checkpoint(state: Path, fragment: str) -> Path:
    (home,) = [d for d in state.iterdir() if d.is_dir()]
    return home / "fragments" / fragment / "checkpoint"


def read_last(state: Path) -> tuple[int, int] | None:
    """The entry of `short` that the last committed batch of `long` read last, and one that it was made of.

    None when that batch read nothing, when what it read came of time alone, or when another batch is planned.
    """
    if not state.is_dir() or not any(state.iterdir()):
        return None
    last = committed(checkpoint(state, "long"))
    if max(batch_numbers(checkpoint(state, "long") / "offsets"), default=last) > last:
        return None  # without the commit of the one before, Spark would run only that
    read = _read_by(state, "long", last, "short--long")
    if not read:
        return None
    entry = channel_of(state, "short--long").entry(read[-1])
    made_of = _read_by(state, "short", entry.batch_id, "kept--short")
    return (entry.number, made_of[0]) if entry.segments and made_of else None


def _read_by(state: Path, fragment: str, batch: int, channel: str) -> range:
    own = checkpoint(state, fragment)
    starts, ends = (entries_after(own, number, (channel,)) for number in (batch - 1, batch))
    return range(starts.get(channel, 0), ends.get(channel, 0))


def have_it_read_again(state: Path, entry: int, made_of: int) -> None:
    """Damage what `long` has read, and what `short` made it of, and have `long` read it again.

    Without its commit a batch runs again, as after a crash between its end and the commit.
    """
    (checkpoint(state, "long") / "commits" / str(committed(checkpoint(state, "long")))).unlink()
    assert harm_segment("flipped")(channel_of(state, "short--long"), entry)
    assert harm_segment("deleted")(channel_of(state, "kept--short"), made_of)


@pytest.mark.nightly("three starts of Spark")
@pytest.mark.timeout(1500)
def test_damage_found_after_a_kill_is_repaired_though_the_repair_is_killed_too(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(KILLED)
    state = tmp_path / "state"

    def unread() -> list[int]:
        if not state.is_dir() or not any(state.iterdir()):
            return []
        store = channel_of(state, "kept--short")
        read = max(store.positions().values(), default=0)
        return [number for number in store.numbers() if number > read]

    again = None
    while again is None:  # a batch may have been planned in the last milliseconds before the kill
        Run(tmp_path).kill_when(lambda: len(unread()) >= 7 and read_last(state) is not None)
        again = read_last(state)
    store = channel_of(state, "kept--short")
    numbers = unread()
    have_it_read_again(state, *again)
    harms = [harm_segment("deleted"), harm_segment("flipped"), harm_entry("deleted"), harm_segment("cut")]
    for number, harm in zip(numbers[1:], harms, strict=False):
        assert harm(store, number)
    assert harm_entry("cut")(store, numbers[-1])
    Run(tmp_path).kill_when(lambda: any(state.glob("*/fragments/*/again/*/checkpoint/offsets")))
    assert any(loss_record(channel_of(state, id)).open for id in ("kept--short", "short--long"))
    Run(tmp_path).wait_finished()
    data = [(at(START_MS + 50 * i), str(i % 5), i) for i in range(9_000) if i % 10 != 3]
    for name, length_ms in (("short", 10 * SECOND), ("long", 60 * SECOND)):
        files = sorted(map(str, (tmp_path / "out" / name).glob("*.parquet")))
        rows = ds.dataset(files).to_table().to_pylist()
        found = Counter((str(r["key"]), ms(r["window_start"]), r["n"], r["total"]) for r in rows)
        assert found == per_window(data, length_ms)
    record = loss_record(channel_of(state, "kept--short"))
    assert (record.losses, record.replays, record.open) == (6, 6, ())
    record = loss_record(channel_of(state, "short--long"))
    assert (record.losses, record.replays, record.open) == (1, 1, ()), f"entry {again[0]}"

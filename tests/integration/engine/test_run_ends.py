"""Every bounded run comes to its end: without messages, with event times in a row, and after any crash."""

from __future__ import annotations

import json
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from harness import Harness, at

from drivetrain import Application, Task, TaskContext, agg, partitioners, sources, start, windows
from drivetrain.api.stream import Stream
from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS
from drivetrain.crash_points import CrashPoint, armed

pytestmark = pytest.mark.timeout(300)
SCHEMA = "ts timestamp, key string, n bigint"
PARQUET = pa.schema([("ts", pa.timestamp("us", "UTC")), ("key", pa.string()), ("n", pa.int64())])
SECOND = 1000
Row = tuple[Any, str, int]


def put_json(path: Path, rows: list[Row]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"ts": ts.isoformat(), "key": key, "n": n}) for ts, key, n in rows]
    path.write_text("".join(f"{line}\n" for line in lines))


def put_parquet(path: Path, rows: list[Row]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = [list(column) for column in zip(*rows, strict=True)] or [[], [], []]
    pq.write_table(pa.table(dict(zip(PARQUET.names, columns, strict=True)), schema=PARQUET), path)


def counted(stream: Stream[Any], name: str, size: str = "10 s") -> Stream[Any]:
    return stream.group_by("key").window(windows.tumbling(size)).aggregate(step=name, total=agg.sum("n"))


@pytest.mark.nightly("random applications draw empty inputs")
def test_inputs_without_messages_end_in_front_of_whatever_keeps_state(drive: Harness) -> None:
    empty = drive.directory / "empty"
    empty.mkdir()
    (empty / "a.csv").touch()
    (drive.directory / "none.json").touch()
    (drive.directory / "header.csv").write_text("ts,key,n\n")
    put_parquet(drive.directory / "none.parquet", [])
    put_parquet(drive.directory / "some.parquet", [(at(SECOND), "a", 1)])
    app = Application("nothing")

    def read(kind: Any, name: str, **more: Any) -> Stream[Any]:
        return app.read(kind(drive.directory / name, schema=SCHEMA, **more)).event_time("ts")

    drive.sink(counted(read(sources.csv, "empty", header=True), "windows"), "windows")
    drive.sink(read(sources.json, "none.json").deduplicate("key", within="1 h", name="firsts"), "firsts")
    left = read(sources.csv, "header.csv", header=True)
    right = read(sources.parquet, "some.parquet").select("key", "ts", m="n")
    drive.sink(left.join(right.select("key", "m"), on="key", within="1 h", name="pairs"), "pairs")
    sums = read(sources.parquet, "none.parquet").group_by("key").window(windows.session("1 min"))
    drive.sink(sums.aggregate(step="sessions", n=agg.count()), "sessions")

    result = drive.run(app)

    assert result.late == 0
    for name in ("windows", "firsts", "pairs", "sessions"):
        assert drive.rows(name) == []


@pytest.mark.nightly("test_newest_bound and test_run_clock")
def test_of_event_times_in_a_row_the_last_one_counts(drive: Harness) -> None:
    # `n` counts backwards: by it the messages come in the opposite order, and none is late.
    rows = [(at(i * SECOND), "a", 60 - i) for i in range(60)]
    put_json(drive.directory / "in.json", rows)
    app = Application("again")
    read = app.read(sources.json(drive.directory / "in.json", schema=SCHEMA, event_time="ts"))
    backwards = read.select(key="key", n="n", at="n * 1000", ts="ts")
    drive.sink(counted(backwards.event_time("at", max_disorder="2 min"), "from_source"), "from_source")
    grouped = (
        read.group_by("key", "n").window(windows.tumbling("1 s")).aggregate(step="single", ts=agg.max("ts"))
    )
    later = grouped.select(key="key", n="n", at="n * 1000")
    drive.sink(counted(later.event_time("at", max_disorder="2 min"), "from_channel"), "from_channel")
    # Here the event time is assigned in a fragment of its own that keeps no state.
    apart = later.cut().event_time("at", max_disorder="2 min").cut()
    drive.sink(counted(apart, "from_cut"), "from_cut")
    drive.sink(read.window(windows.session("2 s")).aggregate(step="keyless", n=agg.count()), "keyless")

    result = drive.run(app)

    expected = [sum(n for n in range(1, 61) if n // 10 == ten) for ten in range(7)]
    for name in ("from_source", "from_channel", "from_cut"):
        assert [r["total"] for r in sorted(drive.rows(name), key=lambda r: r["window_start"])] == expected
    assert [r["n"] for r in drive.rows("keyless")] == [60]
    assert result.late == 0


def joined(drive: Harness) -> Application:
    """A join that has all of one input long before it has all of the other, and a window of one input."""
    app = Application("killed")
    base = drive.directory / "in"
    early = app.read(sources.json(base / "early.json", schema=SCHEMA)).event_time("ts")
    late = app.read(sources.parquet(base / "late")).event_time("ts")
    pairs = early.join(late.select("key", m="n"), on="key", within="1 s", name="pairs")
    whole = pairs.group_by("key").window(windows.session("5 s")).aggregate(step="sessions", n=agg.count())
    drive.sink(whole, "sessions")
    drive.sink(
        counted(app.read(sources.json(base / "early.json", schema=SCHEMA)).event_time("ts"), "one"), "one"
    )
    other = app.read(sources.parquet(base / "late"))
    drive.sink(counted(other.event_time("ts"), "two", "30 s"), "two")
    return app


def forget_batches_after(drive: Harness, fragment: str, last: int) -> None:
    """What a SIGKILL leaves of Spark's logs when the batch after `last` has not begun."""
    (checkpoint,) = drive.directory.glob(f"state/*/fragments/{fragment}/checkpoint")
    for log in ("offsets", "commits"):
        for file in (checkpoint / log).iterdir():
            number = file.name.removeprefix(".").removesuffix(".crc")
            if number.isdigit() and int(number) > last:
                file.unlink()


@pytest.mark.nightly("test_attempts_under_faults and test_shells_under_kills kill there")
@pytest.mark.parametrize("point", ["an input has ended", "all have, and the state is not told"])
def test_a_run_that_is_killed_after_an_input_has_ended_goes_on_to_its_end(drive: Harness, point: str) -> None:
    rows = [(at(i * SECOND), "ab"[i % 2], i) for i in range(60)]
    put_json(drive.directory / "in" / "early.json", rows)
    for part in range(4):
        put_parquet(drive.directory / "in" / "late" / f"{part}.parquet", rows[part * 15 : part * 15 + 15])
    limit = "1200 B"  # a Parquet file a batch
    drive.run(joined(drive), run__max_batch_bytes=limit)
    expected = {name: drive.rows(name) for name in ("sessions", "one", "two")}
    assert [r["n"] for r in expected["sessions"]] == [30, 30]

    for fragment in ("pairs", "one", "two"):
        (commits,) = drive.directory.glob(f"state/*/fragments/{fragment}/checkpoint/commits")
        newest = max(int(file.name) for file in commits.iterdir() if file.name.isdigit())
        assert newest >= 3, fragment
        forget_batches_after(drive, fragment, newest - 1 if point.startswith("all") else newest - 2)
    drive.run(joined(drive), run__max_batch_bytes=limit)

    assert {name: drive.rows(name) for name in expected} == expected


def test_lines_of_a_socket_are_read_until_its_server_closes_it(drive: Harness) -> None:
    lines = [f"line {n}" for n in range(500)]
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall("".join(f"{line}\n" for line in lines).encode())

        threading.Thread(target=serve, daemon=True).start()
        app = Application("lines")
        drive.sink(app.read(sources.socket("127.0.0.1", server.getsockname()[1])))
        with start(app, drive.config()) as running:
            while len(drive.rows()) < len(lines):
                assert running.is_running
                time.sleep(0.2)
    assert [row["value"] for row in drive.rows()] == sorted(lines, key=lambda line: repr({"value": line}))


class Summed(Task[Any, tuple[str, int]]):
    """Emits the sum of each key when the input ends."""

    stateful = True
    output = "key string, n bigint"

    def on_start(self, context: TaskContext) -> None:
        self.sums: dict[str, int] = {}

    def on_next(self, message: Any) -> None:
        self.sums[message.key] = self.sums.get(message.key, 0) + message.n

    def on_stop(self) -> list[tuple[str, int]]:
        return sorted(self.sums.items())


class Passed(Task[Any, tuple[str, int]]):
    """Passes messages on, and emits one more when the input ends."""

    output = "key string, n bigint"

    def on_next(self, message: Any) -> list[tuple[str, int]]:
        return [(message.key, message.n)]

    def on_stop(self) -> list[tuple[str, int]]:
        return [("end", 0)]


@pytest.mark.nightly("test_attempts_under_faults kills there")
def test_a_run_that_dies_when_a_channel_has_the_final_batch_goes_on_to_its_end(drive: Harness) -> None:
    def final() -> Application:
        app = Application("final")
        read = app.read(sources.items([("ab"[i % 2], i) for i in range(20)], schema="key string, n bigint"))
        passed = read.process(Summed, partitioner=partitioners.hash("key")).process(Passed, parallelism=1)
        drive.sink(passed.cut())
        return app

    def die_at_the_end(point: CrashPoint) -> None:
        if point is CrashPoint.AFTER_ENTRY:
            entries = [*drive.directory.glob("state/*/channels/*/log/*.json")]
            if any(json.loads(entry.read_text())["clock_ms"] == FINAL_CLOCK_MS for entry in entries):
                raise DiedError

    with armed(die_at_the_end), pytest.raises(DiedError):
        drive.run(final())
    drive.run(final())
    assert [(row["key"], row["n"]) for row in drive.rows()] == [("a", 90), ("b", 100), ("end", 0)]


class DiedError(RuntimeError):
    """Ends a run at a crash point."""

"""Persistent Tasks on Spark: states by key, as of any step of time, beside loops over the same messages."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from harness import Harness, at, events
from typer.testing import CliRunner

from drivetrain import Application, Monoid, PersistentTask, State, agg, sinks, sources, start, state, windows
from drivetrain.cli.main import app as cli
from drivetrain.code.application_file import load_application
from drivetrain.console.planning.requests import ReadStates
from drivetrain.console.state_reading import StateReading
from drivetrain.core.state.paged_state import bucket_of
from drivetrain.core.state.state_keys import encoded_key
from drivetrain.crash_points import CrashPoint, armed
from drivetrain.errors import OperatorError, UserError
from drivetrain.runtime.checkpoints.transaction_file import CheckpointFiles
from drivetrain.runtime.durable_file import DurableFile
from drivetrain.runtime.find_application import directory_of
from drivetrain.spark.state.state_query import States
from nightly_run import is_nightly

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KILLS = 3 if is_nightly() else 1
BATCH = "1 KiB" if is_nightly() else "4 KiB"
"""So that there are always batches left to kill."""
pytestmark = pytest.mark.timeout(600)
MINUTE = 60_000
SCHEMA = "ts timestamp, key string, n bigint"
DISORDER_MS = 90_000


class Longest(Monoid[Any, tuple[int, str]]):
    """The largest n with its key, as a tuple of the user's own."""

    def zero(self) -> tuple[int, str]:
        return (-1, "")

    def add(self, state: tuple[int, str], message: Any) -> tuple[int, str]:
        return max(state, (message.n, message.key))

    def plus(self, left: tuple[int, str], right: tuple[int, str]) -> tuple[int, str]:
        return max(left, right)

    def result(self, state: tuple[int, str]) -> str:
        return f"{state[1]}{state[0]}"


class Text:
    def encode(self, state: tuple[int, str]) -> bytes:
        return f"{state[0]}:{state[1]}".encode()

    def decode(self, encoded: bytes) -> tuple[int, str]:
        number, _, key = encoded.decode().partition(":")
        return int(number), key


class Sums(PersistentTask[Any, tuple[str, int]]):
    key = "key"
    state = State(agg.sum("n"), as_of="1 min")

    def on_change(self, key: str, total: int) -> Iterable[tuple[str, int]]:
        return [(key, total)]


class Records(PersistentTask[Any, Any]):
    state = State(Longest(), codec=Text(), as_of="2 min")

    def key(self, message: Any) -> tuple[str, int]:
        return message.key, message.n % 3


class Hourly(PersistentTask[Any, tuple[str, int]]):
    key = "key"
    state = State(agg.count(), window=windows.sliding("10 min", "5 min"), as_of="1 min")

    def on_window(self, key: str, start_ms: int, end_ms: int, count: int) -> Iterable[tuple[str, int]]:
        return [(f"{key} {start_ms}-{end_ms}", count)]


class Closing(PersistentTask[Any, str]):
    key = "key"
    state = State(agg.count())

    def on_stop(self) -> Iterable[str]:
        return ["closed"]


def messages(count: int, seed: int) -> list[tuple[int, str, int]]:
    """Timestamp in ms, key and number, out of order by less than the disorder, in the order of arrival."""
    draw = random.Random(seed)
    known = []
    for i in range(count):
        ts = draw.randrange(30 * MINUTE)
        known.append((ts + draw.randrange(DISORDER_MS), ts, f"key-{draw.randrange(40)}", i))
    return [(ts, key, i) for _, ts, key, i in sorted(known)]


def write_parts(directory: Path, data: list[tuple[int, str, int]], parts: int, first: int = 0) -> None:
    directory.mkdir(exist_ok=True)
    size = -(-len(data) // parts)
    for part in range(parts):
        ts, keys, numbers = zip(*data[part * size : (part + 1) * size], strict=True)
        columns = [pa.array(map(at, ts), pa.timestamp("us", "UTC")), pa.array(keys), pa.array(numbers)]
        table = pa.table(columns, names=["ts", "key", "n"])
        pq.write_table(table, directory / f".{first + part:03}")
        (directory / f".{first + part:03}").rename(directory / f"{first + part:03}.parquet")


def summed(data: list[tuple[int, str, int]], before_ms: int) -> dict[str, int]:
    found: dict[str, int] = defaultdict(int)
    for ts, key, n in data:
        if ts < before_ms:
            found[key] += n
    return found


def by_key(states: States, at_ms: int | str | None = None) -> dict[Any, Any]:
    return {s.key if s.window is None else (s.key, s.window): s.value for s in states.items(at_ms)}


@pytest.fixture(scope="module")
def finished(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Application, Harness, list[tuple[int, str, int]]]:
    """An application with four persistent Tasks that has run over files in many batches."""
    drive = Harness(tmp_path_factory.mktemp("persistent"))
    data = messages(1500, seed=3)
    write_parts(drive.out("in"), data, parts=4)
    app = Application("persistent")
    read = app.read(sources.parquet(drive.out("in"))).event_time("ts", max_disorder="90 s")
    drive.sink(read.process(Sums, name="sums"), "sums")
    read.process(Records, name="records").sink(sinks.none())
    drive.sink(read.process(Hourly, name="hourly"), "hourly")
    drive.sink(read.process(Closing, name="closing"), "closing")
    drive.run(app, run__max_batch_bytes="4 KiB")
    return app, drive, data


Finished = tuple[Application, Harness, list[tuple[int, str, int]]]


@pytest.mark.nightly("test_states_survive_a_death_and_another_number_of_partitions")
def test_the_live_value_is_that_of_all_messages(finished: Finished) -> None:
    app, drive, data = finished
    states = state(app, "sums", drive.config())
    exact = summed(data, 10**12)
    assert by_key(states) == exact
    assert states.get("key-7") == exact["key-7"]
    assert states.get("nobody") is None


@pytest.mark.nightly("random applications draw persistent Tasks")
def test_a_result_goes_on_for_each_key_that_a_batch_changed(finished: Finished) -> None:
    _, drive, data = finished
    newest: dict[str, int] = {}
    for row in drive.rows("sums"):
        newest[row["key"]] = max(newest.get(row["key"], 0), row["value"])
    assert newest == summed(data, 10**12)


@pytest.mark.nightly(
    "test_persistent_buckets; random applications keep states; other tests of this module use Spark"
)
def test_a_task_that_is_called_at_the_end_only_is_called_once_for_each_bucket(finished: Finished) -> None:
    _, drive, data = finished
    buckets = {bucket_of(encoded_key(key)) for _, key, _ in data}
    assert [row["value"] for row in drive.rows("closing")] == ["closed"] * len(buckets)


@pytest.mark.nightly("test_two_state, beside a naive model")
def test_the_state_as_of_any_step_is_one_pass_over_the_messages_older_than_it(finished: Finished) -> None:
    app, drive, data = finished
    states = state(app, "sums", drive.config())
    for minute in (0, 1, *random.Random(1).sample(range(2, 30), 5), 31):
        assert by_key(states, minute * MINUTE) == summed(data, minute * MINUTE), minute
    exact = summed(data, 12 * MINUTE)
    assert states.get("key-3", at=at(12 * MINUTE)) == exact["key-3"]
    assert states.get("key-3", at="1970-01-01T00:12:00") == exact["key-3"]


def test_states_of_a_monoid_and_a_codec_of_ones_own_are_exact_as_well(finished: Finished) -> None:
    app, drive, data = finished
    states = state(app, "records", drive.config())
    for before in (8 * MINUTE, 22 * MINUTE, None):
        exact: dict[tuple[str, int], tuple[int, str]] = {}
        for ts, key, n in data:
            if before is None or ts < before:
                exact[key, n % 3] = max(exact.get((key, n % 3), (-1, "")), (n, key))
        assert by_key(states, before) == {k: f"{key}{n}" for k, (n, key) in exact.items()}


def test_windows_end_once_and_the_open_ones_are_known_as_of_any_step(finished: Finished) -> None:
    app, drive, data = finished
    ended: dict[str, int] = defaultdict(int)
    for ts, key, _ in data:
        for begin in range(ts // (5 * MINUTE) * 5 * MINUTE, ts - 10 * MINUTE, -5 * MINUTE):
            ended[f"{key} {begin}-{begin + 10 * MINUTE}"] += 1
    assert {row["key"]: row["value"] for row in drive.rows("hourly")} == ended
    states = state(app, "hourly", drive.config())
    time_ms = 13 * MINUTE
    exact: dict[Any, int] = defaultdict(int)
    for ts, key, _ in data:
        for begin in (5 * MINUTE, 10 * MINUTE):
            if begin <= ts < min(time_ms, begin + 10 * MINUTE):
                exact[key, (begin, begin + 10 * MINUTE)] += 1
    assert by_key(states, time_ms) == exact
    assert states.get("key-5", time_ms) == {w: n for (key, w), n in exact.items() if key == "key-5"}


def test_a_time_that_cannot_be_told_exactly_is_refused_with_the_nearest_ones(finished: Finished) -> None:
    app, drive, _ = finished
    states = state(app, "sums", drive.config())
    with pytest.raises(UserError, match=r"00:03:00.* or .*00:04:00"):
        states.items(3 * MINUTE + 1)
    with pytest.raises(UserError, match="cannot be queried"):
        states.items("9999-12-31T12:00")
    with pytest.raises(UserError, match="not a time"):
        states.items(10**15)
    with pytest.raises(UserError, match="one of closing, hourly, records, sums"):
        state(app, "nothing", drive.config())
    with pytest.raises(UserError, match="no application 'other'"):
        state("other", "sums", drive.config())
    assert state("persistent", "sums", drive.config()).get("key-1") is not None


@pytest.mark.nightly("test_state_query, in one process")
def test_the_console_reads_the_same_states_in_a_process_with_limits(
    finished: Finished, tmp_path: Path
) -> None:
    app, drive, data = finished
    home = directory_of(app, drive.config()).path
    asked = ReadStates(
        app_id=home.name,
        state_dir=str(home.parent),
        writers="owner",
        processor="sums",
        key=None,
        at="1970-01-01T00:12",
        limit=1_000,
        longest=1_000,
    )
    reading = StateReading(tmp_path, 300_000)
    known = asyncio.run(reading.read(asked))
    exact = summed(data, 12 * MINUTE)
    assert {json.loads(one.key): json.loads(one.value) for one in known.states} == exact
    assert (known.count, known.at_ms, known.step_ms) == (len(exact), 12 * MINUTE, MINUTE)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.nightly("other tests of this module reach what it reaches")
def test_a_state_that_is_declared_in_another_way_does_not_take_over_what_is_kept(drive: Harness) -> None:
    class Counts(PersistentTask[Any, Any]):
        key = "key"
        state = State(agg.count())

    class Others(Counts):
        state = State(agg.sum("n"))

    def application(task: type[PersistentTask[Any, Any]]) -> Application:
        app = Application("changed")
        read = events(app, [(at(1), "a", 1)], SCHEMA)
        read.process(task, name="kept").sink(sinks.none())
        return app

    drive.run(application(Counts))
    assert state(application(Counts), "kept", drive.config()).get("a") == 1
    with pytest.raises(UserError, match="graph has changed"):
        run_again(drive, application(Others))


class Cents(Monoid[Any, list[int]]):
    """A sum of n in hundredths."""

    def zero(self) -> list[int]:
        return [0]

    def add(self, state: list[int], message: Any) -> list[int]:
        return [state[0] + 100 * message.n]

    def plus(self, left: list[int], right: list[int]) -> list[int]:
        return [left[0] + right[0]]

    def result(self, state: list[int]) -> int:
        return state[0] // 100


class LaterSums(Sums):
    """The same sums, kept in another way."""

    version = 2
    state = State(Cents(), as_of="1 min")
    fails = False

    @classmethod
    def migrate(cls, version: int, state: int) -> list[int]:
        assert version == 1
        if cls.fails:
            raise ValueError("not these")
        return [100 * state]


class Unmigrated(LaterSums):
    fails = True


@pytest.mark.nightly(
    "test_persistent_buckets; random applications keep states; other tests of this module use Spark"
)
def test_another_version_of_a_task_continues_with_the_states_of_the_earlier_one(drive: Harness) -> None:
    data = messages(600, seed=5)
    write_parts(drive.out("in"), data, parts=6)

    def application(task: type[PersistentTask[Any, Any]]) -> Application:
        app = Application("later")
        read = app.read(sources.parquet(drive.out("in"))).event_time("ts", max_disorder="90 s")
        drive.sink(read.process(task, name="sums"))
        return app

    def dies(point: CrashPoint, task: type[PersistentTask[Any, Any]], batch: int) -> None:
        left = [batch]

        def die(at_point: CrashPoint) -> None:
            left[0] -= at_point is point
            if left[0] == 0:
                raise RuntimeError("died")

        with armed(die), pytest.raises(Exception, match="died"):
            drive.run(application(task), run__max_batch_bytes="1 KiB")

    dies(CrashPoint.AFTER_SINK, Sums, 4)
    before = by_key(state(application(Sums), "sums", drive.config()))
    with pytest.raises(UserError, match=r"cannot be migrated from version 1(.|\n)*ValueError: not these"):
        drive.run(application(Unmigrated))
    assert by_key(state(application(Sums), "sums", drive.config())) == before != {}
    dies(CrashPoint.BEFORE_COMMIT, LaterSums, 2)
    with pytest.raises(UserError, match="states are of a newer version"):
        drive.run(application(Sums))
    drive.run(application(LaterSums), run__max_batch_bytes="1 KiB")
    states = state(application(LaterSums), "sums", drive.config())
    for minute in (1, 5, 12, 20, 29):  # the first ones were kept by the earlier version
        assert by_key(states, minute * MINUTE) == summed(data, minute * MINUTE), minute
    assert by_key(states) == summed(data, 10**12)


def run_again(drive: Harness, app: Application) -> None:
    for file in (drive.directory / "state").glob("*/application.json"):
        notes = DurableFile(file, "notes", if_damaged="", if_full="")
        known = json.loads(notes.read() or b"")
        known.pop("finished")
        notes.write(json.dumps(known).encode())
    drive.run(app)


@pytest.mark.nightly("other tests of this module reach what it reaches")
def test_a_task_that_looks_at_every_message_sees_the_state_of_its_key(drive: Harness) -> None:
    class Running(PersistentTask[Any, tuple[str, float]]):
        key = ("key",)
        state = State(agg.mean("n"))

        def on_next(self, message: Any) -> Iterable[tuple[str, float]]:
            before = self.state.get()
            self.state.update(message)
            after = self.state.get()
            assert before is None or after is not None
            return [(f"{message.key}{message.n}", after)]

    rows = [(at(i), "ab"[i % 2], i) for i in range(10)]
    app = Application("running")
    drive.sink(events(app, rows, SCHEMA).process(Running, name="means"))
    drive.run(app)
    exact = {f"{'ab'[i % 2]}{i}": i / 2 if i % 2 == 0 else (i + 1) / 2 for i in range(10)}
    assert {row["key"]: row["value"] for row in drive.rows()} == exact
    assert state(app, "means", drive.config()).get(("a",)) is None
    assert by_key(state(app, "means", drive.config())) == {"a": 4.0, "b": 5.0}


def test_an_error_in_a_hook_names_the_message_and_the_line(drive: Harness) -> None:
    class Fails(PersistentTask[Any, Any]):
        key = "key"
        state = State(agg.count())

        def on_next(self, message: Any) -> list[int]:
            self.state.update(message)
            return [1 // (3 - message.n)]

    app = Application("fails")
    rows = [(at(i), "a", i) for i in range(5)]
    events(app, rows, SCHEMA).process(Fails, name="fails").sink(sinks.none())
    with pytest.raises(OperatorError, match="ZeroDivisionError"):
        drive.run(app)


def test_keys_of_any_type_are_the_same_in_native_aggregations_monoids_and_tasks(drive: Harness) -> None:
    nan, nothing = float("nan"), None
    places = [
        (nan, [1.0]),
        (-nan, [1.0]),
        (0.0, [nan]),
        (-0.0, [nan]),
        (nothing, nothing),
        (nothing, nothing),
    ]
    rows = [(at(i), x, xs, {"x": x, "of": xs}, {"b": i % 2, "a": 1}) for i, (x, xs) in enumerate(places)]
    columns = ("x", "xs", "place", "names")
    schema = "ts timestamp, x double, xs array<double>, place struct<x:double,of:array<double>>, "
    schema += "names map<string,bigint>"

    class Count(Monoid[Any, int]):
        def zero(self) -> int:
            return 0

        def add(self, state: int, message: Any) -> int:
            return state + 1

        def plus(self, left: int, right: int) -> int:
            return left + right

        def result(self, state: int) -> int:
            return state

    class Counts(PersistentTask[Any, Any]):
        key = columns
        state = State(agg.count())
        output = schema.removeprefix("ts timestamp, ") + ", n bigint"

        def on_change(self, key: Any, n: int) -> list[Any]:
            return [(*key, n)]

    class Own(PersistentTask[Any, Any]):
        state = State(Count())

        def key(self, message: Any) -> Any:
            return message.place

    app = Application("keys")
    # The same entries in another order are the same map.
    read = events(app, rows, schema).with_columns(
        names="CASE WHEN xs IS NULL THEN map('b', 1L, 'a', 1L) ELSE map('a', 1L, 'b', 0L) END"
    )
    drive.sink(read.group_by(*columns).aggregate(step="native", n=agg.count()), "native")
    drive.sink(read.group_by(*columns).aggregate(step="monoid", n=Count()), "monoid")
    drive.sink(read.process(Counts, name="counts"), "counts")
    read.process(Own, name="own").sink(sinks.none())
    drive.run(app)

    def told(row: dict[str, Any]) -> str:
        return repr({**row, "names": sorted(row["names"])})

    native = sorted(map(told, drive.rows("native")))
    assert [row["n"] for row in drive.rows("native")] == [2, 2, 2]
    assert sorted(map(told, drive.rows("monoid"))) == native
    newest = {told({**row, "n": 0}): row for row in drive.rows("counts")}
    assert sorted(map(told, newest.values())) == native
    states = state(app, "own", drive.config())
    assert states.get({"x": nan, "of": [1.0]}) == states.get({"of": (nan,), "x": 0.0}) == 2
    assert (
        state(app, "counts", drive.config()).get((nan, [1.0], {"x": nan, "of": [1.0]}, {"b": 0, "a": 1})) == 2
    )


@pytest.mark.nightly(
    "test_persistent_buckets; random applications keep states; other tests of this module use Spark"
)
def test_aggregates_and_folds_of_spark_can_be_asked_for_what_they_hold_now(drive: Harness) -> None:
    data = messages(300, seed=8)
    app = Application("aggregates")
    read = events(app, [(at(ts), key, n) for ts, key, n in data], SCHEMA, disorder="90 s")
    figures = read.group_by("key").window(windows.everything(emission="accumulating"))
    figures.aggregate(step="figures", n=agg.count(), mean=agg.mean("n"), top=agg.max("n")).sink(sinks.none())
    biggest = read.group_by("key").window(windows.everything(emission="accumulating"))
    biggest.aggregate(step="biggest", value=Longest()).sink(sinks.none())
    drive.run(app)
    numbers: dict[str, list[int]] = defaultdict(list)
    for _, key, n in data:
        numbers[key].append(n)
    found = by_key(state(app, "figures", drive.config()))
    assert found == {
        k: {"n": len(ns), "mean": sum(ns) / len(ns), "top": max(ns)} for k, ns in numbers.items()
    }
    assert by_key(state(app, "biggest", drive.config())) == {k: f"{k}{max(ns)}" for k, ns in numbers.items()}
    with pytest.raises(UserError, match="only be queried for its current states"):
        state(app, "figures", drive.config()).get("key-1", at=0)


@pytest.mark.nightly("test_two_state")
def test_pictures_go_on_for_keys_that_are_idle_and_a_running_application_answers(drive: Harness) -> None:
    data = messages(200, seed=5)
    early = [(ts, key, n) for ts, key, n in data if ts < 10 * MINUTE]
    write_parts(drive.out("in"), early, parts=1)
    app = Application("idle")
    read = app.read(sources.parquet(drive.out("in"), watch=True)).event_time("ts", max_disorder="90 s")
    read.process(Sums, name="sums").sink(sinks.none())
    with start(app, drive.config()) as running:
        running.wait_clock(8 * MINUTE, "400 s")
        late = [(25 * MINUTE, "another", 1), (28 * MINUTE, "another", 1)]
        write_parts(drive.out("in"), late, parts=1, first=1)
        running.wait_clock(26 * MINUTE, "400 s")
        states = running.state("sums")
        assert by_key(states, 26 * MINUTE) == summed(early + late, 26 * MINUTE)
        assert by_key(states, 15 * MINUTE) == summed(early, 15 * MINUTE)
        assert by_key(states, 6 * MINUTE) == summed(early, 6 * MINUTE)
        assert by_key(states) == summed(early + late, 10**12)


EXAMPLE = Path(__file__).parents[3] / "examples" / "sensor_state.py"


@pytest.mark.nightly(
    "test_persistent_buckets; random applications keep states; other tests of this module use Spark"
)
def test_the_example_counts_readings_and_averages_them_as_of_full_hours(drive: Harness) -> None:
    drive.out("in").mkdir()
    lines = [f"{at(minute * MINUTE).isoformat()},north,{minute % 7}" for minute in range(200)]
    (drive.out("in") / "readings.csv").write_text("at,sensor,celsius\n" + "\n".join(lines) + "\n")
    app = load_application(str(EXAMPLE), {"input": str(drive.out("in"))})
    drive.run(app)
    assert state(app, "counts", drive.config()).get("north", at=120 * MINUTE) == 120
    averages = state(app, "averages", drive.config()).get("north", at=120 * MINUTE)
    last = [minute % 7 for minute in range(65, 120)]
    assert averages[65 * MINUTE, 125 * MINUTE] == pytest.approx(sum(last) / len(last))


KILLED = """
from drivetrain import Application, PersistentTask, State, agg, sinks, sources

class Sums(PersistentTask):
    key = "key"
    state = State(agg.sum("n"), as_of="1 min", keep="1 min")

class Counts(PersistentTask):
    key = "key"
    state = State(agg.count(), as_of="2 min")

app = Application("killed")
read = app.read(sources.parquet(app.setting("input"))).event_time("ts", max_disorder="90 s")
read.process(Sums, name="sums").sink(sinks.none())
read.process(Counts, name="counts").sink(sinks.none())
"""


KILLED_KEYS = {
    "run__max_batch_bytes": BATCH,
    "checkpoint__mode": "on",
    "checkpoint__interval": "100 ms",
}


def command(*words: str) -> subprocess.Popen[bytes]:
    line = [sys.executable, "-m", "drivetrain.cli", *words]
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)


def recorded_ms(state_dir: Path) -> int | None:
    """The application time of the newest checkpoint."""
    for home in state_dir.glob("*"):
        known = CheckpointFiles(home).transaction()
        return None if known is None or known.record is None else known.record.as_of_ms
    return None


def check_as_of_checkpoint(drive: Harness, data: list[tuple[int, str, int]], since_ms: int) -> int:
    """What a killed application was recorded with is one pass over older messages, in all Tasks."""
    sums, counts = (state("killed", name, drive.config()) for name in ("sums", "counts"))
    as_of_ms = sums.checkpoint_ms()
    assert as_of_ms == counts.checkpoint_ms()
    assert as_of_ms % (2 * MINUTE) == 0
    assert as_of_ms >= since_ms
    assert by_key(sums, "checkpoint") == summed(data, as_of_ms)
    ones = [(ts, key, 1) for ts, key, _ in data]
    assert by_key(counts, "checkpoint") == by_key(counts, as_of_ms) == summed(ones, as_of_ms)
    return as_of_ms


@pytest.mark.nightly("test_states_survive_a_death_and_another_number_of_partitions, in one process")
def test_states_survive_kills_and_another_number_of_cores(drive: Harness) -> None:
    data, file = to_be_killed(drive)
    place = drive.directory / "state"
    draw = random.Random(2)
    as_of_ms = 0
    for attempt in range(KILLS):
        cores = 1 + attempt % 2
        keys = [f"spark.master=local[{cores}]", "spark.driver-memory=1 GiB", f"run.max-batch-bytes={BATCH}"]
        keys += ["checkpoint.mode=on", "checkpoint.interval=100 ms"]
        sets = [word for key in (f"input={drive.out('in')}", *keys) for word in ("--set", key)]
        process = command("run", str(file), "--state-dir", str(place), *sets)
        goal = len(list(place.glob("*/fragments/sums/checkpoint/commits/[0-9]*"))) + draw.choice([2, 3])
        deadline = time.monotonic() + 400
        while process.poll() is None and time.monotonic() < deadline:
            has_time = (recorded_ms(place) or 0) > as_of_ms
            if len(list(place.glob("*/fragments/sums/checkpoint/commits/[0-9]*"))) >= goal and has_time:
                time.sleep(draw.random())  # not waiting for anything: a random moment to die at
                os.killpg(process.pid, signal.SIGKILL)
            time.sleep(0.02)
        process.communicate(timeout=400)
        assert process.returncode == -signal.SIGKILL
        as_of_ms = check_as_of_checkpoint(drive, data, as_of_ms)
    finish_and_check(drive, data, file, as_of_ms)


@pytest.mark.nightly(
    "test_persistent_buckets; random applications keep states; other tests of this module use Spark"
)
def test_states_survive_a_death_and_another_number_of_partitions(
    drive: Harness, capfd: pytest.CaptureFixture[str]
) -> None:
    data, file = to_be_killed(drive)
    place = drive.directory / "state"

    def die(point: CrashPoint) -> None:
        if point is CrashPoint.BEFORE_COMMIT and recorded_ms(place):
            raise RuntimeError("died")

    app = load_application(str(file), {"input": str(drive.out("in"))})
    with armed(die), pytest.raises(Exception, match="died"):
        drive.run(app, **KILLED_KEYS, spark__shuffle_partitions="1")
    as_of_ms = check_as_of_checkpoint(drive, data, 0)
    finish_and_check(drive, data, file, as_of_ms)
    line = ("state", "killed", "counts", "--key", "key-2", "--at", "1970-01-01T00:18", "--json")
    capfd.readouterr()
    said = CliRunner().invoke(cli, [*line, "--state-dir", str(place)])
    assert said.exit_code == 0, said.output
    (known,) = json.loads(capfd.readouterr().out)["states"]
    ones = [(ts, key, 1) for ts, key, _ in data]
    assert known == {"key": "key-2", "value": summed(ones, 18 * MINUTE)["key-2"]}


def to_be_killed(drive: Harness) -> tuple[list[tuple[int, str, int]], Path]:
    """The messages of an application that is to die, and its file."""
    data = messages(1500, seed=9)
    write_parts(drive.out("in"), data, parts=7)
    file = drive.directory / "killed.py"
    file.write_text(KILLED)
    return data, file


def finish_and_check(drive: Harness, data: list[tuple[int, str, int]], file: Path, as_of_ms: int) -> None:
    """Run it to its end, on the two cores of the session: its states are one pass over the messages."""
    drive.run(load_application(str(file), {"input": str(drive.out("in"))}), **KILLED_KEYS)
    check_as_of_checkpoint(drive, data, as_of_ms)
    states = state("killed", "counts", drive.config())
    ones = [(ts, key, 1) for ts, key, _ in data]
    for minute in (4, 12, 18, 24, 28, 40):
        assert by_key(states, minute * MINUTE) == summed(ones, minute * MINUTE), minute

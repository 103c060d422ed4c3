"""Keyed Tasks on Spark: in order and exact with disorder, in any batches, though the run dies."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from harness import Harness, at, ms

from drivetrain import (
    Application,
    KeyedTask,
    ListState,
    MapState,
    ValueState,
    sources,
    start,
    state,
    timestamp,
)
from drivetrain.crash_points import CrashPoint, armed
from drivetrain.errors import DrivetrainError, UserError
from drivetrain.runtime.checkpoints.savepoint_manifest import read_manifest
from drivetrain.spark.entry_points import savepoint

TTL, DELAY = 4_000, 3_000
Event = tuple[int, str, int]


def events(seed: int) -> list[Event]:
    """Time (ms), key and number, out of order by less than two seconds."""
    draw = random.Random(seed)
    made = [(draw.randrange(60_000), f"k{draw.randrange(6)}", n) for n in range(100, 180)]
    return sorted(made, key=lambda event: event[0] + draw.randrange(2_000))


class Recent(KeyedTask[Any, tuple[str, str, int, list[int], int]]):
    """What came in the last four seconds, and again three seconds after the last message."""

    key = "key"
    in_order = True
    output = "key string, why string, at_ms bigint, recent array<bigint>, kinds int"
    recent = ListState(int, ttl=f"{TTL} ms")
    kinds = MapState(str, int)
    until = ValueState(int)

    def on_next(self, event: Any) -> Iterator[tuple[str, str, int, list[int], int]]:
        self.recent.append(event.n)
        self.kinds[str(event.n % 3)] = event.n
        before = self.until.get()
        if before is not None:
            self.cancel_timer(before)
        self.until.set(event.ms + DELAY)
        self.set_timer(event.ms + DELAY)
        yield event.key, "next", event.ms, self.recent.get(), len(self.kinds)

    def on_timer(self, key: str, at_ms: int) -> Iterator[tuple[str, str, int, list[int], int]]:
        yield key, "timer", at_ms, self.recent.get(), len(self.kinds)


class RecentLater(Recent):
    """The same with other states: a timer is noted as text, and kinds are numbers."""

    version = 2
    fails = False
    recent = ListState(str, ttl=f"{TTL} ms")  # type: ignore[assignment]
    kinds = MapState(int, int)  # type: ignore[assignment]
    until = ValueState(str)  # type: ignore[assignment]

    @classmethod
    def migrate(cls, version: int, states: dict[str, Any]) -> dict[str, Any]:
        if cls.fails:
            raise ValueError("not these")
        recent = [str(n) for n in states.get("recent", ())]
        kinds = {int(kind): n for kind, n in states["kinds"].items()}
        return {"recent": recent, "kinds": kinds, "until": str(states["until"])}

    def on_next(self, event: Any) -> Iterator[tuple[str, str, int, list[int], int]]:
        self.recent.append(str(event.n))
        self.kinds[event.n % 3] = event.n
        before = self.until.get()
        if before is not None:
            self.cancel_timer(int(before))
        self.until.set(str(event.ms + DELAY))
        self.set_timer(event.ms + DELAY)
        yield event.key, "next", event.ms, list(map(int, self.recent)), len(self.kinds)

    def on_timer(self, key: str, at_ms: int) -> Iterator[tuple[str, str, int, list[int], int]]:
        yield key, "timer", at_ms, list(map(int, self.recent)), len(self.kinds)


class Unmigrated(RecentLater):
    fails = True


def wanted(made: list[Event]) -> list[tuple[Any, ...]]:
    """The same by a loop over sorted messages."""
    found: list[tuple[Any, ...]] = []
    for key in {key for _, key, _ in made}:
        mine = sorted((ms, n) for ms, k, n in made if k == key)
        times = [*[("next", ms, i + 1) for i, (ms, _) in enumerate(mine)]]
        times += [
            ("timer", ms + DELAY, i + 1)
            for i, (ms, _) in enumerate(mine)
            if i + 1 == len(mine) or mine[i + 1][0] >= ms + DELAY
        ]
        for why, now, count in times:
            recent = [n for ms, n in mine[:count] if ms + TTL > now]
            found.append((key, why, now, recent, len({n % 3 for _, n in mine[:count]})))
    return sorted(found)


def application(
    drive: Harness, made: list[Event], task: type[Recent] = Recent, *, watch: bool = False
) -> Application:
    """Reads a file in each batch."""
    directory: Path = drive.directory / "in"
    directory.mkdir(exist_ok=True)
    for i in range(0, len(made), 20):
        rows = [(at(ms), key, n, ms) for ms, key, n in made[i : i + 20]]
        types = (pa.timestamp("us", "UTC"), pa.string(), pa.int64(), pa.int64())
        columns = [pa.array(c, t) for c, t in zip(zip(*rows, strict=True), types, strict=True)]
        pq.write_table(pa.table(columns, names=["ts", "key", "n", "ms"]), directory / f"{i:03}.parquet")
    app = Application("recent")
    read = app.read(sources.parquet(directory, event_time="ts", max_disorder="2 s", watch=watch), name="read")
    drive.sink(read.process(task, name="recent").with_columns(ts=timestamp()))
    return app


@pytest.mark.nightly("the unit tests of stored versions")
def test_a_running_application_refuses_another_version_of_a_task(drive: Harness) -> None:
    made = events(3)
    with start(application(drive, made, watch=True), drive.config()) as running:
        running.wait_clock(at(30_000), "2 min")
        with pytest.raises(UserError, match="cannot take these changes") as refused:
            running.update(application(drive, made, RecentLater, watch=True), "2 min")
        assert "the states of recent are migrated when it is run again" in str(refused.value)
        assert running.version == 1
    running.wait()


@pytest.mark.nightly("other tests of this module reach what it reaches")
def test_an_application_continues_from_a_savepoint_with_a_newer_version_of_a_task(drive: Harness) -> None:
    made, config = events(3), {"checkpoint__mode": "on", "checkpoint__interval": "100 ms"}
    left = [4]

    def die(at_point: CrashPoint) -> None:
        left[0] -= at_point is CrashPoint.BEFORE_COMMIT
        if left[0] == 0:
            raise RuntimeError("died")

    with armed(die), pytest.raises(Exception, match="died"):
        drive.run(application(drive, made), run__max_batch_bytes="1 KiB", **config)
    place = Path(savepoint("recent", drive.directory / "saved", drive.config(**config)))
    assert read_manifest(place).record.fragments["recent"].batch_id > 0
    elsewhere = Harness(drive.directory / "elsewhere")
    with pytest.raises(UserError, match="cannot be migrated from version 1"):
        elsewhere.run(application(drive, made, Unmigrated), from_savepoint=place, **config)
    elsewhere.run(application(drive, made, RecentLater), from_savepoint=place, **config)
    assert found(drive) == wanted(made)


def found(drive: Harness) -> list[tuple[Any, ...]]:
    rows = drive.rows()
    assert all(ms(row["ts"]) == row["at_ms"] for row in rows), "a result has the time of its message or timer"
    return sorted((r["key"], r["why"], r["at_ms"], r["recent"], r["kinds"]) for r in rows)


@pytest.mark.nightly("random applications draw Tasks with state")
@pytest.mark.parametrize("batch", ["1 KiB", "1 MiB"])
def test_results_do_not_depend_on_disorder_and_batches(drive: Harness, batch: str) -> None:
    made = events(1)
    drive.run(application(drive, made), run__max_batch_bytes=batch)
    assert found(drive) == wanted(made)


def test_results_are_the_same_though_the_run_dies(drive: Harness) -> None:
    made = events(2)

    def dies(point: CrashPoint, task: type[Recent]) -> None:
        left = [2]

        def die(at_point: CrashPoint) -> None:
            left[0] -= at_point is point
            if left[0] == 0:
                raise RuntimeError("died")

        with armed(die), pytest.raises(Exception, match="died"):
            drive.run(application(drive, made, task), run__max_batch_bytes="1 KiB")

    dies(CrashPoint.AFTER_SINK, Recent)
    dies(CrashPoint.BEFORE_COMMIT, Recent)
    app = application(drive, made)
    # What it had kept when it died can be asked for: each key has had no more messages than there are.
    numbers = {key: [n for _, k, n in sorted(made) if k == key] for _, key, _ in made}
    before = state(app, "recent", drive.config()).items()
    assert before
    assert all(set(kept.value["recent"]) <= set(numbers[kept.key]) for kept in before)
    # Another version of the Task goes on with these states; one that cannot has not changed them.
    with pytest.raises(UserError, match=r"cannot be migrated from version 1(.|\n)*ValueError: not these"):
        drive.run(application(drive, made, Unmigrated))
    assert state(app, "recent", drive.config()).items() == before
    dies(CrashPoint.BEFORE_COMMIT, RecentLater)
    with pytest.raises(UserError, match="states are of a newer version"):
        drive.run(app)
    drive.run(application(drive, made, RecentLater))
    assert found(drive) == wanted(made)
    asked = state(app, "recent", drive.config())
    assert {kept.key: kept.value["kinds"] for kept in asked.items()} == {
        key: {rest: [n for n in ns if n % 3 == rest][-1] for rest in {n % 3 for n in ns}}
        for key, ns in numbers.items()
    }
    assert asked.get("k0")["until"] == str(max(ms for ms, key, _ in made if key == "k0") + DELAY)
    assert asked.get("another") is None
    with pytest.raises(UserError, match="only be queried for its current states"):
        asked.get("k0", at=0)


def test_a_value_of_another_type_stops_the_run_with_its_state(drive: Harness) -> None:
    class Wrong(KeyedTask[Any, str]):
        key = "key"
        last = ValueState(int)

        def on_next(self, event: Any) -> list[str]:
            self.last.set(event.key)
            return []

    app = Application("wrong")
    stream = app.read(sources.items([("a", 1)], schema="key string, n bigint"))
    drive.sink(stream.process(Wrong))
    with pytest.raises(DrivetrainError, match="the state last has values of int, not 'a'"):
        drive.run(app)

"""Samples that are the same in every run, and unions of streams with different columns."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from harness import Harness, at, events

from drivetrain import Application, F, sinks
from drivetrain.crash_points import CrashPoint, armed
from drivetrain.errors import OperatorTypeError

SCHEMA = "ts timestamp, key string, n bigint"
ROWS = [(at(i * 1000), f"k{i % 50}", i) for i in range(2000)]


def sampled(drive: Harness, fraction: float, *keys: str, seed: int = 0, **run: str) -> set[int]:
    """The numbers that are in a sample."""
    name = f"out-{fraction}-{len(keys)}-{seed}-{len(run)}".replace(".", "_")
    app = Application("sampled")
    drive.sink(events(app, ROWS, SCHEMA).sample(fraction, *keys, seed=seed), name)
    drive.run(app, fresh=True, **run)
    found = [r["n"] for r in drive.rows(name)]
    assert len(set(found)) == len(found)
    return set(found)


@pytest.mark.nightly("the unit tests of samples")
def test_a_sample_depends_on_messages_and_seed_alone(drive: Harness) -> None:
    tenth = sampled(drive, 0.1)
    assert 140 < len(tenth) < 260
    assert sampled(drive, 0.1, run__max_batch_bytes="4 KiB") == tenth
    other = sampled(drive, 0.1, seed=1)
    assert other != tenth
    assert len(other & tenth) < 60
    assert tenth < sampled(drive, 0.4), "a larger fraction keeps what a smaller one keeps"
    assert sampled(drive, 0) == set()
    assert sampled(drive, 1.0) == {n for _, _, n in ROWS}


@pytest.mark.nightly("random applications draw samples")
def test_a_sample_by_keys_has_all_messages_of_a_key_or_none(drive: Harness) -> None:
    kept = Counter(n % 50 for n in sampled(drive, 0.3, "key"))
    assert 3 <= len(kept) <= 30
    assert set(kept.values()) == {40}


@pytest.mark.nightly("the unit tests of samples")
def test_a_sample_is_the_same_after_a_crash(drive: Harness) -> None:
    wanted = sampled(drive, 0.2)

    def application() -> Application:
        app = Application("dying")
        drive.sink(events(app, ROWS, SCHEMA).sample(0.2))
        return app

    def die(point: CrashPoint) -> None:
        if point is CrashPoint.BEFORE_COMMIT:
            raise RuntimeError("died")

    with armed(die), pytest.raises(Exception, match="died"):
        drive.run(application(), run__max_batch_bytes="8 KiB")
    drive.run(application(), run__max_batch_bytes="8 KiB")
    assert sorted(r["n"] for r in drive.rows()) == sorted(wanted)


def test_messages_are_distributed_over_tasks(drive: Harness) -> None:
    app = Application("distributed")
    read = events(app, ROWS, SCHEMA)
    even = read.repartition(3).with_columns(step="where", task=F.spark_partition_id())
    by_key = read.repartition(3, "key", name="by_key").with_columns(step="keys", task=F.spark_partition_id())
    drive.sink(even.union(by_key.with_columns(step="marked", task="task + 10"), name="both"))
    drive.run(app)
    found = drive.rows()
    assert sorted(r["n"] for r in found) == sorted([n for _, _, n in ROWS] * 2)
    counts = Counter(r["task"] for r in found if r["task"] < 10)
    assert set(counts) == {0, 1, 2}
    assert max(counts.values()) - min(counts.values()) < 20
    tasks = {(r["key"], r["task"]) for r in found if r["task"] >= 10}
    assert len(tasks) == 50, "all messages of a key are in one task"
    assert {task for _, task in tasks} == {10, 11, 12}


def test_a_map_has_no_hash(drive: Harness) -> None:
    app = Application("mapped")
    mapped = events(app, ROWS[:3], SCHEMA).with_columns(tags=F.create_map("key", "n"))
    mapped.sample(0.5).sink(sinks.none())
    with pytest.raises(OperatorTypeError, match="the column 'tags' has no hash"):
        drive.run(app)
    app = Application("by-key")
    mapped = events(app, ROWS[:3], SCHEMA).with_columns(tags=F.create_map("key", "n"))
    drive.sink(mapped.sample(1, "key"))
    drive.run(app)
    assert len(drive.rows()) == 3


def test_a_union_fills_missing_columns_only_if_it_is_asked_to(drive: Harness) -> None:
    def application(**missing: Any) -> Application:
        app = Application(f"united-{len(missing)}")
        stream = events(app, ROWS[:4], SCHEMA)
        few = stream.select("n", "key", step="few")
        more = stream.select("n", kind="'a'", more="struct(n as x)", step="more")
        drive.sink(few.union(more, more.drop("more"), **missing))
        return app

    with pytest.raises(OperatorTypeError, match="the streams of a union have different columns"):
        drive.run(application())
    drive.run(application(missing="null"))
    found = {(r["n"], r["key"], r["kind"], r["more"] and r["more"]["x"]) for r in drive.rows()}
    assert found == {
        row
        for _, key, n in ROWS[:4]
        for row in [(n, key, None, None), (n, None, "a", n), (n, None, "a", None)]
    }
    assert len(drive.rows()) == 12

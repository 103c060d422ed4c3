"""Windows whose messages the reader reduces are those of a model, and continue with messages as they are."""

from __future__ import annotations

import datetime as dt
import random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from harness import Harness, at
from reduced_windows import DISORDER_MS, RESULTS, SIZE_MS, Reading, decisions, model, shown, write

from drivetrain import Application, col, sources, state, windows
from drivetrain.core.job.run_progress import RunOutcome
from drivetrain.errors import UserError
from drivetrain.spark.measure import small_batches
from drivetrain.spark.measure.small_batches import SmallBatches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SCHEMA = "at timestamp, k string, n bigint, day date, more struct<x:int>"


def written(drive: Harness, count: int) -> list[dict[str, Any]]:
    """Write JSON lines in several files; the messages as written, in order."""
    draw = random.Random(count)
    known = []
    for n in range(count):
        time_ms = n * 100
        message = {
            "at": at(max(0, time_ms - draw.randrange(DISORDER_MS))),
            "k": draw.choice([None, "a", "b", ""]),
            "n": draw.choice([None, n, -n]),
            "day": dt.date(2024, 1, draw.randrange(1, 30)),
        }
        known.append((time_ms, message))
    messages = [message for _, message in known]
    write(drive.directory / "in", messages)
    return messages


def application(drive: Harness, *, reduced: bool = True, others: bool = False) -> Application:
    app = Application("reduced")
    read = app.read(
        sources.json(
            drive.directory / "in", schema=SCHEMA, event_time="at", max_disorder=f"{DISORDER_MS} ms"
        ),
        name="read",
    )
    if others:
        drive.sink(read, "all")
    if not reduced:
        read = read.filter(col("at").isNotNull(), name="all")
    counted = read.group_by("k").window(windows.tumbling(f"{SIZE_MS} ms"))
    results = counted.aggregate(step="counted", **RESULTS)
    drive.sink(results)
    return app


@pytest.fixture
def reductions(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether the trunks that are compiled get partial results."""
    return decisions(monkeypatch, "over_partial_results")


def test_windows_of_reduced_messages_are_those_of_a_model(drive: Harness, reductions: list[bool]) -> None:
    messages = written(drive, 1_000)
    result = drive.run(application(drive), run__max_batch_bytes="16 KiB")
    assert any(reductions)
    assert shown(drive) == model(messages)
    assert result.batches > 3
    figures = {processor.processor: processor for processor in result.processors}
    assert figures["read"].messages_out == len(messages), "messages are counted, not partial results"
    assert figures["counted"].messages_out == len(model(messages))
    assert result.late == 0


def test_a_run_continues_when_its_messages_are_no_longer_reduced_and_the_other_way_round(
    drive: Harness, reductions: list[bool]
) -> None:
    messages = written(drive, 1_500)
    small = {"run__max_batch_bytes": "8 KiB", "fresh": False}
    outcomes = []
    for reduced in (True, False, True):
        reductions.clear()
        outcomes.append(drive.run(application(drive, reduced=reduced), listener=Reading(2), **small).outcome)
        assert reduced in reductions
    assert outcomes == [RunOutcome.STOPPED] * 3
    expected = model(messages)
    states = state(application(drive), "counted", drive.config()).items()
    assert states, "windows are open"
    for one in states:
        assert one.window is not None
        start_ms, end_ms = one.window
        assert end_ms - start_ms == SIZE_MS
        count, *_ = expected[one.key, start_ms]
        assert 0 < one.value["messages"] <= count
    drive.run(application(drive, reduced=False))
    assert shown(drive) == model(messages)


def test_a_message_without_a_timestamp_stops_a_run_that_reduces(
    drive: Harness, reductions: list[bool]
) -> None:
    written(drive, 100)
    (drive.directory / "in" / "later.jsonl").write_text('{"k": "lost", "n": 3}\n')
    with pytest.raises(UserError, match="a message has no event timestamp") as raised:
        drive.run(application(drive))
    assert any(reductions)
    assert '{"k": "lost", "n": 3}' in str(raised.value)


def test_late_messages_are_counted_and_kept_as_samples_as_if_they_were_not_reduced(drive: Harness) -> None:
    messages = written(drive, 300)
    late = [{"at": at(1_000), "k": "late", "n": n} for n in range(3)]
    write(drive.directory / "in", late, 99999)
    result = drive.run(application(drive), run__max_batch_bytes="8 KiB")
    assert shown(drive) == model(messages)
    assert result.late == 1, "they are one group of their batch"


def test_messages_that_something_else_reads_are_not_reduced(drive: Harness, reductions: list[bool]) -> None:
    messages = written(drive, 200)
    drive.run(application(drive, others=True))
    assert not any(reductions)
    assert shown(drive) == model(messages)
    assert len(drive.rows("all")) == len(messages)


@pytest.mark.parametrize("keys", [3, 1_000])
def test_parquet_is_reduced_where_that_makes_few_groups(
    drive: Harness, reductions: list[bool], keys: int
) -> None:
    draw = random.Random(keys)
    messages = [
        {"at": at(n * 50), "k": f"k{draw.randrange(keys)}", "n": n, "day": dt.date(2024, 1, 1 + n % 30)}
        for n in range(2_000)
    ]
    (drive.directory / "in").mkdir()
    for first in range(0, len(messages), 250):
        unused = [{"unused": ["x", None]} for _ in range(250)]
        rows = [message | more for message, more in zip(messages[first:], unused, strict=False)]
        pq.write_table(pa.Table.from_pylist(rows), drive.directory / "in" / f"{first:05}.parquet")

    def app(*, reduced: bool = True) -> Application:
        made = Application("reduced-parquet")
        read = made.read(sources.parquet(drive.directory / "in", event_time="at"), name="read")
        if not reduced:
            read = read.filter(col("at").isNotNull(), name="all")
        counted = read.group_by("k").window(windows.tumbling(f"{SIZE_MS} ms"))
        drive.sink(counted.aggregate(step="counted", **RESULTS))
        return made

    small = {"run__max_batch_bytes": "16 KiB"}
    assert drive.run(app(), listener=Reading(1), **small).outcome is RunOutcome.STOPPED
    assert any(reductions) == (keys == 3)
    assert drive.run(app(reduced=False), listener=Reading(1), **small).outcome is RunOutcome.STOPPED
    result = drive.run(app(), **small)
    assert shown(drive) == model(messages)
    assert result.late == 0


def test_windows_that_fire_at_the_end_are_not_computed_twice(
    drive: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = [{"at": at(n), "k": f"k{n}", "n": n, "day": dt.date(2024, 1, 1)} for n in range(1_000)]
    write(drive.directory / "in", messages)
    monkeypatch.setattr(SmallBatches.__init__, "__defaults__", (20_000,))
    tried: list[object] = []
    collect = small_batches.small_table

    def collecting(df: DataFrame) -> pa.Table | None:
        tried.append(df)
        return collect(df)

    monkeypatch.setattr(small_batches, "small_table", collecting)
    assert drive.run(application(drive)).batches == 2, "the second one has all windows, and takes nothing"
    assert shown(drive) == model(messages)
    assert not tried, "they are more than comes to the driver"

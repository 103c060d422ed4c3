"""Windows whose messages the reader reduces are those of a model, and continue with messages as they are."""

from __future__ import annotations

import datetime as dt
import random
from typing import Any

import pytest
from harness import Harness, at
from reduced_windows import DISORDER_MS, RESULTS, SIZE_MS, Reading, decisions, model, shown, write

from drivetrain import Application, col, sources, state, windows
from drivetrain.core.job.run_progress import RunOutcome
from drivetrain.errors import UserError

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

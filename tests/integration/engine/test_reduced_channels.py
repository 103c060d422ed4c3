"""Windows over a channel whose reader reduces its messages are those of a model, through stops and damage."""

from __future__ import annotations

import datetime as dt
import random
from typing import Any

import pytest
from harness import Harness, at
from reduced_windows import DISORDER_MS, RESULTS, SIZE_MS, Reading, decisions, model, shown, write

from drivetrain import Application, agg, sources, windows
from drivetrain.core.job.run_progress import RunOutcome
from drivetrain.errors import DrivetrainError
from drivetrain.runtime.late_samples import samples_below
from drivetrain.spark.batch import trimming
from drivetrain.spark.prepare import fragment
from drivetrain.spark.prepare.needed_columns import needed_columns
from drivetrain.spark.repair import late_sampler

SCHEMA = "at timestamp, k string, n bigint, day date, x double, more struct<x:int>"


def messages(count: int, first_ms: int = -40_000, largest: int = 1_000) -> list[dict[str, Any]]:
    """Disordered, from before 1970 on, with null keys and values."""
    draw = random.Random(count)
    return [
        {
            "at": at(first_ms + n * 100 - draw.randrange(DISORDER_MS)),
            "k": draw.choice([None, "a", "b", ""]),
            "n": draw.choice([None, draw.randrange(-largest, largest)]),
            "day": dt.date(2024, 1, draw.randrange(1, 30)),
            "x": n / 7,
        }
        for n in range(count)
    ]


def application(drive: Harness, *, mean: bool = False) -> Application:
    app = Application("reduced_channel")
    place, disorder = drive.directory / "in", f"{DISORDER_MS} ms"
    source = sources.json(place, schema=SCHEMA, event_time="at", max_disorder=disorder)
    read = app.read(source, name="read").cut()
    counted = read.group_by("k").window(windows.tumbling(f"{SIZE_MS} ms"))
    more = {"mean": agg.mean("x")} if mean else {}
    drive.sink(counted.aggregate(step="counted", **RESULTS, **more))
    return app


@pytest.fixture
def reductions(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether the trunks that read a channel get partial results."""
    return decisions(monkeypatch, "over_partial_results_of_channel")


def test_windows_behind_a_channel_are_those_of_a_model(drive: Harness, reductions: list[bool]) -> None:
    given = messages(1_200)
    write(drive.directory / "in", given)
    result = drive.run(application(drive), run__max_batch_bytes="16 KiB")
    assert reductions
    assert all(reductions)
    assert shown(drive) == model(given)
    figures = {processor.processor: processor for processor in result.processors}
    assert figures["read"].messages_out == len(given)
    assert figures["counted"].messages_out == len(model(given))
    assert result.late == 0
    assert result.lost == 0, "messages are counted, not partial results"


def test_a_run_continues_when_messages_of_a_channel_are_reduced_and_when_they_are_not(
    drive: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = messages(1_500)
    write(drive.directory / "in", given)
    decide, outcomes = fragment.over_partial_results_of_channel, []
    for reduced in (True, False, True):
        monkeypatch.setattr(
            fragment, "over_partial_results_of_channel", decide if reduced else lambda *_given: None
        )
        result = drive.run(
            application(drive), listener=Reading(2, of_channel=True), run__max_batch_bytes="8 KiB"
        )
        outcomes.append(result.outcome)
    assert outcomes == [RunOutcome.STOPPED] * 3
    drive.run(application(drive))
    assert shown(drive) == model(given)


def test_late_messages_behind_a_channel_are_left_out_and_kept_as_samples(
    drive: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(late_sampler, "REPORT_S", 60.0)
    monkeypatch.setattr(trimming, "TRIM_S", 0.0)  # what no reader needs is deleted at once
    given = messages(400)
    write(drive.directory / "in", given)
    late = [{**given[0], "at": at(-90_000), "k": "late", "n": n} for n in range(3)]
    write(drive.directory / "in", late, 99999)
    result = drive.run(application(drive), run__max_batch_bytes="8 KiB")
    assert shown(drive) == model(given)
    assert 1 <= result.late <= 3, "those of one batch and group are counted as one"
    (home,) = (drive.directory / "state").iterdir()
    samples = [sample for kept in samples_below(home) for sample in kept.read()]
    assert any('"x":' in sample.message for sample in samples), "a sample has all columns"


def test_an_overflow_behind_a_channel_is_found(drive: Harness, reductions: list[bool]) -> None:
    given = [{**message, "k": "a", "n": 2**62} for message in messages(100)]
    write(drive.directory / "in", given)
    with pytest.raises(DrivetrainError, match=r"(?i)overflow"):
        drive.run(application(drive))
    assert all(reductions)


def test_a_damaged_segment_is_made_again_for_a_reader_that_reduces(
    drive: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = messages(600)
    write(drive.directory / "in", given)
    drive.run(application(drive), listener=Reading(1, of_channel=True), run__max_batch_bytes="8 KiB")
    assert len(shown(drive)) < len(model(given))
    damaged = sorted((drive.directory / "state").glob("**/channels/*/segments/*.arrow"))
    assert damaged, "segments wait for their reader"
    content = bytearray(damaged[-1].read_bytes())
    content[len(content) // 2] ^= 1
    damaged[-1].write_bytes(content)
    drive.run(application(drive))
    assert shown(drive) == model(given)


def test_windows_with_other_results_get_messages_with_the_columns_that_they_use(
    drive: Harness, reductions: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    needed: list[str] = []

    def noted(*given: Any) -> Any:
        found = needed_columns(*given)
        needed.append("all" if found is None else " ".join(found.names))
        return found

    monkeypatch.setattr(fragment, "needed_columns", noted)
    given = messages(300)
    write(drive.directory / "in", given)
    drive.run(application(drive, mean=True))
    assert not any(reductions)
    assert needed == ["k n day x __ts"]
    assert shown(drive) == model(given)

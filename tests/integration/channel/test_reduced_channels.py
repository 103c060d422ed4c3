"""Windows over a channel whose reader reduces its messages are those of a model, through stops and damage."""

from __future__ import annotations

import datetime as dt
import json
import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from drivetrain import Application, agg, sinks, sources, windows
from drivetrain.config import Config
from drivetrain.core.job.run_progress import FragmentProgressed, ProgressEvent, RunOutcome, RunResult
from drivetrain.errors import DrivetrainError
from drivetrain.runtime.late_samples import samples_below
from drivetrain.spark.entry_points import run
from drivetrain.spark.prepare import fragment
from drivetrain.spark.prepare.needed_columns import needed_columns
from drivetrain.spark.repair import late_sampler

SCHEMA = "at timestamp, k string, n bigint, day date, x double, more struct<x:int>"
SIZE_MS = 10_000
DISORDER_MS = 5_000
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
Found = dict[tuple[str | None, int], tuple[Any, ...]]


def at(ms: int) -> dt.datetime:
    return EPOCH + dt.timedelta(milliseconds=ms)


def ms(time: dt.datetime) -> int:
    return round((time - EPOCH).total_seconds() * 1000)


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


def write(directory: Path, given: list[dict[str, Any]], per_file: int = 100) -> None:
    directory.mkdir(exist_ok=True)
    for number in range(0, len(given), per_file):
        lines = [json.dumps(message, default=_text) for message in given[number : number + per_file]]
        (directory / f"{number:05}.jsonl").write_text("\n".join(lines) + "\n")


def _text(value: Any) -> str:
    return str(value.isoformat().replace("+00:00", "Z"))


def application(directory: Path, *, mean: bool = False) -> Application:
    app = Application("reduced_channel")
    source = sources.json(directory / "in", schema=SCHEMA, event_time="at", max_disorder=f"{DISORDER_MS} ms")
    read = app.read(source, name="read").cut()
    results = (
        read.group_by("k")
        .window(windows.tumbling(f"{SIZE_MS} ms"))
        .aggregate(
            step="counted",
            messages=agg.count(),
            numbers=agg.count("n"),
            total=agg.sum("n"),
            least=agg.min("n"),
            newest=agg.max("day"),
            **({"mean": agg.mean("x")} if mean else {}),
        )
    )
    results.sink(sinks.parquet(directory / "out"), name="shown")
    return app


def started(app: Application, directory: Path, listener: Any = None, **keys: str) -> RunResult:
    given = {k.replace("__", ".").replace("_", "-"): v for k, v in keys.items()}
    result = run(app, Config.load(None, {}, {"state.dir": str(directory / "state"), **given}), listener)
    result.check()
    return result


def model(given: list[dict[str, Any]]) -> Found:
    groups = defaultdict(list)
    for message in given:
        groups[message["k"], ms(message["at"]) // SIZE_MS * SIZE_MS].append(message)
    found = {}
    for group, of in groups.items():
        numbers = [message["n"] for message in of if message["n"] is not None]
        totals = (sum(numbers), min(numbers)) if numbers else (None, None)
        found[group] = (len(of), len(numbers), *totals, max(message["day"] for message in of))
    return found


def shown(directory: Path) -> Found:
    import pyarrow.dataset as ds

    files = [str(path) for path in sorted((directory / "out").glob("*.parquet"))]
    rows = ds.dataset(files).to_table().to_pylist() if files else []
    names = ("messages", "numbers", "total", "least", "newest")
    found = {(row["k"], ms(row["window_start"])): tuple(row[name] for name in names) for row in rows}
    assert len(found) == len(rows), "each window is shown once"
    return found


class Reading:
    """Stops a run after so many batches of the fragment behind the channel."""

    def __init__(self, batches: int) -> None:
        self._batches = batches
        self._first: int | None = None
        self._seen = -1

    def on_event(self, event: ProgressEvent) -> None:
        if isinstance(event, FragmentProgressed) and event.channels and event.batch_id >= 0:
            self._seen = event.batch_id
            self._first = event.batch_id if self._first is None else self._first

    def stop_requested(self) -> bool:
        return self._first is not None and self._seen >= self._first + self._batches


@pytest.fixture
def reductions(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether the trunks that read a channel get partial results."""
    found: list[bool] = []
    decide = fragment.over_partial_results_of_channel

    def deciding(*given: Any) -> Any:
        decided = decide(*given)
        found.append(decided is not None)
        return decided

    monkeypatch.setattr(fragment, "over_partial_results_of_channel", deciding)
    return found


@pytest.mark.usefixtures("spark")
def test_windows_behind_a_channel_are_those_of_a_model(tmp_path: Path, reductions: list[bool]) -> None:
    given = messages(1_200)
    write(tmp_path / "in", given)
    result = started(application(tmp_path), tmp_path, run__max_batch_bytes="16 KiB")
    assert reductions
    assert all(reductions)
    assert shown(tmp_path) == model(given)
    figures = {processor.processor: processor for processor in result.processors}
    assert figures["read"].messages_out == len(given)
    assert figures["counted"].messages_out == len(model(given))
    assert result.late == 0
    assert result.lost == 0, "messages are counted, not partial results"


@pytest.mark.usefixtures("spark")
def test_a_run_continues_when_messages_of_a_channel_are_reduced_and_when_they_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = messages(1_500)
    write(tmp_path / "in", given)
    decide, outcomes = fragment.over_partial_results_of_channel, []
    for reduced in (True, False, True):
        monkeypatch.setattr(
            fragment, "over_partial_results_of_channel", decide if reduced else lambda *_given: None
        )
        result = started(application(tmp_path), tmp_path, Reading(2), run__max_batch_bytes="8 KiB")
        outcomes.append(result.outcome)
    assert outcomes == [RunOutcome.STOPPED] * 3
    started(application(tmp_path), tmp_path)
    assert shown(tmp_path) == model(given)


@pytest.mark.usefixtures("spark")
def test_late_messages_behind_a_channel_are_left_out_and_kept_as_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(late_sampler, "REPORT_S", 60.0)
    given = messages(400)
    write(tmp_path / "in", given)
    late = [{**given[0], "at": at(-90_000), "k": "late", "n": n} for n in range(3)]
    write(tmp_path / "in" / "z", late)
    (tmp_path / "in" / "z" / "00000.jsonl").rename(tmp_path / "in" / "99999.jsonl")
    result = started(application(tmp_path), tmp_path, run__max_batch_bytes="8 KiB")
    assert shown(tmp_path) == model(given)
    assert 1 <= result.late <= 3, "those of one batch and group are counted as one"
    (home,) = (tmp_path / "state").iterdir()
    samples = [sample for kept in samples_below(home) for sample in kept.read()]
    assert any('"x":' in sample.message for sample in samples), "a sample has all columns"


@pytest.mark.usefixtures("spark")
def test_an_overflow_behind_a_channel_is_found(tmp_path: Path, reductions: list[bool]) -> None:
    given = [{**message, "k": "a", "n": 2**62} for message in messages(100)]
    write(tmp_path / "in", given)
    with pytest.raises(DrivetrainError, match=r"(?i)overflow"):
        started(application(tmp_path), tmp_path)
    assert all(reductions)


@pytest.mark.usefixtures("spark")
def test_a_damaged_segment_is_made_again_for_a_reader_that_reduces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = messages(600)
    write(tmp_path / "in", given)
    started(application(tmp_path), tmp_path, Reading(1), run__max_batch_bytes="8 KiB")
    assert len(shown(tmp_path)) < len(model(given))
    damaged = sorted((tmp_path / "state").glob("**/channels/*/segments/*.arrow"))
    if damaged:
        content = bytearray(damaged[-1].read_bytes())
        content[len(content) // 2] ^= 1
        damaged[-1].write_bytes(content)
    started(application(tmp_path), tmp_path)
    assert shown(tmp_path) == model(given)


@pytest.mark.usefixtures("spark")
def test_windows_with_other_results_get_messages_with_the_columns_that_they_use(
    tmp_path: Path, reductions: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    needed: list[str] = []

    def noted(*given: Any) -> Any:
        found = needed_columns(*given)
        needed.append("all" if found is None else " ".join(found.names))
        return found

    monkeypatch.setattr(fragment, "needed_columns", noted)
    given = messages(300)
    write(tmp_path / "in", given)
    started(application(tmp_path, mean=True), tmp_path)
    assert not any(reductions)
    assert needed == ["k n day x __ts"]
    assert shown(tmp_path) == model(given)

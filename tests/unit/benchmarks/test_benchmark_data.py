"""The data of the benchmarks: known answers must be the answers, or every contender is judged wrongly."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from benchmarks import data


@pytest.fixture(autouse=True)
def own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_DATA", str(tmp_path / "data"))


def test_the_expected_counts_are_those_of_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "vocabulary", lambda: pa.array([f"w{n}" for n in range(300)]))
    directory = data.text(1)
    counted = Counter(word for file in (directory / "lines").iterdir() for word in file.read_text().split())
    expected = pq.read_table(directory / "expected.parquet").to_pydict()
    assert counted == dict(zip(expected["word"], expected["count"], strict=True))
    assert data.total(directory, "count") == sum(counted.values())


def test_the_expected_windows_are_those_of_the_events() -> None:
    directory = data.events(2_000)
    sums: dict[tuple[int, str], list[int]] = {}
    for file in (directory / "lines").iterdir():
        for line in file.read_text().splitlines():
            event = json.loads(line)
            ts_ms = int(pa.scalar(event["ts"][:-1]).cast(pa.timestamp("ms")).cast(pa.int64()).as_py())
            entry = sums.setdefault((ts_ms // data.WINDOW_MS * data.WINDOW_MS, event["key"]), [0, 0])
            entry[0] += 1
            entry[1] += event["value"]
    expected = pq.read_table(directory / "expected.parquet").to_pydict()
    rows = zip(expected["start_ms"], expected["key"], expected["n"], expected["total"], strict=True)
    assert sums == {(start_ms, key): [n, total] for start_ms, key, n, total in rows}


def test_an_event_arrives_at_most_the_declared_disorder_after_its_time() -> None:
    directory = data.events(2_000)
    newest = 0
    for file in sorted((directory / "lines").iterdir()):
        for line in file.read_text().splitlines():
            ts_ms = int(
                pa.scalar(json.loads(line)["ts"][:-1]).cast(pa.timestamp("ms")).cast(pa.int64()).as_py()
            )
            assert newest - ts_ms <= data.DISORDER_MS
            newest = max(newest, ts_ms)


def test_the_same_data_is_made_every_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = [file.read_bytes() for file in sorted((data.events(500) / "lines").iterdir())]
    monkeypatch.setenv("BENCH_DATA", str(tmp_path / "again"))
    assert [file.read_bytes() for file in sorted((data.events(500) / "lines").iterdir())] == first


def test_words_are_distinct_and_the_frequent_ones_short() -> None:
    words = data.vocabulary(2_000).to_pylist()
    assert len(set(words)) == 2_000
    assert sum(map(len, words[:20])) / 20 < sum(map(len, words[-20:])) / 20

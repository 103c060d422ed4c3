"""The data and the answers of the field's own jobs, against loops; and what peers leave in a topic."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from benchmarks import data, field_data, field_topics, kafka
from benchmarks.measure import WrongResultError

Events = list[tuple[int, str, int]]


@pytest.fixture(autouse=True)
def sparse_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few keys and few events a second, so that a small data set has several sessions of a key."""
    monkeypatch.setenv("BENCH_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(data, "EVENTS_PER_S", 20)
    monkeypatch.setattr(field_data, "USERS", 40)


def read(directory: Path) -> Events:
    """Time, key and value of the lines, in the order of arrival."""
    lines = [
        json.loads(line)
        for file in sorted((directory / "lines").iterdir())
        for line in file.read_text().splitlines()
    ]
    times = [pa.scalar(line["ts"][:-1]).cast(pa.timestamp("ms")).cast(pa.int64()).as_py() for line in lines]
    return [(ts_ms, line["key"], line["value"]) for ts_ms, line in zip(times, lines, strict=True)]


def expected(directory: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(directory / "expected.parquet").to_pylist()
    return rows


def test_the_expected_sessions_are_those_of_the_events() -> None:
    directory = field_data.clicks(3_000)
    by_key: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for ts_ms, key, value in read(directory):
        by_key[key].append((ts_ms, value))
    found = []
    for key, events in by_key.items():
        session: list[tuple[int, int]] = []
        for event in [*sorted(events), (10**15, 0)]:
            if session and event[0] - session[-1][0] >= field_data.GAP_MS:
                bounds = (session[0][0], session[-1][0] + field_data.GAP_MS)
                found.append((*bounds, key, len(session), sum(value for _, value in session)))
                session = []
            session.append(event)
    assert len(found) > 2 * len(by_key)
    assert sorted(tuple(row.values()) for row in expected(directory)) == sorted(found)
    assert data.total(directory, "n") == 3_000


def test_no_event_comes_exactly_one_gap_after_another() -> None:
    assert all(ts_ms % 10 == 0 for ts_ms, _, _ in read(field_data.clicks(1_000)))
    assert field_data.GAP_MS % 10 == 5


def test_the_expected_pairs_are_those_of_orders_and_payments() -> None:
    orders, payments = (read(made(1_000)) for made in (field_data.orders, field_data.payments))
    ordered = {key: (ts_ms, amount) for ts_ms, key, amount in orders}
    apart_ms = [abs(ts_ms - ordered[key][0]) for ts_ms, key, _ in payments]
    found = [
        {"payment": payment, "key": key, "amount": ordered[key][1]}
        for (_, key, payment), ms in zip(payments, apart_ms, strict=True)
        if ms <= field_data.WITHIN_MS
    ]
    assert 0.85 < len(found) / 1_000 < 0.97
    assert field_data.WITHIN_MS not in apart_ms
    assert len({key for _, key, _ in payments}) < len(payments) == len({number for *_, number in payments})
    rows = expected(field_data.payments(1_000))
    assert sorted(rows, key=lambda row: row["payment"]) == sorted(found, key=lambda row: row["payment"])


@pytest.mark.parametrize("made", [field_data.clicks, field_data.orders, field_data.payments])
def test_an_event_of_the_field_arrives_at_most_the_declared_disorder_after_its_time(made: Any) -> None:
    newest = 0
    for ts_ms, _, _ in read(made(1_000)):
        assert newest - ts_ms <= data.DISORDER_MS
        newest = max(newest, ts_ms)


def test_a_session_that_became_part_of_another_is_not_in_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = [
        (b"1,6,u1", b"1,5"),
        (b"4,9,u1", b"1,7"),
        (b"4,9,u1", None),
        (b"1,6,u1", None),
        (b"1,9,u1", b"2,12"),
    ]
    monkeypatch.setattr(kafka, "out", lambda work: f"out-{work.name}")
    monkeypatch.setattr(field_topics, "_messages", lambda _topic: iter(sent))
    monkeypatch.setattr(field_topics, "drop", lambda _work: None)
    field_topics.collect(tmp_path)
    assert (tmp_path / "out" / "rows.csv").read_text() == "1,9,u1,2,12\n"
    monkeypatch.setattr(field_topics, "_messages", lambda _topic: iter(()))
    with pytest.raises(WrongResultError, match="nothing was written"):
        field_topics.collect(tmp_path)

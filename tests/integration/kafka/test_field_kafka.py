"""The field's job between two topics gives what its batch query gives; the peers are not needed here."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks import data, field_kafka, field_topics, kafka
from benchmarks.measure import Scale, WrongResultError
from broker import Broker
from kafka_runs import KafkaRun


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("guarantee", ["at least once", "exactly once"])
def test_what_passes_from_topic_to_topic_agrees_with_one_batch_query(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, guarantee: str
) -> None:
    monkeypatch.setenv("BENCH_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("BENCH_BROKER", "")
    for name in ("start", "broker"):
        monkeypatch.setattr(kafka, name, lambda: broker)
    directory = data.events(2_000)
    monkeypatch.setattr(field_kafka, "directory", lambda _scale: directory)
    field_topics.fill(directory)
    assert field_topics.missing() is None
    topics = field_topics.topic(directory), kafka.out(tmp_path)
    KafkaRun(broker, tmp_path).run(field_kafka.application("between", topics, guarantee))
    monkeypatch.setattr(field_topics, "drop", lambda _work: None)
    field_kafka.check(Scale(quick=True), tmp_path)
    monkeypatch.setattr(field_kafka, "BELOW", 4_000)
    with pytest.raises(WrongResultError):
        field_kafka.check(Scale(quick=True), tmp_path)

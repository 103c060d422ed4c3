"""Where the offset index is kept: a file and a compacted topic do the same, whoever dies at it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from broker import Broker
from kafka_runs import send
from topic_reading import messages

from drivetrain.connectors.kafka.kafka_admin import KafkaAdmin
from drivetrain.connectors.kafka.offset_store import FILE, FileStore, OffsetStore, Record, TopicStore
from drivetrain.errors import InputError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Opened = Callable[[], OffsetStore]


@pytest.fixture
def topics(spark: SparkSession, broker: Broker, topic: str) -> Opened:
    """A store in a topic of this test, as another process would open it."""
    settings = {"bootstrap.servers": broker.bootstrap}

    def opened() -> OffsetStore:
        return TopicStore(spark, KafkaAdmin(spark, broker.bootstrap, {}, "here"), settings, topic, "app/read")

    return opened


def told(records: list[Record]) -> list[int]:
    return [record["n"] for record in records]


def test_a_log_is_read_as_it_was_written_and_a_picture_replaces_it(
    topics: Opened, tmp_path: Path, broker: Broker, topic: str
) -> None:
    for opened in (topics, lambda: FileStore(str(tmp_path / "made"))):
        assert opened().load() == []
        store = opened()
        store.replace({"n": 0})
        for n in (1, 2, 3):
            store.append({"n": n})
        again = opened()
        assert told(again.load()) == [0, 1, 2, 3]
        again.replace({"n": 10})
        again.append({"n": 11})
        assert told(opened().load()) == [10, 11]
        again.close()
        store.close()
    left = {m.key(): m.value() for m in messages(broker, topic)}
    assert sum(value is not None for value in left.values()) == 2, "what a picture replaces is deleted"


def test_half_a_record_is_not_read_nor_what_follows_it(tmp_path: Path) -> None:
    store = FileStore(str(tmp_path))
    store.replace({"n": 0})
    store.append({"n": 1})
    store.close()
    file = tmp_path / FILE
    whole = file.read_bytes()
    for cut in range(len(whole)):
        file.write_bytes(whole[:cut])
        assert told(FileStore(str(tmp_path)).load()) in ([], [0])
    file.write_bytes(whole + b"\x00\x00\n" + b'{"n":2}\n')
    assert told(FileStore(str(tmp_path)).load()) == [0, 1]


def test_records_that_a_picture_replaced_and_that_are_still_there_are_not_read(
    topics: Opened, broker: Broker, topic: str
) -> None:
    """Who wrote the picture died before it deleted them; another application shares the topic."""
    store = topics()
    store.replace({"n": 0})
    store.append({"n": 1})
    picture = b'{"n": 5, "after": 1}'
    send(broker, topic, [{"key": b"app/read/picture", "value": picture}, {"key": b"app/r/7", "value": b"{}"}])
    again = topics()
    assert told(again.load()) == [5]
    again.replace({"n": 6})
    again.append({"n": 7})
    assert told(topics().load()) == [6, 7]


def test_a_topic_that_kafka_would_empty_is_refused(topics: Opened, broker: Broker, topic: str) -> None:
    broker.create(topic)
    with pytest.raises(InputError, match="not compacted"):
        topics().replace({"n": 0})

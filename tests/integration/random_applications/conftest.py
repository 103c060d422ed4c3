"""A broker for the random applications of a process, started when the first one needs it; and a fake one."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, KafkaException

# The broker, and how topics are read, are those of Kafka's own tests.
sys.path.insert(0, str(Path(__file__).parents[1] / "kafka"))

if TYPE_CHECKING:
    from broker import Broker

Sent = tuple[int, bytes | str | None, str | None, int]
"""Partition, key, value and Kafka's timestamp in ms."""


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A running broker; each application has topics of its own."""
    from broker import Broker

    with Broker(tmp_path_factory.mktemp("kafka") / "broker") as running:
        yield running


class FakeBroker:
    """Takes the messages that programs send when they are loaded; `topics` holds those that were not
    aborted."""

    def __init__(self) -> None:
        self.topics: dict[str, list[Sent]] = {}
        self.partitions: dict[str, int] = {}
        self.aborted: dict[str, list[Sent]] = defaultdict(list)

    def client(self, settings: Mapping[str, Any]) -> Any:
        """Stands for `AdminClient`."""
        return _FakeAdmin(self)

    def producer(self, settings: Mapping[str, Any]) -> Any:
        """Stands for `Producer`."""
        return _FakeProducer(self, is_transactional="transactional.id" in settings)


class _FakeAdmin:
    def __init__(self, broker: FakeBroker) -> None:
        self._broker = broker

    def create_topics(self, asked: list[Any]) -> dict[str, Future[None]]:
        made: dict[str, Future[None]] = {}
        for topic in asked:
            made[topic.topic] = Future()
            if topic.topic in self._broker.topics:
                error = KafkaException(KafkaError(KafkaError.TOPIC_ALREADY_EXISTS))
                made[topic.topic].set_exception(error)
            else:
                self._broker.topics[topic.topic] = []
                self._broker.partitions[topic.topic] = topic.num_partitions
                made[topic.topic].set_result(None)
        return made


class _FakeProducer:
    def __init__(self, broker: FakeBroker, *, is_transactional: bool) -> None:
        self._broker = broker
        self._is_open = not is_transactional
        self._is_transactional = is_transactional
        self._held: list[tuple[str, Sent]] = []

    def init_transactions(self, timeout_s: float) -> None:
        assert self._is_transactional

    def begin_transaction(self) -> None:
        self._is_open = True

    def produce(
        self, topic: str, value: str | None, key: str | None, partition: int, *, timestamp: int
    ) -> None:
        assert self._is_open
        assert 0 <= partition < self._broker.partitions[topic]
        assert timestamp > 0, "Kafka takes it for: now"
        self._held.append((topic, (partition, key, value, timestamp)))

    def flush(self, timeout_s: float) -> int:
        if not self._is_transactional:
            self._take(self._broker.topics)
        return 0

    def commit_transaction(self, timeout_s: float) -> None:
        self._take(self._broker.topics)
        self._is_open = False

    def abort_transaction(self, timeout_s: float) -> None:
        self._take(self._broker.aborted)
        self._is_open = False

    def _take(self, topics: dict[str, list[Sent]]) -> None:
        for topic, sent in self._held:
            topics[topic].append(sent)
        self._held = []


@pytest.fixture
def fake_broker(monkeypatch: pytest.MonkeyPatch) -> FakeBroker:
    """The broker for programs that are loaded but not run."""
    from .program_kafka import KAFKA

    broker = FakeBroker()
    monkeypatch.setenv(KAFKA, "nowhere:9092")
    monkeypatch.setattr("confluent_kafka.Producer", broker.producer)
    monkeypatch.setattr("confluent_kafka.admin.AdminClient", broker.client)
    return broker

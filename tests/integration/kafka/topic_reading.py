"""Reads the messages of a topic with a client that is independent of Spark."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

# A busy broker answers so while the partitions of a new topic get their leaders.
NOT_YET = {
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
}


class Reachable(Protocol):
    """A running broker."""

    @property
    def bootstrap(self) -> str:
        """Its address."""

    @property
    def admin(self) -> AdminClient:
        """A client for its topics."""


def messages(
    broker: Reachable, topic: str, *, committed: bool = True, timeout_s: float = 60.0
) -> list[Message]:
    """All current messages of a topic, in the order of its partitions.

    `committed` reads as consumers of an exactly-once sink do. Raises `TimeoutError` when the end is not
    reached, for instance while a transaction is open.
    """
    consumer = _consumer(broker, committed=committed)
    try:
        whole = enumerate(ends(broker, topic))
        found = [m for p, end in whole for m in _partition(consumer, topic, p, end, timeout_s)]
    finally:
        consumer.close()
    return found


def values(broker: Reachable, topic: str, *, committed: bool = True) -> list[str]:
    """The values as text."""
    return [(message.value() or b"").decode() for message in messages(broker, topic, committed=committed)]


def _partition(consumer: Any, topic: str, partition: int, end: int, timeout_s: float) -> Iterator[Message]:
    consumer.assign([TopicPartition(topic, partition, 0)])
    deadline = time.monotonic() + timeout_s
    while consumer.position([TopicPartition(topic, partition)])[0].offset < end:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{topic}/{partition} cannot be read up to {end}: a transaction is open")
        for message in consumer.consume(5000, timeout=0.2):
            if message.error() is None:
                yield message
        if end == 0:
            return


def _consumer(broker: Reachable, *, committed: bool) -> Any:
    return Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "fetch.message.max.bytes": 32 * 2**20,
            "log_level": 0,
        }
    )


def ends(broker: Reachable, topic: str, *, timeout_s: float = 30.0) -> list[int]:
    """The end of each partition, including messages that are not committed yet."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return _ends_now(broker, topic)
        except KafkaException as error:
            if error.args[0].code() not in NOT_YET or time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def _ends_now(broker: Reachable, topic: str) -> list[int]:
    partitions = broker.admin.list_topics(topic, timeout=10).topics[topic].partitions
    places = {TopicPartition(topic, p): OffsetSpec.latest() for p in sorted(partitions)}
    answers = broker.admin.list_offsets(places)
    return [answers[place].result(10).offset for place in places]

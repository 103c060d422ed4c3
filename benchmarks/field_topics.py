"""The data of the field's jobs in Kafka, for the peers that read nothing else, and what they wrote there.

Lines are messages without a key, spread over the partitions as a producer does. The broker is
that of the other Kafka benchmarks: started by the benchmark's own process, on the same cores.

Called by the jobs of the field.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from benchmarks import data, kafka, peer_process
from benchmarks.measure import Timed, WrongResultError

_PID = "BENCH_BROKER"
_failed: list[str] = []


def fill(*directories: Path) -> None:
    """Start the broker and put the lines of these data sets into topics, unless they are there.

    Their files are read once.
    """
    data.read_files(*directories)
    try:
        running = kafka.start()
        os.environ[_PID] = str(running.pid)
        for directory in directories:
            if topic(directory) not in running.admin.list_topics(timeout=10).topics:
                running.create(topic(directory), kafka.PARTITIONS)
                _send(running.bootstrap, directory)
    except Exception as error:  # noqa: BLE001 - the contenders without Kafka take part all the same
        _failed.append(f"no Kafka here: {error}".splitlines()[0])


def missing() -> str | None:
    """Why there is no broker with the data, or None."""
    return _failed[0] if _failed else None


def topic(directory: Path) -> str:
    """The topic with the lines of a data set."""
    return f"field-{directory.name}"


def process() -> psutil.Process:
    """The broker's process."""
    return psutil.Process(int(os.environ[_PID]))


def given(directory: Path, warm: Path, work: Path) -> dict[str, Any]:
    """What a peer needs to know: the broker, and topics to read and to write, which are made here."""
    return {
        "bootstrap": kafka.broker().bootstrap,
        "topic": topic(directory),
        "warm_topic": topic(warm),
        "out_topic": kafka.out(work),
        "warm_out_topic": kafka.out(kafka.beside(work, "warm")),
    }


class WithBroker(Timed):
    """Measures a block of this process, and apart from it the CPU seconds of the broker."""

    def __enter__(self) -> WithBroker:
        self._broker_before_s = peer_process.cpu_s(process())
        super().__enter__()
        return self

    def __exit__(self, *raised: object) -> None:
        super().__exit__(*raised)
        self._broker_s = peer_process.cpu_s(process()) - self._broker_before_s

    def figures(self, **others: float) -> dict[str, float]:
        return super().figures(broker_cpu_s=self._broker_s, **others)


def collect(work: Path) -> None:
    """Write the last value of each key in the result as CSV below `work`; drop all topics of the run."""
    found: dict[bytes, bytes] = {}
    for key, value in _messages(kafka.out(work)):
        if value is None:  # a session that has become part of another
            found.pop(key, None)
        else:
            found[key] = value
    if not found:
        raise WrongResultError(f"nothing was written to {kafka.out(work)}")
    (work / "out").mkdir(exist_ok=True)
    rows = "".join(f"{key.decode()},{value.decode()}\n" for key, value in found.items())
    (work / "out" / "rows.csv").write_text(rows)
    drop(work)


def values(work: Path) -> list[bytes]:
    """The values of all committed messages in the result."""
    return [value for _, value in _messages(kafka.out(work)) if value is not None]


def drop(work: Path) -> None:
    """Delete the topics of a run."""
    admin = kafka.broker().admin
    made = [name for name in admin.list_topics(timeout=10).topics if name.startswith(f"out-{work.name}")]
    for done in admin.delete_topics(made).values():
        done.result(30)


def _messages(name: str) -> Iterator[tuple[Any, Any]]:
    """Keys and values in a topic, those of a partition in their order."""
    from confluent_kafka import Consumer, TopicPartition

    settings = {"group.id": "checking", "enable.partition.eof": True, "isolation.level": "read_committed"}
    consumer = Consumer({"bootstrap.servers": kafka.broker().bootstrap, **settings})
    consumer.assign([TopicPartition(name, partition, 0) for partition in range(kafka.PARTITIONS)])
    ended: set[int] = set()
    while len(ended) < kafka.PARTITIONS:
        for message in consumer.consume(10_000, timeout=1.0):
            if message.error() is not None:
                ended.add(message.partition())
            else:
                yield message.key(), message.value()
    consumer.close()


def _send(bootstrap: str, directory: Path) -> None:
    from confluent_kafka import Producer

    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 50, "queue.buffering.max.messages": 500_000}
    )
    for file in sorted((directory / "lines").iterdir()):
        with file.open("rb") as lines:
            for line in lines:
                while True:
                    try:
                        producer.produce(topic(directory), line.rstrip(b"\n"))
                        break
                    except BufferError:
                        producer.poll(0.1)
        producer.poll(0)
    producer.flush()

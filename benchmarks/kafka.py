"""What the Kafka benchmarks share: one broker, a topic to read, rows to write, and counting what arrived.

The broker is that of the tests: one node on this machine, with a small heap. It competes for the same cores
with all contenders alike. It is started by the benchmark's own process and ends with it; the contenders'
processes find its address in its directory.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import data
from benchmarks.cost import GROWN
from benchmarks.measure import Scale, WrongResultError

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "integration" / "kafka"))

PARTITIONS = 4
SAME_SETTINGS = "pyspark, our Kafka settings"
"""Plain PySpark with what our sources and sinks set for Kafka's client: that is not ours alone to use."""
_MESSAGE_BYTES = 100
_running: list[Any] = []


def messages(scale: Scale) -> int:
    """How many messages are read, or written."""
    return (50_000 if scale.quick else 8_000_000) * scale.times


def warm(scale: Scale) -> int:
    """How many are read or written before: what Java has not compiled by then is measured with the rest."""
    return messages(Scale(scale.quick)) // 10


def broker() -> Any:
    """The broker, which may run in another process."""
    from broker import Broker

    return Broker(data.root() / "kafka-broker")


def start() -> Any:
    """Start the broker for as long as this process lives."""
    if not _running:
        _running.append(broker().start())
    return _running[0]


def topic(count: int) -> str:
    """The topic of `count` messages that is read."""
    return f"in-{count}"


def rows(count: int) -> Path:
    """The rows that are written: `key` and `value`, 100 bytes, in Parquet files."""
    directory = data.root() / f"kafka-{count}"
    if not directory.is_dir():
        aside = directory.with_suffix(".tmp")
        aside.mkdir(parents=True, exist_ok=True)
        for part in range(PARTITIONS):
            numbers = range(part, count, PARTITIONS)
            columns = {
                "key": [f"key-{n % 10_000}" for n in numbers],
                "value": [f"{n:0{_MESSAGE_BYTES}}" for n in numbers],
            }
            pq.write_table(pa.table(columns), aside / f"{part}.parquet")
        aside.rename(directory)
    return directory


def fill(scale: Scale) -> None:
    """Put the rows into the topics that are read, as often as they are needed, unless they are there."""
    from topic_reading import ends

    running = start()
    once = messages(Scale(scale.quick))
    for count in (warm(scale), once, *(once * n for n in (scale.times, scale.times * GROWN) if n > 1)):
        if topic(count) in running.admin.list_topics(timeout=10).topics:
            if sum(ends(running, topic(count))) == count:
                continue
            running.delete(topic(count))  # whoever filled it was interrupted
        running.create(topic(count), PARTITIONS)
        for _ in range(max(1, count // once)):
            _fill(running.bootstrap, topic(count), min(count, once))


def read_files(scale: Scale) -> None:
    """Read the files of the topics that a run reads, as `data.read_files`."""
    for count in {warm(scale), messages(scale)}:
        data.read_files(*(data.root() / "kafka-broker" / "data").glob(f"{topic(count)}-*/*.log"))


def _fill(bootstrap: str, name: str, count: int) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "queue.buffering.max.messages": 1_000_000})
    for batch in pq.ParquetDataset(rows(count)).read().to_batches(max_chunksize=10_000):
        for key, value in zip(*(batch.column(n).to_pylist() for n in ("key", "value")), strict=True):
            while True:
                try:
                    producer.produce(name, value, key)
                    break
                except BufferError:
                    producer.poll(0.1)
        producer.poll(0)
    producer.flush()


def out(work: Path, partitions: int = PARTITIONS) -> str:
    """The topic that a run writes; created by the run."""
    name = f"out-{work.name}"
    running = broker()
    if name not in running.admin.list_topics(timeout=10).topics:
        running.create(name, partitions)
    return name


def beside(work: Path, what: str) -> Path:
    """Names another topic of the same run: a warm-up's, which must not meet that of another round."""
    return work.with_name(f"{work.name}-{what}")


def drop(*works: Path) -> None:
    """Delete what runs have written."""
    running = broker()
    known = running.admin.list_topics(timeout=10).topics
    for work in works:
        if f"out-{work.name}" in known:
            running.delete(f"out-{work.name}")


def connector() -> dict[str, str]:
    """The setting that gives plain PySpark the connector which ours has."""
    from drivetrain.config import Config
    from drivetrain.spark.session.kafka_connector import connector_jars

    jars = connector_jars(Config.load(None, {}, {})) or []
    return {"spark.jars": ",".join(map(str, jars))}


def consumed(bootstrap: str, name: str, wanted: int, timeout_s: float = 300.0) -> int:
    """How many committed messages a plain client gets from a topic, up to `wanted`."""
    from confluent_kafka import Consumer, TopicPartition

    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "counting",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
    }
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(name, p, 0) for p in range(PARTITIONS)])
    found, deadline = 0, time.monotonic() + timeout_s
    while found < wanted and time.monotonic() < deadline:
        found += sum(m.error() is None for m in consumer.consume(10_000, timeout=0.5))
    # A message too many would come at once.
    found += sum(m.error() is None for m in consumer.consume(10_000, timeout=0.5))
    consumer.close()
    return found


def expect(scale: Scale, found: int) -> None:
    """Raise unless every message arrived, once."""
    if found != messages(scale):
        raise WrongResultError(f"{found} messages instead of {messages(scale)}")

"""Stores the offset index of a source: in a file next to the state, or in a compacted Kafka topic.

The problem: after every batch a few numbers must be stored, for the application's whole lifetime, at almost
no cost, and where the user wants them: with the state, or where they survive its loss.

The design: a log of records, the first of which is a complete picture; the writer replaces the log with a new
picture from time to time. A file is appended to, and replaced in one step. In a topic each record has its own
key, and the picture has the numbers of the records it replaces: these are deleted by tombstones, and Kafka
compacts the rest. The Java clients of Spark's connector do it, so they take the same settings.

What if we die here: a half-written record is not read, nor are records after it. If Spark's own log has a
batch whose record is lost (neither is synced to disk), that is a gap, which the index detects.

Invariants:

1. `load` returns a picture and the records after it, in the order in which they were written.
2. `replace` happens as a whole, or not at all.

Called by `batch_index`. Source: the offset stores of Apache Gearpump (HDFS and Kafka).
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow.fs as pafs
from py4j.protocol import Py4JJavaError

from drivetrain.connectors.kafka.kafka_admin import KafkaAdmin
from drivetrain.errors import UnavailableError
from drivetrain.runtime.whole_files import publish_bytes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Record = Mapping[str, Any]
FILE = "offsets.jsonl"
READ_S = 60.0
_POLL_MS = 200


class OffsetStore(Protocol):
    """A log of records; raises the errors of its storage: `OSError` or `DrivetrainError`."""

    def load(self) -> list[Record]:
        """The last picture and the records since, oldest first; empty if there is none."""

    def append(self, record: Record) -> None:
        """Append a record; only after a picture that this object has written."""

    def replace(self, picture: Record) -> None:
        """Replace the whole log with a picture."""

    def close(self) -> None:
        """Release its resources."""


class FileStore:
    """The log as a file in `directory`, which is created."""

    def __init__(self, directory: str) -> None:
        self._path = Path(directory, FILE)
        self._file: Any = None

    def load(self) -> list[Record]:
        """See `OffsetStore`."""
        found: list[Record] = []
        try:
            lines = self._path.read_text().splitlines(keepends=True)
        except FileNotFoundError:
            return []
        for line in lines:
            if not line.endswith("\n"):
                break  # half a record: its writer died
            try:
                found.append(json.loads(line))
            except ValueError:
                break  # the machine lost power: the rest may be anything
        return found

    def append(self, record: Record) -> None:
        """See `OffsetStore`."""
        if self._file is None:
            self._file = self._path.open("ab")
        self._file.write(_line(record))
        self._file.flush()

    def replace(self, picture: Record) -> None:
        """See `OffsetStore`."""
        self.close()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        publish_bytes(pafs.LocalFileSystem(), str(self._path), _line(picture))

    def close(self) -> None:
        """See `OffsetStore`."""
        if self._file is not None:
            self._file.close()
            self._file = None


class TopicStore:
    """The log in the first partition of `topic`, under keys that begin with `name`.

    The topic is created if it is missing, compacted. Raises `InputError` for one that is not compacted.
    """

    def __init__(
        self,
        spark: SparkSession,
        admin: KafkaAdmin,
        settings: Mapping[str, str],
        topic: str,
        name: str,
    ) -> None:
        self._jvm = spark._jvm
        self._admin = admin
        self._settings = dict(settings)
        self._topic = topic
        self._name = name
        self._producer: Any = None
        self._written: list[int] = []  # the records that the next picture replaces
        self._next = 0

    def load(self) -> list[Record]:
        """See `OffsetStore`."""
        if not self._admin.topics([self._topic]):
            return []
        newest: dict[str, str | None] = {}
        for key, value in self._messages():
            if key.startswith(f"{self._name}/"):
                newest[key.removeprefix(f"{self._name}/")] = value
        latest = newest.pop("picture", None)
        if latest is None:
            return []
        picture = json.loads(latest)
        after = int(picture["after"])
        records = {int(n): json.loads(v) for n, v in newest.items() if v is not None and int(n) >= after}
        # Some of the records that the picture has replaced may not be deleted yet.
        self._written = sorted(int(n) for n, v in newest.items() if v is not None)
        self._next = max([after, *(n + 1 for n in self._written)])
        return [picture, *(records[n] for n in sorted(records))]

    def append(self, record: Record) -> None:
        """See `OffsetStore`."""
        self._send(str(self._next), json.dumps(record), wait=True)
        self._written.append(self._next)
        self._next += 1

    def replace(self, picture: Record) -> None:
        """See `OffsetStore`."""
        if self._producer is None:
            self._admin.make_compacted(self._topic)
        self._send("picture", json.dumps({**picture, "after": self._next}), wait=True)
        for number in self._written:
            self._send(str(number), None, wait=False)
        self._written = []

    def close(self) -> None:
        """See `OffsetStore`."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close(self._jvm.java.time.Duration.ofSeconds(5))

    def _send(self, key: str, value: str | None, *, wait: bool) -> None:
        kafka = self._jvm.org.apache.kafka
        try:
            if self._producer is None:
                text = kafka.common.serialization.StringSerializer
                properties = self._properties({"acks": "all", "delivery.timeout.ms": "60000"})
                self._producer = kafka.clients.producer.KafkaProducer(properties, text(), text())
            key = f"{self._name}/{key}"
            partition = self._jvm.java.lang.Integer.valueOf(0)
            record = kafka.clients.producer.ProducerRecord(self._topic, partition, key, value)
            sent = self._producer.send(record)
            if wait:
                sent.get(60, self._jvm.java.util.concurrent.TimeUnit.SECONDS)
        except Py4JJavaError as error:
            raise self._admin.meant(error) from None  # its text may contain secrets

    def _messages(self) -> list[tuple[str, str | None]]:
        """All records in the partition, oldest first."""
        place = (self._topic, 0)
        kafka, found = self._jvm.org.apache.kafka, []
        end = self._admin.offsets([place], "latest")[place]
        try:
            text = kafka.common.serialization.StringDeserializer
            properties = self._properties({"enable.auto.commit": "false", "auto.offset.reset": "earliest"})
            consumer = kafka.clients.consumer.KafkaConsumer(properties, text(), text())
            try:
                partition = kafka.common.TopicPartition(*place)
                assigned = self._jvm.java.util.ArrayList()
                assigned.add(partition)
                consumer.assign(assigned)
                consumer.seekToBeginning(assigned)
                deadline = time.monotonic() + READ_S
                while int(consumer.position(partition)) < end:
                    if time.monotonic() > deadline:
                        raise UnavailableError(
                            "the offset index cannot be read", where=f"topic {self._topic}", got="no answer"
                        )
                    polled = consumer.poll(self._jvm.java.time.Duration.ofMillis(_POLL_MS))
                    records = polled.records(partition)
                    found += [(str(record.key()), record.value()) for record in records]
            finally:
                consumer.close()
        except Py4JJavaError as error:
            raise self._admin.meant(error) from None
        return found

    def _properties(self, more: Mapping[str, str]) -> Any:
        properties = self._jvm.java.util.Properties()
        for name, value in {**self._settings, **more}.items():
            properties.setProperty(name, value)
        return properties


def _line(record: Record) -> bytes:
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"

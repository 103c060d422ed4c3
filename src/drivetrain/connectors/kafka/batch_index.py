"""Records timestamps of every batch of a Kafka source, so that replays are exact for any disorder.

The problem: the offset of a message does not tell when it happened, and Kafka can look up only its own
timestamps. So a replay would have to read everything, or to assume that both are alike.

The design: `core.replay.offset_index` on an `OffsetStore`, fed with the largest timestamps that Spark
computes for the clock anyway. A batch is recorded after it ran and before Spark commits it, so one that ran
twice is recorded twice, identically. A record that cannot be written (a full disk, unreachable brokers) stops
no batch: it is written with the next picture, or is a gap if the process dies before.

The index belongs to the application, not to one of its lives: a replay begins a new life, and the index
continues. Starting over makes a new one. Facts about another event time, or about a topic that was replaced,
are ignored.

Invariants:

1. No message at or after the moment is before the offset of `start`; see `core.replay.offset_index`.
2. A life that a replay began sees no message before its moment; it records none of them as older than that.

Called by the Kafka source's adapter.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from drivetrain.connectors.kafka.kafka_admin import Partition
from drivetrain.connectors.kafka.offset_store import OffsetStore, Record
from drivetrain.core.replay.offset_index import NOTHING_MS, UNKNOWN_MS, OffsetIndex, Steps
from drivetrain.errors import DrivetrainError
from drivetrain.spark.connector.newest import Newest

log = logging.getLogger("drivetrain.kafka")

RECORDS = 256
"""After how many batches a picture is written."""
_STEPS = 256
_ALL_STEPS = 24_000
"""Limits a picture to a message that every broker accepts."""

Offsets = Mapping[Partition, int]


class KafkaIndex:
    """The index of one source by event time `column`, whose topics have the ids `topics`."""

    def __init__(self, store: OffsetStore, column: str, topics: Mapping[str, str], partitions: int) -> None:
        self._store = store
        self._column = column
        self._topics = dict(topics)
        self._core = OffsetIndex(max(4, min(_STEPS, _ALL_STEPS // max(1, partitions))))
        self._loaded = False
        self._appended: int | None = None  # records since this process's picture; None: there is none
        self._failed = False

    def renew(self, first: Offsets) -> None:
        """Begin a new index: the application takes the messages from these offsets on."""
        self._core = OffsetIndex(self._core.limit)
        self._loaded = True
        for partition, offset in first.items():
            self._core.begin(partition, offset)
        self._write(self._picture())

    def start(self, partition: Partition, from_ms: int) -> int | None:
        """The offset at which a replay of a partition begins; None if unknown.

        Raises the error of the store if it cannot be read.
        """
        self._load()
        return self._core.start(partition, from_ms)

    def record(
        self, before: Offsets, at: Offsets, newest_ms: Mapping[Partition, int | None], floor_ms: int | None
    ) -> None:
        """Record a batch between two offsets; see `newest_of`. `floor_ms` is the moment of invariant 2."""
        took: dict[str, dict[str, list[int | None]]] = {}
        try:
            self._load()
        except (OSError, DrivetrainError) as error:
            self._warn(error)
            return
        for partition, end in at.items():
            start, ms = before.get(partition, 0), newest_ms.get(partition)
            if floor_ms is not None:
                ms = max(floor_ms, NOTHING_MS if ms is None else ms)
            if start <= end and self._core.record(partition, start, end, ms):
                took.setdefault(partition[0], {})[str(partition[1])] = [start, end, ms]
        if took or self._failed:
            self._write({"took": took})

    def replaced(self, topic: str, id: str) -> None:
        """Note that a topic was replaced: its records are no longer true."""
        self._topics[topic] = id
        self._core.forget(topic)
        self._appended = None

    def close(self) -> None:
        """Close the store."""
        self._store.close()

    def _load(self) -> None:
        if self._loaded:
            return
        records = self._store.load()
        self._loaded = True
        if not records or records[0].get("column") != self._column:
            return
        known = records[0]["topics"]
        for topic, partitions in records[0]["all"].items():
            for number, (begin, steps) in partitions.items():
                read = Steps(begin, [(offset, ms) for offset, ms in steps])
                self._core.partitions[topic, int(number)] = read
        for record in records[1:]:
            for topic, partitions in record["took"].items():
                for number, (start, end, ms) in partitions.items():
                    self._core.record((topic, int(number)), start, end, ms)
        for topic, id in self._topics.items():
            if known.get(topic, id) != id:
                self._core.forget(topic)
        self._core.check()

    def _picture(self) -> Record:
        all: dict[str, dict[str, object]] = {}
        for (topic, number), known in sorted(self._core.partitions.items()):
            all.setdefault(topic, {})[str(number)] = [known.begin, known.steps]
        return {"column": self._column, "topics": self._topics, "all": all}

    def _write(self, record: Record) -> None:
        try:
            # Another process may have left half a record, after which nothing can be appended.
            if self._appended is None or self._failed or self._appended >= RECORDS:
                self._store.replace(self._picture())
                self._appended = 0
            else:
                self._store.append(record)
                self._appended += 1
            self._failed = False
        except (OSError, DrivetrainError) as error:
            self._warn(error)

    def _warn(self, error: Exception) -> None:
        if not self._failed:
            log.warning("the offset index cannot be kept; replays may begin earlier than needed: %s", error)
        self._failed = True


def newest_of(newest: Newest | None, numbers: Mapping[Partition, int]) -> dict[Partition, int | None]:
    """The newest timestamp of each partition in a batch, or an upper bound; None: it had no messages.

    `newest` are the observed timestamps, `numbers` the partitions' numbers (`PART`).
    """
    if newest is None or not (newest.is_partitioned or newest.newest_ms is not None):
        return dict.fromkeys(numbers, UNKNOWN_MS)
    if not newest.is_partitioned or newest.unknown:
        return {p: newest.by_partition.get(number, newest.newest_ms) for p, number in numbers.items()}
    return {p: newest.by_partition.get(number) for p, number in numbers.items()}

"""Where a Kafka source begins and ends: the user's places as fixed offsets.

The problem: "latest" and "from 10 o'clock" mean other offsets a moment later, topics get partitions, and a
process may die between resolving and reading. The meaning at the first start must hold for the lifetime of
the state.

The design: `Places` are resolved once, stored next to the checkpoint before anything is read, and from then
on only extended, by partitions that were added and topics that newly match a pattern: they begin at their
oldest message.

Each partition has a number, for its clock. Numbers are dense, in the order in which partitions were found,
and stored. Partitions that appear while the query runs share one number, the next one: it
shows the engine that there are more than it knows. Then it opens the source again, and each gets its own.

A time means every message at or after it, however disordered the topic is. Kafka finds the first offset whose
*message timestamp* is not before a time, exactly. So with Kafka's timestamps that offset and a filter are
enough; with an event time from a column, whose values may be later than Kafka's timestamps by at most the
declared disorder, the search begins that much earlier.

What if we die here: the file is replaced atomically before Spark's first batch; the next start uses places
that were resolved but not used yet.

Invariants:

1. A place, once written, never changes; a partition keeps its number; numbers are 0, 1, 2, …
2. A topic's id is that of the topic that was read: another id means that the topic was replaced.
3. An offset that was deleted before it was read is counted once, in whatever process, however often its batch
   runs.

Called by the Kafka source's adapter. The start of a replay comes from `batch_index`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.fs as pafs
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from drivetrain.api.connectors.kafka import Kafka, TopicPosition
from drivetrain.connectors.kafka.kafka_admin import KafkaAdmin, Partition, Topic
from drivetrain.errors import InputError
from drivetrain.runtime.whole_files import publish_bytes

FILE = "kafka.json"


@dataclass
class Places:
    """The stored facts about a source's partitions: first and end offsets, topic ids, numbers, and losses.

    `lost` counts messages that were deleted before they were read, up to the offsets in `lost_below`.
    """

    first: dict[Partition, int] = field(default_factory=dict)
    end: dict[Partition, int] | None = None
    topics: dict[str, str] = field(default_factory=dict)
    numbers: dict[Partition, int] = field(default_factory=dict)
    lost: int = 0
    lost_below: dict[Partition, int] = field(default_factory=dict)

    @classmethod
    def load(cls, directory: str) -> Places | None:
        """The stored places, or None."""
        try:
            content = json.loads(Path(directory, FILE).read_text())
        except FileNotFoundError:
            return None
        end = None if content["end"] is None else offsets_of(content["end"])
        return cls(
            offsets_of(content["first"]),
            end,
            content["topics"],
            offsets_of(content["numbers"]),
            content["lost"],
            offsets_of(content["lost_below"]),
        )

    def save(self, directory: str) -> None:
        """Store them, durably, in one step."""
        Path(directory).mkdir(parents=True, exist_ok=True)
        content = {
            "first": nested(self.first),
            "end": None if self.end is None else nested(self.end),
            "topics": self.topics,
            "numbers": nested(self.numbers),
            "lost": self.lost,
            "lost_below": nested(self.lost_below),
        }
        publish_bytes(pafs.LocalFileSystem(), str(Path(directory, FILE)), json.dumps(content).encode())

    def know(self, topics: Mapping[str, Topic]) -> bool:
        """Number the partitions that have no number yet; returns whether there were any."""
        new = [p for p in partitions_of(topics) if p not in self.numbers]
        self.numbers.update({p: len(self.numbers) + n for n, p in enumerate(new)})
        return bool(new)

    def lose(self, partition: Partition, start: int, upto: int) -> int:
        """Count the offsets from `start` to `upto` (exclusive) as lost; returns how many are new."""
        new = max(0, upto - max(start, self.lost_below.get(partition, 0)))
        if new:
            self.lost += new
            self.lost_below[partition] = upto
        return new

    def number(self) -> Column:
        """The number of a message's partition, from the columns `topic` and `partition`."""
        return by_partition(self.numbers, len(self.numbers))


def by_partition(numbers: Mapping[Partition, int], otherwise: int) -> Column:
    """The number of a message's partition, from the columns `topic` and `partition`, or `otherwise`."""
    by_topic: dict[str, dict[int, int]] = {}
    for (topic, n), number in numbers.items():
        by_topic.setdefault(topic, {})[n] = number
    found = F.when(F.lit(False), F.lit(otherwise))
    for topic, known in sorted(by_topic.items()):
        # An array, not a case for each: there may be hundreds of partitions, and it runs per message.
        numbered = F.array(*(F.lit(known.get(n, otherwise)) for n in range(max(known) + 1)))
        found = found.when(F.col("topic") == topic, F.get(numbered, F.col("partition")))
    return F.coalesce(found, F.lit(otherwise))


def offsets_of(parsed: Mapping[str, Mapping[str, int]]) -> dict[Partition, int]:
    """Offsets by partition, from Spark's JSON: by topic and partition."""
    return {(topic, int(n)): int(offset) for topic, parts in parsed.items() for n, offset in parts.items()}


def nested(offsets: Mapping[Partition, int]) -> dict[str, dict[str, int]]:
    """Offsets in Spark's form; the opposite of `offsets_of`."""
    by_topic: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        by_topic.setdefault(topic, {})[str(partition)] = offset
    return by_topic


def partitions_of(topics: Mapping[str, Topic]) -> list[Partition]:
    """All partitions of topics."""
    return [(name, n) for name, topic in sorted(topics.items()) for n in range(topic.partitions)]


def is_kafka_time(source: Kafka, column: str | None) -> bool:
    """Whether a column of the source is Kafka's timestamp, rather than one of the message's own."""
    return column == "timestamp" and "timestamp" in source.columns


def offsets_for(
    admin: KafkaAdmin, partitions: Iterable[Partition], time_ms: int, disorder_ms: int = 0
) -> dict[Partition, int]:
    """The offsets from which no message at or after `time_ms` is missed; older ones must be filtered out.

    `disorder_ms` is how much later than Kafka's timestamp a message's own time may be: 0 if it is Kafka's.
    """
    return admin.offsets(partitions, max(0, time_ms - disorder_ms))


def resolve_start(
    admin: KafkaAdmin, place: TopicPosition, partitions: list[Partition], disorder_ms: int, where: str
) -> dict[Partition, int]:
    """The offsets at which reading begins; raises `InputError` when given ones no longer exist."""
    if place.word is not None:
        return admin.offsets(partitions, place.word)
    if place.ms is not None:
        return offsets_for(admin, partitions, place.ms, disorder_ms)
    earliest, latest = admin.offsets(partitions, "earliest"), admin.offsets(partitions, "latest")
    given = _given(place, partitions, where)
    for partition, offset in given.items():
        if not earliest[partition] <= offset <= latest[partition]:
            raise InputError(
                "the source cannot start at this offset",
                where=f"{where}, topic {partition[0]}, partition {partition[1]}",
                expected=f"{earliest[partition]} to {latest[partition]}, which is what Kafka has",
                got=str(offset),
                remedy="give an offset in that range",
            )
    return {**earliest, **given}


def resolve_end(
    admin: KafkaAdmin, place: TopicPosition, partitions: list[Partition], disorder_ms: int, where: str
) -> dict[Partition, int]:
    """The offsets, exclusive, at which reading ends; partitions that are not named end at once."""
    if place.word is not None:
        return admin.offsets(partitions, place.word)
    if place.ms is not None:
        return admin.offsets(partitions, place.ms + disorder_ms)
    return {**dict.fromkeys(partitions, 0), **_given(place, partitions, where)}


def _given(place: TopicPosition, partitions: list[Partition], where: str) -> dict[Partition, int]:
    topics = sorted({topic for topic, _ in partitions})
    found: dict[Partition, int] = {}
    for topic, n, offset in place.offsets:
        if not topic and len(topics) != 1:
            raise InputError(
                "offsets of several topics must name them",
                where=where,
                expected="{topic: {partition: offset}}",
                got=f"{{{n}: {offset}}}",
            )
        partition = (topic or topics[0], n)
        if partition not in partitions:
            raise InputError(
                "there is no such partition",
                where=where,
                expected=f"one of the {len(partitions)} of {', '.join(topics)}",
                got=f"topic {partition[0]}, partition {n}",
            )
        found[partition] = offset
    return found

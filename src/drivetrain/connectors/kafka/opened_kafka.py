"""An opened Kafka source: checks its topics before a batch, reports its position, commits to a group.

The problem: a topic that is deleted and created again has the same name and other messages. Kafka deletes
messages older than the retention, read or not. Spark notices the second when it reads, and the first only if
the new topic is shorter; and its report names no offsets.

The design: before a batch the ids of its topics are compared with those of the topics read so far. When Spark
reports that data was lost, the brokers are asked what they still have, so that the error can name the missing
offsets. Under `on_data_loss="continue"` both are logged and counted, and reading continues with what is left.
After a batch its offsets are committed to the user's consumer group, for Kafka's tools to show; a failure of
that is reported once.

Invariants:

1. Under `fail`, no batch mixes messages of two topics of one name, and none silently omits messages.
2. The group's offsets are those of committed batches, never ahead of them.

Made by `kafka_source`; called by the engine as an `OpenedSource`.
"""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from drivetrain.api.connectors.kafka import Kafka
from drivetrain.api.durations import milliseconds
from drivetrain.connectors.kafka.batch_index import KafkaIndex, newest_of
from drivetrain.connectors.kafka.kafka_admin import KafkaAdmin, Partition
from drivetrain.connectors.kafka.message_decoder import bad_message
from drivetrain.connectors.kafka.replay_start import gone_text, replay_start
from drivetrain.connectors.kafka.start_and_end import Places, nested, offsets_of
from drivetrain.errors import DrivetrainError, InputError, UnavailableError, UserError
from drivetrain.spark.connector.newest import Newest
from drivetrain.spark.connector.source import BAD_COLUMN, OpenedSource, Position, SourceContext
from drivetrain.spark.session.offset_log import committed, read_offsets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger("drivetrain.kafka")

_LOST = re.compile(
    r"failOnDataLoss|data may have been|OffsetOutOfRange|offset was changed|Cannot fetch offset"
    r"|KAFKA_DATA_LOSS|UnknownTopicOrPartition|Partitions? .* (?:have|has) been (?:lost|deleted)"
)
_AWAY = re.compile(
    r"(?:org\.apache\.kafka\S*?\.)?(TimeoutException|DisconnectException|NetworkException)\b:?(.*)"
)
_ERROR = re.compile(r"org\.apache\.kafka\.common\.(?:errors\.|config\.)?(\w+Exception):? ?([^\n]*)")
_REMEDY = (
    'start over with --fresh, or continue with what is still there: on_data_loss="continue"; to avoid it, '
    "let the topic keep messages for longer than the application may be away"
)


class OpenedKafka(OpenedSource):
    """One Kafka source while it runs; the rows `df` have the column `PART` if `is_partitioned`."""

    reader = "kafka"
    how_read = "read by Spark's Kafka connector"

    def __init__(
        self,
        source: Kafka,
        admin: KafkaAdmin,
        places: Places,
        context: SourceContext,
        index: KafkaIndex | None,
        df: DataFrame,
        max_messages: int,
        *,
        is_partitioned: bool,
    ) -> None:
        self._max_messages = max_messages
        self._replay_column = context.replay_column
        self._source = source
        self._admin = admin
        self._places = places
        self._index = index
        self._state_dir = context.state_dir
        self._spark_log = Path(context.spark_log) if context.spark_log else None
        self._replay_from_ms = context.replay_from_ms
        self._group_failed = False
        self.df = df
        self.bounded = source.bounded
        self.total = self.position(None).total
        self.bad_column = BAD_COLUMN if source.on_bad_record == "dead_letter" else None
        self.partitions = len(places.numbers) if is_partitioned else 0
        self.idle_ms = milliseconds(source.idle_timeout, "idle_timeout") if source.idle_timeout else None

    def lost(self) -> int:
        """How many messages were deleted before they were read, since the state began."""
        return self._places.lost

    # -- position ----------------------------------------------------------------------------------

    def position(self, offset: str | None) -> Position:
        """Messages taken up to an end offset, as a difference of offsets, at most to the source's end."""
        at = offsets_of(json.loads(offset)) if offset else self._places.first
        first, end = self._places.first, self._places.end
        if end is None:
            return Position(sum(max(0, n - first.get(p, 0)) for p, n in at.items()), None, finished=False)
        taken = {p: min(at.get(p, first.get(p, 0)), n) for p, n in end.items()}
        done = sum(max(0, n - first.get(p, 0)) for p, n in taken.items())
        total = sum(max(0, n - first.get(p, 0)) for p, n in end.items())
        return Position(done, total, finished=all(at.get(p, first.get(p, 0)) >= n for p, n in end.items()))

    def taken_of_partitions(self, before: str | None, offset: str | None) -> Mapping[int, int]:
        """Messages by the number of their partition, counted by offsets; empty of a single partition."""
        if offset is None or not self.partitions:
            return {}
        start = {**self._places.first, **(offsets_of(json.loads(before) or {}) if before else {})}
        numbers = self._places.numbers
        at = offsets_of(json.loads(offset))
        return {numbers[p]: max(0, n - start.get(p, n)) for p, n in at.items() if p in numbers}

    # -- again ---------------------------------------------------------------------------------------

    def history_start(self, from_ms: int, end: str) -> str | None:
        """Before the first message that may be of that time; raises `InputError` when some were deleted."""
        first = dict(self._places.first)
        later = [partition for partition in self._places.numbers if partition not in first]
        first |= self._admin.offsets(later, "earliest") if later else {}
        args = self._source, self._replay_column, from_ms, self._admin, self._index
        begins, to = replay_start(*args, first), offsets_of(json.loads(end))
        return json.dumps(nested({p: min(begins.get(p, 0), n) for p, n in to.items()}))

    def history_part(self, start: str | None, end: str, fraction: float) -> str:
        """The same share of what remains of every partition."""
        at, to = offsets_of(json.loads(start or "{}")), offsets_of(json.loads(end))
        begins = {p: min(at.get(p, 0), n) for p, n in to.items()}
        left = sum(n - begins[p] for p, n in to.items())
        share = max(1, int(self._max_messages * fraction)) / left if left else 1
        if share >= 1:
            return end
        cut = {p: min(n, begins[p] + math.ceil((n - begins[p]) * share)) for p, n in to.items()}
        return end if cut == to else json.dumps(nested(cut))

    # -- before a batch ----------------------------------------------------------------------------

    def check(self, offset: str | None) -> None:
        """Raise `InputError` unless the topics of a batch up to `offset` are those read so far."""
        if offset is None:
            return
        at = offsets_of(json.loads(offset))
        names = sorted({topic for topic, _ in at} | set(self._places.topics))
        is_known = len(names) == len(self._places.topics)
        if not (is_known and self._admin.has_topics(self._places.topics.values())):
            self._look_at_topics(names)
        if self._source.on_data_loss == "continue":
            self._count_lost(at)

    def _look_at_topics(self, names: list[str]) -> None:
        """Find out which topic is new, gone or another one."""
        found = self._admin.topics(names)
        changed = False
        for name in names:
            known, now = self._places.topics.get(name), found.get(name)
            if now is None:
                self._report_lost(f"the topic {name} was deleted", f"topic {name}")
                continue
            if known is not None and known != now.id:
                self._report_lost(f"the topic {name} was deleted and created again", f"topic {name}")
                self._places.lost_below = {p: n for p, n in self._places.lost_below.items() if p[0] != name}
                if self._index is not None:
                    self._index.replaced(name, now.id)
            changed |= known != now.id
            self._places.topics[name] = now.id
        if changed:
            self._places.save(self._state_dir)

    def _report_lost(self, what: str, where: str) -> None:
        if self._source.on_data_loss == "fail":
            raise InputError(
                what,
                where=f"{self._source.name}, {where}",
                expected="the topic that was read from so far",
                remedy=_REMEDY,
            )
        log.warning("%s: %s; continuing with what is left", self._source.name, what)

    def _count_lost(self, at: dict[Partition, int]) -> None:
        gone = [place for place in self._gone(at) if self._places.lose(*place)]
        if gone:
            self._places.save(self._state_dir)
            log.warning(
                "%s: messages were deleted before they were read: %s", self._source.name, gone_text(gone)
            )

    def _gone(self, at: dict[Partition, int]) -> list[tuple[Partition, int, int]]:
        """Missing offsets of the batch up to `at` in the brokers: partition, from, to (exclusive)."""
        before = self._start()
        topics = self._admin.topics({topic for topic, _ in at})
        there = [p for p in at if p[0] in topics and p[1] < topics[p[0]].partitions]
        earliest = self._admin.offsets(there, "earliest") if there else {}
        found: list[tuple[Partition, int, int]] = []
        for partition, end in sorted(at.items()):
            start = before.get(partition, 0)
            upto = min(end, earliest.get(partition, end))
            if start < upto:
                found.append((partition, start, upto))
        return found

    def _start(self) -> dict[Partition, int]:
        """Where the running batch begins: where, by Spark's logs, the last committed one ended."""
        if self._spark_log is not None:
            checkpoint = self._spark_log.parents[1]
            batch = committed(checkpoint)
            if batch >= 0:
                _, offsets = read_offsets(checkpoint / "offsets" / str(batch))
                offset = offsets[int(self._spark_log.name)]
                if offset is not None:
                    return offsets_of(json.loads(offset))
            initial = self._spark_log / "0"
            if initial.is_file():
                return offsets_of(json.loads(initial.read_text().splitlines()[-1]))
        return self._places.first

    # -- after a failure ---------------------------------------------------------------------------

    def explain(self, text: str) -> DrivetrainError | None:
        """The error for Spark's report of a failed batch, if it is about this source."""
        bad = bad_message(text, self._source.name)
        if bad is not None:
            return bad
        if _LOST.search(text):
            return self._loss(text)
        report = self._admin.scrubbed(text)
        away = _AWAY.search(report)
        if away is not None and "org.apache.kafka" in report:
            return UnavailableError(
                "Kafka did not answer",
                where=self._source.name,
                got=f"{away[1]}: {away[2].strip()[:300]}",
                remedy="run the same command again when the broker is back: it continues where it stopped",
            )
        found = _ERROR.search(report)
        if found is not None or report != text:
            return UserError(
                "Kafka cannot be read",
                where=self._source.name,
                got=f"{found[1]}: {found[2][:300]}" if found else report[:300],
                remedy="check the source's options, and the rights of its user",
            )
        return None

    def _loss(self, text: str) -> DrivetrainError:
        found = [line for line in self._admin.scrubbed(text).splitlines() if _LOST.search(line)] or [""]
        try:
            topics = self._admin.topics(self._places.topics)
            ends = self._admin.offsets(
                [(name, n) for name, topic in topics.items() for n in range(topic.partitions)], "latest"
            )
            gone = self._gone(ends)
        except DrivetrainError as error:
            return error
        missing = sorted(set(self._places.topics) - set(topics))
        lost = gone_text(gone) or "; ".join(f"topic {name} was deleted" for name in missing)
        return InputError(
            "messages were deleted in Kafka before they were read",
            where=self._source.name,
            got=lost or found[0][:300],
            remedy=_REMEDY,
        )

    # -- after a batch -----------------------------------------------------------------------------

    def ran(self, before: str | None, offset: str | None, newest: Newest | None) -> None:
        """Record the largest timestamps of a batch that began at `before`; never fails."""
        if self._index is None or offset is None:
            return
        at = offsets_of(json.loads(offset))
        begin = dict(self._places.first)
        if before is not None:
            begin = {**begin, **offsets_of(json.loads(before))}
        unknown = len(self._places.numbers)  # partitions found after the query was compiled
        numbers = {p: self._places.numbers.get(p, unknown) for p in at}
        floor_ms = None if self._replay_from_ms is None else self._replay_from_ms - 1
        self._index.record(begin, at, newest_of(newest, numbers), floor_ms)

    def close(self) -> None:
        """Close the connections."""
        self._admin.close()
        if self._index is not None:
            self._index.close()

    def committed(self, offset: str | None) -> None:
        """Commit the offsets of the user's consumer group to Kafka, if there is one; never fails."""
        if self._source.group is None or offset is None:
            return
        try:
            failure = self._admin.commit(self._source.group, offsets_of(json.loads(offset)))
        except DrivetrainError as error:
            failure = str(error)
        if failure is not None and not self._group_failed:
            log.warning("offsets cannot be committed to the group %s: %s", self._source.group, failure)
        self._group_failed = failure is not None

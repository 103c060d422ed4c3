"""The Kafka source: Spark's connector, with fixed start and end, checks, and decoded messages.

The problem: Spark's connector reads well and fast; but it resolves "latest" again if a process dies before
its first batch, has no end, does not notice that a topic was replaced, and delivers bytes.

The design: the connector reads. Its start is resolved beforehand and passed as offsets (`start_and_end`); an
end is a filter by partition and offset, and the engine stops the query when the offsets have passed it. The
connector limits a batch by its number of messages, which follows from the limit in bytes and the brokers'
average size of a message. By default, transactions that were not committed are not read.

Invariants:

1. A batch that runs again has the same messages: its offsets are in Spark's log before it runs.
2. With an end, no message at or after it is delivered, and the source is finished when all before it were.
3. From a time on, no message before it is delivered, and none at or after it is missed.
4. A replay misses no message at or after its moment that the brokers still have, and reports missing ones.

Called by `kafka.connector`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from drivetrain.api.connectors.kafka import Kafka
from drivetrain.api.durations import milliseconds
from drivetrain.config.references import resolved_options
from drivetrain.connectors.kafka.batch_index import KafkaIndex
from drivetrain.connectors.kafka.client_options import for_spark, reading
from drivetrain.connectors.kafka.kafka_admin import KafkaAdmin, Topic
from drivetrain.connectors.kafka.message_decoder import HIDDEN, Decoded, decoded
from drivetrain.connectors.kafka.offset_store import FileStore, OffsetStore, TopicStore
from drivetrain.connectors.kafka.opened_kafka import OpenedKafka
from drivetrain.connectors.kafka.replay_start import replay_start
from drivetrain.connectors.kafka.start_and_end import (
    Places,
    by_partition,
    is_kafka_time,
    nested,
    partitions_of,
    resolve_end,
    resolve_start,
)
from drivetrain.errors import DrivetrainError, InputError
from drivetrain.runtime.channel.columns import PART
from drivetrain.spark.connector.source import SourceContext

log = logging.getLogger("drivetrain.kafka")

OPEN_TIMEOUT_MS = 20_000
_MESSAGE_BYTES = 1024
"""The assumed size of a message if the brokers cannot report it: an empty topic, or missing rights."""


def open_kafka(source: Kafka, context: SourceContext) -> OpenedKafka:
    """Open a Kafka source; raises `InputError` or `UnavailableError`, before anything runs."""
    given = {"isolation.level": "read_committed", **context.kafka_options, **dict(source.options)}
    options = resolved_options(given, source.name)
    opening = KafkaAdmin(context.spark, source.bootstrap, options, source.name, OPEN_TIMEOUT_MS)
    try:
        topics = _topics(source, opening)
        started = context.spark_log is not None and Path(context.spark_log, "0").is_file()
        index = _index(source, context, opening, options, topics)
        try:
            places = _places(source, context, opening, topics, index, started=started)
        finally:
            if index is not None:
                index.close()
        limit = _max_messages(opening, topics, context)
    finally:
        opening.close()
    client = reading(realtime=context.realtime) | options
    reader = context.spark.readStream.format("kafka").options(**for_spark(client))
    reader = reader.option("kafka.bootstrap.servers", source.bootstrap)
    subscribed = (
        ("subscribePattern", source.pattern) if source.pattern else ("subscribe", ",".join(source.topics))
    )
    reader = reader.option(*subscribed)
    if places.first and not started:
        reader = reader.option("startingOffsets", json.dumps(nested(places.first)))
    else:
        reader = reader.option("startingOffsets", "earliest")
    if not context.realtime:
        reader = reader.option("maxOffsetsPerTrigger", limit)
    reader = reader.option("failOnDataLoss", str(source.on_data_loss == "fail").lower())
    reader = reader.option("includeHeaders", str("headers" in source.columns).lower())
    is_parted = context.timed or context.realtime
    rows = _until(reader.load(), places)
    messages = _within(decoded(rows.withColumn(PART, places.number()) if is_parted else rows, source), source)
    df = messages.rows(source, *([F.col(HIDDEN + PART).alias(PART)] if is_parted else []))
    admin = KafkaAdmin(context.spark, source.bootstrap, options, source.name)
    index = _index(source, context, admin, options, topics)
    return OpenedKafka(source, admin, places, context, index, df, limit, is_partitioned=is_parted)


def _topics(source: Kafka, admin: KafkaAdmin) -> dict[str, Topic]:
    found = admin.topics(source.topics, source.pattern)
    missing = [name for name in source.topics if name not in found]
    if missing or (not found and source.bounded):
        raise InputError(
            f"there is no topic {', '.join(missing)}" if missing else "no topic has a name like the pattern",
            where=source.name,
            remedy="create it first, or correct the name",
        )
    return found


def _index(
    source: Kafka,
    context: SourceContext,
    admin: KafkaAdmin,
    options: Mapping[str, str],
    topics: Mapping[str, Topic],
) -> KafkaIndex | None:
    """The index for replays; None if no replay can use it: without an event time column."""
    if context.replay_column is None or context.lasting_dir is None:
        return None
    store: OffsetStore
    if source.offset_topic is None:
        store = FileStore(context.lasting_dir)
    else:
        settings = {**options, "bootstrap.servers": source.bootstrap}
        name = f"{context.app_id}/{context.source_id}"
        store = TopicStore(context.spark, admin, settings, source.offset_topic, name)
    ids = {name: topic.id for name, topic in topics.items()}
    return KafkaIndex(store, context.replay_column, ids, len(partitions_of(topics)))


def _places(
    source: Kafka,
    context: SourceContext,
    admin: KafkaAdmin,
    topics: Mapping[str, Topic],
    index: KafkaIndex | None,
    *,
    started: bool,
) -> Places:
    """The places of an earlier start, or the current ones, saved."""
    places = Places.load(context.state_dir)
    partitions = partitions_of(topics)
    if places is None:
        disorder_ms = _disorder_ms(source)
        places = Places(topics={name: topic.id for name, topic in topics.items()})
        places.know(topics)
        places.first = resolve_start(admin, source.start, partitions, disorder_ms, source.name)
        if index is not None and context.replay_from_ms is None:
            index.renew(places.first)
        elif index is not None and not started:
            assert context.replay_from_ms is not None, "a replay"
            from_ms = context.replay_from_ms
            places.first = replay_start(source, context.replay_column, from_ms, admin, index, places.first)
        if source.end is not None:
            beyond_ms = milliseconds(source.max_disorder or "0 s", "max_disorder")
            places.end = resolve_end(admin, source.end, partitions, beyond_ms, source.name)
        places.save(context.state_dir)
        return places
    changed = places.know(topics)
    new = [p for p in partitions if p not in places.first]
    if new and not started:  # added between a start that failed and this one
        places.first.update(admin.offsets(new, "earliest"))
        changed = True
    if changed:
        places.save(context.state_dir)
    return places


def _disorder_ms(source: Kafka) -> int:
    """How much later than Kafka's timestamp a message's own timestamp may be."""
    if source.event_time is None or is_kafka_time(source, source.event_time):
        return 0
    return milliseconds(source.max_disorder or "0 s", "max_disorder")


def _until(df: DataFrame, places: Places) -> DataFrame:
    """The connector's rows before the end."""
    return df if places.end is None else df.where(F.col("offset") < by_partition(places.end, 0))


def _within(messages: Decoded, source: Kafka) -> Decoded:
    """The messages from the time of `start` on, and before that of `end`; bad ones have no time, and stay."""
    conditions = []
    if source.start.ms is not None:
        conditions.append(messages.time >= F.timestamp_millis(F.lit(source.start.ms)))
    if source.end is not None and source.end.ms is not None:
        conditions.append(messages.time < F.timestamp_millis(F.lit(source.end.ms)))
    for condition in conditions:
        messages = messages.where(messages.reason.isNotNull() | condition)
    return messages


def _max_messages(admin: KafkaAdmin, topics: Mapping[str, Topic], context: SourceContext) -> int:
    """How many messages one batch takes at most, from the limits in bytes and rows."""
    partitions = partitions_of(topics)
    try:
        sizes = admin.sizes()
        latest, earliest = admin.offsets(partitions, "latest"), admin.offsets(partitions, "earliest")
    except DrivetrainError as error:
        log.info("the size of messages is not known, %d bytes are assumed: %s", _MESSAGE_BYTES, error)
        sizes, latest, earliest = {}, {}, {}
    each = [_each(sizes.get(p, 0), latest.get(p, 0) - earliest.get(p, 0)) for p in partitions]
    by_bytes = max(1, context.max_batch_bytes // max([n for n in each if n] or [_MESSAGE_BYTES]))
    return min(by_bytes, context.max_batch_rows or by_bytes)


def _each(size_bytes: int, messages: int) -> int:
    return 0 if messages <= 0 else max(1, size_bytes // messages)

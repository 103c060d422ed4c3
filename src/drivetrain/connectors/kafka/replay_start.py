"""Where a Kafka topic is read again from, for all messages from a time on.

Problem and design: `core.replay.offset_index` has, for each partition, an offset below which no message is of
that time or later. Brokers delete old messages, so those from that offset on may be gone.

Invariants:

1. No message at or after the time lies before the start, unless it was deleted.

Called by `kafka_source`, for a replay, and by `opened_kafka`, for the former messages of a new fragment.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from drivetrain.api.connectors.kafka import Kafka
from drivetrain.connectors.kafka.batch_index import KafkaIndex
from drivetrain.connectors.kafka.kafka_admin import KafkaAdmin, Partition
from drivetrain.connectors.kafka.start_and_end import is_kafka_time, offsets_for
from drivetrain.errors import InputError

log = logging.getLogger("drivetrain.kafka")


def replay_start(
    source: Kafka,
    column: str | None,
    from_ms: int,
    admin: KafkaAdmin,
    index: KafkaIndex | None,
    first: Mapping[Partition, int],
) -> dict[Partition, int]:
    """The start of what is read again: by the index, else the source's; raises an error for deleted messages.

    `column` is the source's column with a message's timestamp, if there is one.
    """
    known = {p: None if index is None else index.start(p, from_ms) for p in first}
    begins = {p: offset if (indexed := known[p]) is None else indexed for p, offset in first.items()}
    earliest = admin.offsets(first, "earliest")
    gone = [(p, offset, earliest[p]) for p, offset in sorted(begins.items()) if offset < earliest[p]]
    if gone:
        if source.on_data_loss == "fail":
            raise InputError(
                "messages that the replay may need were deleted in Kafka",
                where=source.name,
                got=gone_text(gone),
                remedy='replay from a later moment, or what is still there: on_data_loss="continue"',
            )
        log.warning(
            "%s: the replay goes without messages that were deleted: %s", source.name, gone_text(gone)
        )
    # By its own timestamps Kafka finds the exact message, but no message that it has deleted.
    exact = offsets_for(admin, first, from_ms) if is_kafka_time(source, column) else {}
    return {p: max(offset, earliest[p], exact.get(p, 0)) for p, offset in begins.items()}


def gone_text(gone: Sequence[tuple[Partition, int, int]]) -> str:
    """The first few ranges of missing offsets as text; offsets inclusive."""
    parts = [
        f"topic {topic}, partition {partition}: offsets {start} to {upto - 1}"
        for (topic, partition), start, upto in gone[:5]
    ]
    return "; ".join(parts) + (f"; and {len(gone) - 5} partitions more" if len(gone) > 5 else "")

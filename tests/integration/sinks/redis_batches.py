"""A Redis sink in tests: how it is opened, and how a batch is prepared without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from arrow_frame import ArrowFrame

from drivetrain.api import sinks
from drivetrain.connectors.outbox import PreparedBatch
from drivetrain.connectors.redis.redis_writer import RedisWriter
from drivetrain.runtime.channel.columns import TS
from drivetrain.runtime.channel.segments import write_segment
from drivetrain.spark.connector.sink import SinkContext
from redis_server import RedisServer

PASSWORD = "REDIS_TEST_PASSWORD"


def opened(server: RedisServer, state: Path, *, id: str = "out", **settings: Any) -> RedisWriter:
    """The writer of a sink, as another process would open it."""
    return RedisWriter(sinks.redis(server.url(PASSWORD), **settings), SinkContext("app-1", id, str(state)))


def stage(writer: RedisWriter, batch: int, **columns: Any) -> None:
    """Store a batch as `prepare` does, without Spark."""
    timed = ArrowFrame(pa.table(columns)).withColumn(TS, None).toArrow()
    segment = write_segment(writer._outbox._files, "test", timed.to_batches())
    writer._outbox.prepare(PreparedBatch(batch, (segment,)))


def published(writer: RedisWriter, batch: int, **columns: Any) -> int:
    """Prepare a batch, and commit it; returns the number of rows that are new in Redis."""
    stage(writer, batch, **columns)
    return writer.commit(batch)


def entries(server: RedisServer, stream: str = "events") -> list[int]:
    """The field `id` of all entries of a stream."""
    return [int(fields["id"]) for _, fields in server.client().xrange(stream)]

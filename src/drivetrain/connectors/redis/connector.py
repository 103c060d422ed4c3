"""The connector of Redis."""

from __future__ import annotations

from drivetrain.api.connectors.redis_sink import RedisSink
from drivetrain.connectors.redis.redis_writer import RedisWriter
from drivetrain.spark.connector.connector import Connector
from drivetrain.spark.connector.sink import SinkContext, SinkWriter


class RedisConnector(Connector):
    """Keys and streams of Redis, written."""

    sinks = (RedisSink,)

    def open_sink(self, sink: RedisSink, context: SinkContext) -> SinkWriter:
        """The writer to a server."""
        return RedisWriter(sink, context)

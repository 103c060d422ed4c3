"""The connector of Kafka."""

from __future__ import annotations

from drivetrain.api.connectors.kafka import Kafka
from drivetrain.api.connectors.kafka_sink import KafkaSink
from drivetrain.config import Config
from drivetrain.connectors.kafka import kafka_sink, kafka_source
from drivetrain.connectors.kafka.broker_probe import validate_kafka
from drivetrain.spark.connector.connector import Connector
from drivetrain.spark.connector.sink import SinkContext, SinkWriter
from drivetrain.spark.connector.source import OpenedSource, SourceContext


class KafkaConnector(Connector):
    """Topics, read and written."""

    sources = (Kafka,)
    sinks = (KafkaSink,)

    def check_source(self, source: Kafka, config: Config) -> None:
        """Raise `UnavailableError` unless a broker listens."""
        validate_kafka(source)

    def open_source(self, source: Kafka, context: SourceContext, *, has_end_row: bool) -> OpenedSource:
        """Open the topics of `source`."""
        return kafka_source.open_kafka(source, context)

    def open_sink(self, sink: KafkaSink, context: SinkContext) -> SinkWriter:
        """The writer to a topic."""
        return kafka_sink.open_kafka(sink, context)

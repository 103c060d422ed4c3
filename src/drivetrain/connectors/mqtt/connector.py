"""The connector of MQTT."""

from __future__ import annotations

from pathlib import Path

from drivetrain.api.connectors.mqtt_source import Mqtt
from drivetrain.config import Config
from drivetrain.connectors.mqtt.mqtt_connection import require_broker
from drivetrain.connectors.mqtt.mqtt_feed import MqttFeed
from drivetrain.spark.connector.connector import Connector
from drivetrain.spark.connector.feed import Feed
from drivetrain.spark.connector.source import SourceContext


class MqttConnector(Connector):
    """Topics of a broker, read."""

    sources = (Mqtt,)

    def check_source(self, source: Mqtt, config: Config) -> None:
        """Raise an error unless a broker listens, and its certificate is right."""
        require_broker(source)

    def open_feed(self, source: Mqtt, context: SourceContext) -> Feed:
        """The messages of the source's topics."""
        client_id = source.client_id or f"drivetrain-{context.app_id}-{context.source_id}"
        return MqttFeed(source, client_id, Path(context.lasting_dir or context.state_dir))

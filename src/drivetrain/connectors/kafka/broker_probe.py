"""Checks within seconds, before Spark is started, whether a Kafka broker listens.

Called by `kafka.connector`.
"""

from __future__ import annotations

import socket

from drivetrain.api.connectors.kafka import Kafka
from drivetrain.errors import UnavailableError

REACH_S = 5.0


def validate_kafka(source: Kafka) -> None:
    """Raise `UnavailableError` unless one of the brokers listens; needs no Spark, takes seconds at most."""
    tried = []
    for address in source.bootstrap.split(","):
        host, _, port = address.strip().rpartition(":")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), timeout=REACH_S):
                return
        except (OSError, ValueError, OverflowError) as error:
            tried.append(f"{address}: {error}")
    raise UnavailableError(
        "no Kafka broker listens there",
        where=source.name,
        expected="host:port of a running broker, or several, separated by commas",
        got="; ".join(tried),
        remedy="start it, or correct bootstrap",
    )

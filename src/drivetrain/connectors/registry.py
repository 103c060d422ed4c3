"""Which connector opens a declaration: the built-in ones, and those of installed packages.

The problem: an application may read from and write to systems that Drivetrain does not know. The design: a
connector is a class (`spark.connector.connector`) that names the classes of its declarations. Built-in ones
are in `BUILT_IN`; a package registers its own with an entry point of the group `drivetrain.connectors`,
whose name is the connector's and whose value is the class:

    [project.entry-points."drivetrain.connectors"]
    pulsar = "drivetrain_pulsar:PulsarConnector"

Entry points are loaded when no built-in connector opens a declaration, once per process.

Invariants:

1. A built-in declaration is opened by the built-in connector, whatever is installed.
2. An entry point that cannot be loaded stops only applications with a declaration that nothing else opens,
   and the error names it.
3. Two installed connectors for one class are an error that names both: their order does not decide.

Called by `opening`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from drivetrain.connectors.delta.connector import DeltaConnector
from drivetrain.connectors.files.connector import FilesConnector
from drivetrain.connectors.iceberg.connector import IcebergConnector
from drivetrain.connectors.in_process.connector import (
    ApplicationConnector,
    ConsoleConnector,
    FunctionConnector,
    GeneratorConnector,
    ItemsConnector,
    MemoryConnector,
    NullConnector,
    SocketConnector,
)
from drivetrain.connectors.in_process.sent_messages import SentMessagesConnector
from drivetrain.connectors.kafka.connector import KafkaConnector
from drivetrain.connectors.mqtt.connector import MqttConnector
from drivetrain.connectors.redis.connector import RedisConnector
from drivetrain.connectors.sql.connector import SqlConnector
from drivetrain.errors import UserError
from drivetrain.spark.connector.connector import Connector
from drivetrain.spark.connector.installed import GROUP, installed_connectors

BUILT_IN: Mapping[str, Connector] = {
    "files": FilesConnector(),
    "generator": GeneratorConnector(),
    "items": ItemsConnector(),
    "socket": SocketConnector(),
    "application": ApplicationConnector(),
    "console": ConsoleConnector(),
    "function": FunctionConnector(),
    "memory": MemoryConnector(),
    "none": NullConnector(),
    "kafka": KafkaConnector(),
    "mqtt": MqttConnector(),
    "sql": SqlConnector(),
    "delta": DeltaConnector(),
    "iceberg": IcebergConnector(),
    "redis": RedisConnector(),
    "sent": SentMessagesConnector(),
}

Side = Literal["source", "sink"]


class ConnectorError(UserError):
    """A connector is missing, cannot be loaded, or two claim the same declaration."""

    code = "connector"


def connector_of(declaration: object, side: Side) -> Connector:
    """The connector that opens a source or a sink; raises `ConnectorError`."""
    built_in = _matching(BUILT_IN, declaration, side)
    if built_in:
        return BUILT_IN[built_in[0]]
    installed = installed_connectors()
    found = _matching(installed.connectors, declaration, side)
    kind = f"{type(declaration).__module__}.{type(declaration).__qualname__}"
    if len(found) > 1:
        raise ConnectorError(
            f"several connectors open {kind}",
            where=f"entry points of the group {GROUP}",
            expected="one",
            got=", ".join(sorted(found)),
            remedy="uninstall the package of all but one",
        )
    if found:
        return installed.connectors[found[0]]
    broken = "; ".join(f"{name}: {why}" for name, why in sorted(installed.failed.items()))
    raise ConnectorError(
        f"no connector opens the {side} {kind}",
        where=f"entry points of the group {GROUP}",
        expected=f"a class of `drivetrain.{side}s`, or of an installed connector",
        got=f"connectors that cannot be loaded: {broken}" if broken else None,
        remedy="repair or reinstall the package"
        if broken
        else "install the package of its connector here and wherever executors run; it names the class "
        f"in `{side}s` and registers itself with an entry point",
    )


def _matching(connectors: Mapping[str, Connector], declaration: object, side: Side) -> list[str]:
    return [
        name
        for name, connector in connectors.items()
        if isinstance(declaration, connector.sources if side == "source" else connector.sinks)
    ]

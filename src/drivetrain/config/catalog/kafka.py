"""Keys of Kafka: where Spark's connector comes from, and the settings of all connections."""

from __future__ import annotations

from typing import Final

from drivetrain.config.key import Key
from drivetrain.config.units import table, text

JARS: Final = Key(
    "kafka.jars",
    text(),
    "fetched",
    "Jars of Spark's Kafka connector on this machine, or folders of them, separated by commas; "
    "`fetched` downloads them once.",
)

PACKAGES: Final = Key(
    "kafka.packages",
    text(),
    "tested",
    "Packages of Spark's Kafka connector, as group:artifact:version separated by commas, fetched "
    "without their dependencies; `tested` means those that Drivetrain was tested with.",
)

IVY_SETTINGS: Final = Key(
    "kafka.ivy-settings",
    text(),
    "none",
    "Ivy settings file for downloading packages, for a mirror or a proxy with a password; `none` "
    "means the local Maven repository, then Ivy's default.",
)

OPTIONS: Final = Key(
    "kafka.options",
    table(),
    {},
    "Settings of Kafka's clients for every Kafka source and sink (security.protocol, "
    "sasl.jaas.config, …), with Kafka's own names; options of a source or sink override them. Secrets "
    "among them are not printed.",
    is_table=True,
)

"""Keys of Kafka: where Spark's connector comes from, and what all connections have in common."""

from __future__ import annotations

from typing import Final

from drivetrain.config.key import Key
from drivetrain.config.units import table, text

JARS: Final = Key(
    "kafka.jars",
    text(),
    "fetched",
    "Jars of Spark's Kafka connector on this machine, or folders of them, separated by commas; "
    "`fetched` takes them from the network once.",
)

PACKAGES: Final = Key(
    "kafka.packages",
    text(),
    "tested",
    "The packages of Spark's Kafka connector, as group:artifact:version separated by commas, each fetched "
    "alone, without what it depends on; `tested` means those that Drivetrain was tested with.",
)

IVY_SETTINGS: Final = Key(
    "kafka.ivy-settings",
    text(),
    "none",
    "An Ivy settings file that says where packages are fetched from: a mirror, a proxy with a password; "
    "`none` means the local Maven repository, then Ivy's default.",
)

OPTIONS: Final = Key(
    "kafka.options",
    table(),
    {},
    "Settings of Kafka's clients for every Kafka source and sink (security.protocol, sasl.jaas.config, …), "
    "in Kafka's own names; what a source or sink says itself wins. Secrets among them are not printed.",
    is_table=True,
)

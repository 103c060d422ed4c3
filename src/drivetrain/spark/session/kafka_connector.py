"""Spark's Kafka connector: which jars it needs, and whether this process's Spark has it.

The problem: the connector is released with Spark and belongs to its version, is not part of PySpark, and must
be on Java's class path before Spark starts.

The design: the packages are pinned with their checksums, at the newest available version for this Spark
(docs/decisions/0017-the-kafka-connector.md lists the versions tried). `connector_jars` fetches them once
(`jars`), or takes those that the configuration names. `spark.session` passes them to Spark as `spark.jars`
only if an application has a Kafka source or sink.

Invariants:

1. Nothing is fetched for an application without Kafka.
2. What the configuration names is used, or an error gives the reason why not: there is no fallback.

Called by `session`, `execution` and `drivetrain doctor`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from drivetrain.config.catalog import kafka as keys
from drivetrain.errors import ConfigError, MissingDependencyError
from drivetrain.spark.session import jars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from drivetrain.config import Config
    from drivetrain.core.plan.plan import Plan

_CONNECTOR = {
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0": (
        "64539c45e5d39f7ddb747312c239f38f5208d08c1a0ddf7d70beb2fbd9373705"
    ),
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0": (
        "f2be3b76f9e6cbe63379d4e4e0dc14f59dbf056ae2ad16ff15ac108004c86767"
    ),
    "org.apache.kafka:kafka-clients:3.9.2": (
        "014b4ef36884478a932641818b080c36a8f8e2e92dc771e800c9d2694f4f83d8"
    ),
    "org.apache.commons:commons-pool2:2.13.1": (
        "f77a5060d6936a9144023584232f9de3f2248f1abfe156e9d31795f18770674f"
    ),
}
"""Package → SHA-256 of its jar. Their other dependencies are among Spark's own jars."""

_CLASS = "org.apache.spark.sql.kafka010.KafkaSourceProvider"


def connector_jars(config: Config, *, fetch: bool = True) -> list[Path] | None:
    """The jars of the connector, fetched if necessary; without `fetch` None if they are not in the cache.

    Raises `ConfigError` when the configuration names missing files, and the errors of `jars.fetch`.
    """
    if config[keys.JARS] != keys.JARS.default:
        return _local(config[keys.JARS])
    packages, settings = list(_CONNECTOR), None
    if config[keys.PACKAGES] != keys.PACKAGES.default:
        packages = [package.strip() for package in config[keys.PACKAGES].split(",")]
    if config[keys.IVY_SETTINGS] != keys.IVY_SETTINGS.default:
        settings = config[keys.IVY_SETTINGS]
    if settings is not None and not Path(settings).is_file():
        raise ConfigError("there is no such Ivy settings file", where=keys.IVY_SETTINGS.name, got=settings)
    return jars.fetch(packages, _CONNECTOR, settings) if fetch else jars.cached(packages)


def uses_kafka(plan: Plan) -> bool:
    """Whether an application reads or writes Kafka, according to its declarations (`needs_connector`)."""
    operations = [node.operation for node in plan.graph.nodes.values()]
    return any(getattr(o.target or o.any_source, "needs_connector", False) for o in operations)


def require_connector(spark: SparkSession) -> None:
    """Raise `MissingDependencyError` unless this Spark was started with the connector."""
    loader = spark._jvm.java.lang.Thread.currentThread().getContextClassLoader()
    found = loader.getResource(_CLASS.replace(".", "/") + ".class")
    if found is None:
        raise MissingDependencyError(
            "this process's Spark was started without Kafka's connector, and cannot load it now",
            expected="jars on Java's class path before Spark starts",
            remedy="run the application with Kafka in a separate process, or first; a session of your own "
            "needs spark.jars with the files that `drivetrain doctor` names",
        )


def _local(named: str) -> list[Path]:
    found: list[Path] = []
    for name in (part.strip() for part in named.split(",")):
        place = Path(name).expanduser()
        more = sorted(place.glob("*.jar")) if place.is_dir() else [place] if place.is_file() else []
        if name and not more:
            raise ConfigError(
                "there is no jar of Kafka's connector",
                where=keys.JARS.name,
                got=name,
                remedy="name jars or folders of jars on this machine, or remove the key to have them fetched",
            )
        found += more
    return [path.resolve() for path in found]

"""Checks of installed software: Python, packages, Java.

Versions are read from the packages' metadata, so that a package that cannot be imported is still reported,
and no check pays for importing Spark.

Called by `drivetrain doctor`.
"""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from drivetrain.cli.checks.finding import Finding, Verdict
from drivetrain.config import Config
from drivetrain.errors import ConfigError
from drivetrain.spark.connector.installed import GROUP, installed_connectors
from drivetrain.spark.session.java import (
    DOES_NOT_START,
    INSTALL_JAVA,
    JAVA_AT_LEAST,
    java_program,
    java_version,
)

PYTHON_AT_LEAST: Final = (3, 11)

PACKAGES: Final[tuple[tuple[str, tuple[int, ...], tuple[int, ...] | None, str], ...]] = (
    # name, least version, version to stay below, purpose
    ("pyspark", (4, 3), (4, 4), "the engine"),
    ("pyarrow", (18,), None, "batches between Spark and Python"),
    ("pandas", (2, 2), (3,), "PySpark 4.3 does not fully support pandas 3"),
    ("protobuf", (6,), None, "keyed state of persistent Tasks"),
    ("grpcio", (1, 67), None, "keyed state of persistent Tasks"),
)

EXTRAS: Final = (
    # name, purpose, the extra of this package that installs it
    ("confluent-kafka", "exactly-once sinks of Kafka", "kafka"),
    ("fastavro", "Avro messages of Kafka", "kafka"),
    ("paho-mqtt", "MQTT sources", "mqtt"),
    ("psycopg", "PostgreSQL sinks", "postgresql"),
    ("PyMySQL", "MySQL and MariaDB sinks", "mysql"),
    ("redis", "Redis sinks", "redis"),
    ("deltalake", "Delta tables", "delta"),
    ("pyiceberg", "Iceberg tables", "iceberg"),
    ("obstore", "places in object stores (s3://, gs://, abfs://)", "s3"),
    ("hdfs-native", "places in HDFS (hdfs://)", "hdfs"),
)


def check_python() -> Finding:
    """The running interpreter's version."""
    found = sys.version_info[:3]
    version = f"{'.'.join(map(str, found))} at {sys.executable}"
    if found < PYTHON_AT_LEAST:
        least = ".".join(map(str, PYTHON_AT_LEAST))
        return Finding(
            "Python", Verdict.FAIL, version, f"install Python {least} or later and make a new environment"
        )
    return Finding("Python", Verdict.OK, version)


def check_connectors() -> list[Finding]:
    """The connectors of installed packages: one finding, and one for each that cannot be loaded."""
    installed = installed_connectors()
    findings = []
    if installed.connectors:
        findings.append(Finding("connectors", Verdict.OK, ", ".join(sorted(installed.connectors))))
    for name, why in sorted(installed.failed.items()):
        remedy = f"repair or reinstall the package: it registers the entry point in the group {GROUP}"
        findings.append(Finding("connectors", Verdict.WARN, f"{name}: {why}", remedy))
    return findings


def check_packages() -> list[Finding]:
    """The packages that an application needs, one finding each."""
    return [_check_package(name, least, below, purpose) for name, least, below, purpose in PACKAGES]


def _check_package(name: str, least: tuple[int, ...], below: tuple[int, ...] | None, purpose: str) -> Finding:
    wanted = f">={_dotted(least)}" + (f",<{_dotted(below)}" if below else "")
    remedy = f"pip install '{name}{wanted}' ({purpose})"
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return Finding(name, Verdict.FAIL, "not installed", remedy)
    numbers = version_numbers(version)
    if numbers < least or (below is not None and numbers >= below):
        return Finding(name, Verdict.FAIL, f"{version}, which is not {wanted}", remedy)
    return Finding(name, Verdict.OK, version)


def check_java(environ: Mapping[str, str]) -> Finding:
    """The Java that Spark would start: of JAVA_HOME, else the first on the PATH."""
    home = environ.get("JAVA_HOME")
    program = java_program(environ)
    if program is None or not Path(program).exists():
        found = f"JAVA_HOME is {home}, and there is no bin/java in it" if home else "no java on the PATH"
        return Finding("Java", Verdict.FAIL, found, INSTALL_JAVA)
    try:
        major, output = java_version(program)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding("Java", Verdict.FAIL, f"{program} does not run: {error}", INSTALL_JAVA)
    if major is None:
        printed = output or "nothing"
        return Finding(
            "Java", Verdict.FAIL, f"{program} does not start; it printed: {printed}", DOES_NOT_START
        )
    if major < JAVA_AT_LEAST:
        return Finding("Java", Verdict.FAIL, f"version {major} at {program}, too old for Spark", INSTALL_JAVA)
    return Finding("Java", Verdict.OK, f"version {major} at {program}")


def check_kafka(config: Config) -> Finding:
    """Spark's Kafka connector, which applications with Kafka need. Downloads nothing."""
    from drivetrain.spark.session.kafka_connector import connector_jars

    try:
        jars = connector_jars(config, fetch=False)
    except ConfigError as error:
        where = f"{error.where}: {error.got}"
        return Finding("Kafka connector", Verdict.FAIL, f"{error.what} ({where})", error.remedy)
    if jars is not None:
        return Finding("Kafka connector", Verdict.OK, f"{len(jars)} jars in {jars[0].parent}")
    how = (
        "fetched at the first run of an application with Kafka; behind a proxy set https_proxy, for a mirror "
        "kafka.ivy-settings; without a network copy the jars here and name them by kafka.jars"
    )
    return Finding("Kafka connector", Verdict.OK, f"not here yet; {how}")


def check_extras() -> list[Finding]:
    """The packages that only some applications need, one finding each."""
    findings = []
    for name, purpose, extra in EXTRAS:
        try:
            found = f"{importlib.metadata.version(name)}, for {purpose}"
        except importlib.metadata.PackageNotFoundError:
            found = f"not installed; for {purpose}: pip install 'drivetrain[{extra}]'"
        findings.append(Finding(name, Verdict.OK, found))
    return findings


def check_spark_home(environ: Mapping[str, str]) -> Finding:
    """Whether SPARK_HOME makes PySpark start another Spark than its own."""
    home = environ.get("SPARK_HOME")
    if not home:
        return Finding("SPARK_HOME", Verdict.OK, "not set: the Spark inside the pyspark package is used")
    version = next((jar.stem.rpartition("-")[2] for jar in Path(home, "jars").glob("spark-core_*.jar")), None)
    if version is None:
        return Finding("SPARK_HOME", Verdict.FAIL, f"{home} holds no Spark", "unset SPARK_HOME")
    try:
        own = importlib.metadata.version("pyspark")
    except importlib.metadata.PackageNotFoundError:
        own = "none"
    if version_numbers(version)[:2] != version_numbers(own)[:2]:
        return Finding(
            "SPARK_HOME", Verdict.FAIL, f"{home} is Spark {version}, and pyspark is {own}", "unset SPARK_HOME"
        )
    return Finding("SPARK_HOME", Verdict.OK, f"Spark {version} at {home}")


def check_worker_python(environ: Mapping[str, str]) -> Finding:
    """Whether Spark's workers are configured to run another Python than this one."""
    worker = environ.get("PYSPARK_PYTHON")
    if not worker:
        return Finding("worker Python", Verdict.OK, "the same as above")
    program = shutil.which(worker, path=environ.get("PATH"))
    if program is None:
        return Finding(
            "worker Python",
            Verdict.FAIL,
            f"PYSPARK_PYTHON is {worker}, which does not exist",
            "unset PYSPARK_PYTHON",
        )
    if Path(program).resolve() != Path(sys.executable).resolve():
        return Finding(
            "worker Python",
            Verdict.WARN,
            f"PYSPARK_PYTHON is {worker}",
            "unset it, unless that Python has the same version and packages as this one",
        )
    return Finding("worker Python", Verdict.OK, "the same as above (PYSPARK_PYTHON)")


def version_numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version, to compare: "4.3.0.dev1" is (4, 3, 0)."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(number) for number in match[0].split(".")) if match else ()


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))

"""Fixtures that every test may use: one Spark session and one PostgreSQL server for the whole run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from postgres_server import PostgresServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Nothing is judged by its speed, and a check says the same of the same code every time. New examples are
# drawn by the nightly run, which has the time to look.
settings.register_profile(
    "check",
    deadline=None,
    derandomize="DRIVETRAIN_SEEDS" not in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("check")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one Spark session of the run, as applications get it: two cores, one gibibyte."""
    from drivetrain.config import Config
    from drivetrain.spark.kafka_connector import connector_jars
    from drivetrain.spark.session import session

    scratch = tmp_path_factory.mktemp("spark")
    sets = {
        "spark.master": "local[2]",
        "spark.driver-memory": "1 GiB",
        "spark.conf.spark.local.dir": str(scratch / "local"),
        "spark.conf.spark.sql.warehouse.dir": str(scratch / "warehouse"),
    }
    config = Config.load(None, {}, sets)
    # Kafka's tests share this session, and jars cannot be added to it later; `make setup` has fetched them.
    made = session(config, "drivetrain-tests", kafka=connector_jars(config, fetch=False) is not None)
    yield made
    made.stop()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server of the run's own; a test makes itself a database in it."""
    server = PostgresServer()
    server.start()
    yield server
    server.close()

"""Fixtures that every test may use: one Spark session for the whole run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one Spark session of the run, as applications get it: two cores, one gibibyte."""
    from drivetrain.config import Config
    from drivetrain.spark.session import session

    scratch = tmp_path_factory.mktemp("spark")
    sets = {
        "spark.master": "local[2]",
        "spark.driver-memory": "1 GiB",
        "spark.conf.spark.local.dir": str(scratch / "local"),
        "spark.conf.spark.sql.warehouse.dir": str(scratch / "warehouse"),
    }
    made = session(Config.load(None, {}, sets), "drivetrain-tests")
    yield made
    made.stop()

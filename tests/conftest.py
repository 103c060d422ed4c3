"""Fixtures for all tests (one Spark session, one of each database, one object store), and which tests share a
process.

`scripts/check.sh` runs tests in several processes (pytest-xdist). Each has a session and servers of its own.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from azure_store import ENVIRONMENT as AZURE_ENVIRONMENT
from azure_store import AzureStore
from google_store import ENVIRONMENT as GOOGLE_ENVIRONMENT
from google_store import GoogleStore
from hdfs_server import HdfsServer
from mariadb_server import MariadbServer
from mosquitto_broker import MosquittoBroker
from nightly_run import examples, is_nightly
from object_store import ENVIRONMENT, S3Server
from postgres_server import PostgresServer
from redis_server import RedisServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TESTS = Path(__file__).parent
LONGEST_FIRST = (
    "kafka", "browser", "objects", "hdfs", "cluster", "changes", "console", "guarantees", "checkpoints",
    "engine", "sinks", "testing", "mqtt", "tidy",
)  # fmt: skip
"""Folders of tests in the order in which they start, then all others: the last groups are small ones."""
STAGES = ({"integration", "browser"}, {"simulation", "unit"})
"""Folders whose tests run together."""
TOGETHER = {
    "tests/simulation/": None,
    "tests/unit/tidy/": "tidy",
    "tests/integration/kafka/": "kafka",
    "tests/integration/random_applications/test_random_applications.py": "kafka",
    "tests/integration/objects/": "objects",
    "tests/integration/hdfs/": "hdfs",
    "tests/browser/": "browser",
}
"""The group of the tests of a folder or a file; without one, each test is a group."""

# No test depends on speed, and a check has the same result for the same code every time. The nightly run
# draws new examples, because it has the time.
settings.register_profile(
    "check",
    deadline=None,
    derandomize=not is_nightly(),
    max_examples=examples(100),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("check")

os.environ |= (
    ENVIRONMENT | GOOGLE_ENVIRONMENT | AZURE_ENVIRONMENT
)  # before Spark starts: its workers get the variables of that moment


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Decide which tests stay together in one process, when there are several processes.

    A file is such a group: its tests share what they started. The tests of Kafka share two brokers, those
    of objects a store, and those of pages a browser, so each is one group: a test that waits for a page
    leaves the processor to others. The rules of the house share the package's trees. Simulations share
    nothing, and each goes to the process that is free.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Groups(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            for folder, group in TOGETHER.items():
                if nodeid.startswith(folder):
                    return group or nodeid
            return nodeid.split("::", 1)[0]

    return Groups(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start the longest groups of tests first: one that started last would run alone."""

    def place(item: pytest.Item) -> int:
        stage, folder, *_ = item.path.relative_to(TESTS).parts
        name = stage if stage == "browser" else folder
        return LONGEST_FIRST.index(name) if name in LONGEST_FIRST else len(LONGEST_FIRST)

    folders = {item.path.relative_to(TESTS).parts[0] for item in items}
    if any(folders <= stage for stage in STAGES):
        items.sort(key=place)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip tests of the nightly run in other runs."""
    marker = item.get_closest_marker("nightly")
    if marker is not None and not is_nightly():
        pytest.skip(f"for the nightly run: {marker.args[0]}")


def pytest_collection_finish() -> None:
    """Exclude modules and tests from garbage collections, of which each simulation makes one per seed."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one Spark session of the run, as applications get it: two cores, one gibibyte."""
    from drivetrain.config import Config
    from drivetrain.spark.session.kafka_connector import connector_jars
    from drivetrain.spark.session.spark_session import session

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
    """A PostgreSQL server for this run; each test creates its own database in it."""
    server = PostgresServer()
    server.start()
    yield server
    server.close()


@pytest.fixture(scope="session")
def mosquitto() -> Iterator[MosquittoBroker]:
    """An MQTT broker for this run; a test has topics of its own, and leaves the broker running."""
    server = MosquittoBroker()
    yield server.start()
    server.close()


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariadbServer]:
    """A MariaDB server for this run; each test creates its own database in it."""
    server = MariadbServer()
    server.start()
    yield server
    server.close()


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A Redis server for this run; tests that share it use keys of their own."""
    server = RedisServer(tmp_path_factory.mktemp("redis")).start()
    yield server
    server.close()


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """An object store for this run; each test creates its own bucket in it."""
    server = S3Server(tmp_path_factory.mktemp("s3"))
    yield server.start()
    server.kill()


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HdfsServer]:
    """An HDFS of the run's own; a test has a directory of its own in it."""
    server = HdfsServer(tmp_path_factory.mktemp("hdfs"))
    yield server.start()
    server.kill()


@pytest.fixture(scope="session")
def google(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GoogleStore]:
    """A store with Google's interface for this run; each test creates its own bucket in it."""
    server = GoogleStore(tmp_path_factory.mktemp("google"))
    yield server.start()
    server.kill()


@pytest.fixture(scope="session")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AzureStore]:
    """Azure's blob storage for this run; each test creates its own container in it."""
    server = AzureStore(tmp_path_factory.mktemp("azure"))
    yield server.start()
    server.kill()

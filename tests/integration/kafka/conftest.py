"""One broker for all tests of this folder, and one for those that kill it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from broker import Broker
from security import Secured


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Secured:
    """How the broker can be reached with a login, and TLS."""
    return Secured(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory, secured: Secured) -> Iterator[Broker]:
    """A running broker; tests use topics of their own."""
    directory: Path = tmp_path_factory.mktemp("kafka") / "broker"
    with Broker(directory, settings=secured.settings, protocols=secured.PROTOCOLS) as running:
        yield running


@pytest.fixture(scope="session")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that tests may kill; it gives up transactions soon after their time."""
    settings = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "300"}
    with Broker(tmp_path_factory.mktemp("mortal") / "broker", settings=settings) as running:
        yield running


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name for this test's topic, which the test creates if it needs one."""
    return "".join(c if c.isalnum() else "-" for c in request.node.name)[:200]

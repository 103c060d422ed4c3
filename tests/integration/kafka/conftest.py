"""One broker for all tests of this folder; a test that kills brokers starts one of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from broker import Broker


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A running broker; tests use topics of their own."""
    with Broker(tmp_path_factory.mktemp("kafka") / "broker") as running:
        yield running


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name for this test's topic, which it creates as it needs it."""
    return "".join(c if c.isalnum() else "-" for c in request.node.name)[:200]

"""One broker for the random applications of a process, started when the first of them needs it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

# The broker, and how topics are read, are those of Kafka's own tests.
sys.path.insert(0, str(Path(__file__).parents[1] / "kafka"))

if TYPE_CHECKING:
    from broker import Broker


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A running broker; each application has topics of its own."""
    from broker import Broker

    with Broker(tmp_path_factory.mktemp("kafka") / "broker") as running:
        yield running

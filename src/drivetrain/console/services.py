"""What the handlers of the console work with.

Called by `console.server`, which makes it; read by `console.handlers`.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Final

from drivetrain.cluster.client import Client
from drivetrain.config import Config
from drivetrain.console.access.access import Access
from drivetrain.console.access.audit import Audit
from drivetrain.console.metrics.collector import Metrics
from drivetrain.console.operations import OperationBook
from drivetrain.console.past.recorder import Recorder
from drivetrain.console.planning.planning import Planning
from drivetrain.console.state_reading import StateReading
from drivetrain.console.submissions import Submissions
from drivetrain.console.watching.watch import Watch

MOST_READERS: Final = 2


class Open:
    """How many streams of events are open, or how many uploads arrive."""

    def __init__(self) -> None:
        self.count = 0


@dataclass(frozen=True, slots=True)
class Services:
    """The client of the cluster, the watch over it, the plans of applications, who may, and the
    configuration.
    """

    config: Config
    client: Client
    watch: Watch
    recorder: Recorder
    planning: Planning
    states: StateReading
    access: Access
    audit: Audit
    metrics: Metrics
    document: bytes
    """The OpenAPI document."""
    operations: OperationBook = field(default_factory=OperationBook)
    submissions: Submissions = field(default_factory=Submissions)
    streams: Open = field(default_factory=Open)
    uploads: Open = field(default_factory=Open)
    readers: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MOST_READERS))
    """Held while a thread reads the state directory of an application."""

"""The services that the handlers of the console use.

A console shows a cluster, through its client, or the runs of this machine; both answer the same queries.

Called by `console.server`, which makes it; read by `console.handlers`.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from drivetrain.cluster.client import Client
from drivetrain.cluster.messages.applications import ApplicationView
from drivetrain.config import Config
from drivetrain.console.access.access import Access
from drivetrain.console.access.audit import Audit
from drivetrain.console.embedded.runs import EmbeddedRuns, only_in_cluster
from drivetrain.console.local_workers import LocalWorkers
from drivetrain.console.metrics.collector import Metrics
from drivetrain.console.operations import OperationBook
from drivetrain.console.past.recorder import Recorder
from drivetrain.console.planning.planning import Planning
from drivetrain.console.state_directories import state_of
from drivetrain.console.state_reading import StateReading
from drivetrain.console.submissions import Submissions
from drivetrain.console.watching.cluster_watch import Watch
from drivetrain.core.picture.placed_graph import Graph
from drivetrain.runtime.run_directory import RunDirectory

MOST_READERS: Final = 2

Shown: TypeAlias = Client | EmbeddedRuns


class OpenCount:
    """How many streams of events are open, or how many uploads arrive."""

    def __init__(self) -> None:
        self.count = 0


@dataclass(frozen=True, slots=True)
class Services:
    """The client of the cluster, the watch over it, the plans of applications, the rules of access, and the
    configuration.
    """

    config: Config
    client: Shown
    watch: Watch
    recorder: Recorder
    planning: Planning
    states: StateReading
    access: Access
    audit: Audit
    metrics: Metrics
    document: bytes
    """The OpenAPI document."""
    local_workers: LocalWorkers | None = None
    """The workers of the `drivetrain local` that started the console, if one did."""
    operations: OperationBook = field(default_factory=OperationBook)
    submissions: Submissions = field(default_factory=Submissions)
    streams: OpenCount = field(default_factory=OpenCount)
    uploads: OpenCount = field(default_factory=OpenCount)
    readers: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MOST_READERS))
    """Held while a thread reads the state directory of an application."""

    @property
    def runs(self) -> EmbeddedRuns | None:
        """The runs of this machine, if the console shows them."""
        return self.client if isinstance(self.client, EmbeddedRuns) else None

    def require_cluster(self, what: str, remedy: str) -> None:
        """Raise OnlyInClusterError unless the console shows a cluster; `what` follows "cannot"."""
        if self.runs is not None:
            raise only_in_cluster(what, remedy)

    async def state_of(self, view: ApplicationView) -> RunDirectory:
        """The state directory of an application; raises like `kept_state.state_of`."""
        return await (state_of(self.planning, view) if self.runs is None else self.runs.rundir(view))

    async def graph_of(self, view: ApplicationView) -> Graph:
        """The graph of an application with coordinates; raises like `Planning.graph`."""
        return await (self.planning.graph(view.spec) if self.runs is None else self.runs.graph(view))

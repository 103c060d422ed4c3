"""A real console, in a process of its own, that asks a recorded cluster (`recorded_cluster`).

    python tests/browser/recorded_console.py PORT DIRECTORY

Prints its address once it listens. Everything but the cluster is real: routes, headers, the watch, the stream
of events, the files of the dashboard.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final, cast

import msgspec
import recorded_cluster as recorded
import recorded_state

from drivetrain.cluster.client import Piece, Submission, UnknownApplicationError
from drivetrain.cluster.leader import NoLeaderError
from drivetrain.cluster.messages.applications import (
    ApplicationSpec,
    ApplicationState,
    ApplicationSummary,
    ApplicationView,
    MasterView,
    WorkerView,
)
from drivetrain.cluster.messages.following import JobStatus
from drivetrain.config import Config
from drivetrain.config.catalog import console as keys
from drivetrain.config.catalog import run as run_keys
from drivetrain.console import server
from drivetrain.console.addresses import ConsoleAddress
from drivetrain.console.answers.states import StateEntries
from drivetrain.console.past import recorder
from drivetrain.console.planning.planning import Planning
from drivetrain.console.planning.requests import ReadStates, StateName
from drivetrain.console.state_reading import StateReading
from drivetrain.core.job.history import NO_HISTORY, History
from drivetrain.core.picture.placed_graph import Graph, graph_of
from drivetrain.runtime.run_directory import RunDirectory

NO_LEADER: Final = "no-leader"
"""While the console's directory has a file of this name, the cluster has no leading master."""
NO_APPLICATION_MASTER: Final = "no-application-master"
"""While there is a file of this name, no application master answers."""


class RecordedClient:
    """The methods of `drivetrain.cluster.client.Client` that the console calls, answered from the
    recording."""

    def __init__(self, directory: Path) -> None:
        self.system = self
        self._no_leader = directory / NO_LEADER
        self._no_application_master = directory / NO_APPLICATION_MASTER
        self._applications = recorded.recorded()
        self._began_with = frozenset(one.app_id for one in self._applications)
        self._began_s = time.monotonic()
        self._graphs: dict[str, Graph] = {}
        self._states = directory / "states"

    def _require_leader(self) -> None:
        if self._no_leader.exists():
            raise NoLeaderError("no master leads", remedy="start the masters that are missing")

    async def masters(self) -> tuple[MasterView, ...]:
        return recorded.masters()

    async def workers(self) -> tuple[WorkerView, ...]:
        self._require_leader()
        return recorded.workers()

    async def applications(self) -> list[ApplicationSummary]:
        self._require_leader()
        return [recorded.line_of(one, self._now_ms()) for one in self._applications]

    async def application(self, app: str) -> ApplicationView:
        self._require_leader()
        view = recorded.view_of(self._named(app), self._now_ms())
        spec = msgspec.structs.replace(view.spec, config={run_keys.STATE_DIR.name: str(self._states)})
        return msgspec.structs.replace(view, spec=spec)

    async def job_status(self, view: ApplicationView) -> JobStatus | None:
        if self._no_application_master.exists():
            return None
        return recorded.status_of(self._named(view.app_id), self._now_ms())

    async def history(self, view: ApplicationView) -> History:
        known = view.app_id in self._began_with
        return recorded.history_of(view.app_id, self._now_ms()) if known else NO_HISTORY

    async def close(self) -> None:
        """Does nothing: there is nothing to close."""

    async def kill(self, app: str) -> ApplicationView:
        one = self._named(app)
        one.state = ApplicationState.KILLED
        return await self.application(app)

    async def restart(self, app: str) -> ApplicationView:
        one = self._named(app)
        one.state = ApplicationState.ACTIVE
        return await self.application(app)

    async def submit(self, submission: Submission, *, submission_id: str | None = None) -> str:
        """Accept a submission, and show another application in its place."""
        app_id = f"{submission.spec.name}-{50 + len(self._applications)}"
        self._applications.insert(0, recorded.Recorded(app_id, recorded.shop(), spec=submission.spec))
        return app_id

    async def follow_logs(self, app: str, process: str | None = None) -> AsyncIterator[Piece | None]:
        """The lines so far, then one a second until it is over, in pieces that may end within a line."""
        data = recorded.log_of(self._named(app)).encode()
        for start in range(0, len(data), 50_000):
            yield Piece("executor-1", "worker-1", data[start : start + 50_000], start + 50_000)
        number = 0
        while not self._named(app).state.is_over:
            await asyncio.sleep(1)
            number += 1
            yield Piece("master", "worker-1", f"INFO still here, {number}\n".encode(), number)

    def graph(self, spec: ApplicationSpec) -> Graph:
        one = self._named(spec.name)
        if one.app_id not in self._graphs:
            self._graphs[one.app_id] = recorded.renamed(graph_of(one.plan), one.renamed)
        return self._graphs[one.app_id]

    def state_name(self, spec: ApplicationSpec) -> StateName:
        """The name of the recorded state, which is created at the first request."""
        name = StateName(spec.name, {})
        state = RunDirectory(str(self._states), name.application, name.settings).path
        if not state.exists():
            recorded_state.write(state, spec.name)
        return name

    def _named(self, app: str) -> recorded.Recorded:
        found = recorded.named(self._applications, app)
        if found is None:
            raise UnknownApplicationError(
                "the cluster has no such application", where=app, remedy="drivetrain apps lists them"
            )
        return found

    def _now_ms(self) -> int:
        return recorded.NOW_MS + int((time.monotonic() - self._began_s) * 1000)


class RecordedPlanning(Planning):
    """Plans uploads in processes, as usual; the graphs of applications are recorded."""

    def __init__(self, client: Any, masters: list[str], timeout_ms: int) -> None:
        super().__init__(client, masters, timeout_ms)
        self._client = client

    async def graph(self, spec: ApplicationSpec) -> Graph:
        return self._client.graph(spec)

    async def state_name(self, spec: ApplicationSpec) -> StateName:
        return self._client.state_name(spec)


class RecordedReading(StateReading):
    """Answers with recorded states, without a process."""

    async def read(self, asked: ReadStates) -> StateEntries:
        return recorded_state.states_of(asked)


async def recorded_client(config: Config) -> RecordedClient:
    """In place of `open_client`."""
    return RecordedClient(Path(config[keys.DIRECTORY]))


def same_client(system: RecordedClient, masters: list[str], timeout_ms: int) -> RecordedClient:
    """In place of another client of the same system."""
    return system


def say(console: ConsoleAddress) -> None:
    """Print where it listens, as `drivetrain console` does."""
    print(console.entry, flush=True)


if __name__ == "__main__":
    put_in: Any = server
    put_in.StateReading = RecordedReading
    began_s, times = time.monotonic(), cast(Any, recorder)
    times._now_ms = lambda: recorded.NOW_MS + int((time.monotonic() - began_s) * 1000)
    put_in.open_client, put_in.Client, put_in.Planning = recorded_client, same_client, RecordedPlanning
    sets = {"cluster.masters": "127.0.0.1:1", keys.PORT.name: sys.argv[1], keys.DIRECTORY.name: sys.argv[2]}
    recorded_state.write_history(Path(sys.argv[2]))
    asyncio.run(server.serve(Config.load(sets=sets), asyncio.Event(), say))

"""Plans applications: one of the cluster, from the code that the masters keep; or an upload.

Problem: the graph is in the user's file, which must not run in the console; files take seconds to load; and
many users open a page that shows a graph.

Design: a process for each plan (see `program` and `processes`), few at a time. A plan of an application that
the cluster has is kept: its code and settings never change under one id and version.

Invariant: at most `MOST_PROCESSES` planning processes run; further requests wait, and are refused once there
are `MOST_WAITING`, with those that run.

Called by `console.services`, `console.state_directories`, `console.server` and the handlers of uploads and
changes.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections import OrderedDict
from pathlib import Path
from typing import Final
from weakref import WeakValueDictionary

import msgspec

from drivetrain.cluster.client import Client
from drivetrain.cluster.code_transfer import fetch
from drivetrain.cluster.leader import LeaderSearch
from drivetrain.cluster.messages.applications import ApplicationSpec
from drivetrain.code.cache import CodeCache
from drivetrain.console.answers.changes import PlannedChange
from drivetrain.console.planning import processes
from drivetrain.console.planning.requests import (
    Outcome,
    PlanCode,
    PrepareChange,
    PrepareClusterChange,
    PrepareUpload,
    StateName,
)
from drivetrain.console.problems import RequestError
from drivetrain.core.picture.placed_graph import Graph
from drivetrain.errors import InternalError, UserError
from drivetrain.runtime.temporary_folders import make_temporary_folder

MOST_PROCESSES: Final = 2
MOST_WAITING: Final = 20
MOST_PLANS: Final = 200
FETCH_MS: Final = 20_000
KEPT_S: Final = 600.0
PROGRAM: Final = "drivetrain.console.planning.program"
CHANGE_PROGRAM: Final = "drivetrain.cli.changes.change_process"

_USER: Final = "console"


class Planning:
    """Plans for the cluster of `client`, whose masters are HOST:PORT; each takes `timeout_ms` at most.

    Without a client there is no cluster that has the code of applications.
    """

    def __init__(self, client: Client | None, masters: list[str], timeout_ms: int) -> None:
        self._search: Final = None if client is None else LeaderSearch(client.system, masters)
        self._timeout_s: Final = timeout_ms / 1000
        self.directory: Final = make_temporary_folder("drivetrain-console-")
        self._cache: Final = CodeCache(self.directory / "code")
        self._places: Final = asyncio.Semaphore(MOST_PROCESSES)
        self._waiting = 0
        self._plans: Final[OrderedDict[bytes, Outcome]] = OrderedDict()
        self._making: Final[WeakValueDictionary[str, asyncio.Lock]] = WeakValueDictionary()
        """By code; a lock is there for as long as anyone has it or waits for it."""

    def close(self) -> None:
        """Release the directory; it is removed when this process ends."""
        self._cache.close()

    async def graph(self, spec: ApplicationSpec) -> Graph:
        """The graph of an application that the cluster has.

        Raises what loading and planning raise, and CodeMissingError.
        """
        graph = (await self._plan(spec)).graph
        if graph is None:
            raise InternalError("a planning process gave neither a graph nor an error", where=spec.name)
        return graph

    async def state_name(self, spec: ApplicationSpec) -> StateName:
        """What names the state of an application that the cluster has; raises like `graph`."""
        name = (await self._plan(spec)).state
        if name is None:
            raise InternalError("a planning process gave no name of the state", where=spec.name)
        return name

    async def _plan(self, spec: ApplicationSpec) -> Outcome:
        key = msgspec.json.encode((spec.code, spec.file, spec.target, spec.settings, spec.config))
        if key in self._plans:
            self._plans.move_to_end(key)
            return self._plans[key]
        if spec.app_master is not None:
            raise RequestError(
                "this application has no graph: it has an application master of its own",
                code="not-found",
                where=spec.name,
            )
        lock = self._making.setdefault(spec.code, asyncio.Lock())
        async with lock:
            outcome = self._plans.get(key)
            if outcome is None:
                outcome = self._plans[key] = await self._planned(spec)
                while len(self._plans) > MOST_PLANS:
                    self._plans.popitem(last=False)
            return outcome

    async def prepare(self, asked: PrepareUpload, directory: Path) -> Outcome:
        """Plan and pack an upload; the archive is in `directory` then. Raises like `drivetrain submit`."""
        return await self._run(asked, directory)

    async def prepare_change(self, asked: PrepareChange, directory: Path) -> PlannedChange:
        """Plan the change of a run to an upload; if it can be made, the version is in `directory` then."""
        change = (await self._run(asked, directory, CHANGE_PROGRAM)).change
        if change is None:
            raise InternalError("a process gave neither a change nor an error", where=asked.application)
        return change

    async def prepare_cluster_change(self, asked: PrepareClusterChange, directory: Path) -> Outcome:
        """Plan the change of an application of the cluster to an upload; if it can be made, its archive is in
        `directory` then."""
        return await self._run(asked, directory)

    async def _planned(self, spec: ApplicationSpec) -> Outcome:
        self._cache.use(spec.code, _USER)
        try:
            if self._cache.path(spec.code) is None:
                if self._search is None:
                    raise InternalError("code was asked for, and no cluster has it", where=spec.name)
                await fetch(self._search, spec.code, self._cache, asyncio.to_thread, timeout_ms=FETCH_MS)
            directory = await asyncio.to_thread(self._cache.install, spec.code)
            with tempfile.TemporaryDirectory(dir=self.directory, prefix="plan-") as place:
                return await self._run(PlanCode(str(directory), spec), Path(place))
        finally:
            self._cache.release(spec.code, _USER, time.monotonic())
            for unused in self._cache.unused(time.monotonic(), KEPT_S):
                await asyncio.to_thread(self._cache.remove, unused)

    def require_place(self) -> None:
        """Raise RequestError when too many wait already."""
        if self._waiting >= MOST_WAITING:
            raise RequestError(
                "too many applications wait to be planned",
                code="too-many",
                expected=f"at most {MOST_WAITING}",
                remedy="try again in a moment",
            )

    async def _run(
        self,
        asked: PlanCode | PrepareUpload | PrepareChange | PrepareClusterChange,
        directory: Path,
        program: str = PROGRAM,
    ) -> Outcome:
        self.require_place()
        self._waiting += 1
        try:
            async with self._places:
                return await processes.run(
                    program,
                    asked,
                    directory,
                    self._timeout_s,
                    is_late=UserError(
                        "the application's file takes too long to load",
                        expected=f"at most {self._timeout_s:g} s",
                        remedy="read data in the application's functions, not while the graph is built; or "
                        "set console.planning-timeout",
                    ),
                    without_answer="the application's file must not end its process, and needs its packages "
                    "where the console runs",
                )
        finally:
            self._waiting -= 1

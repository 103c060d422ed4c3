"""Has applications planned: one that the cluster has, from the code that the masters keep; or an upload.

Problem: the graph is in the user's file, which must not run in the console; files take seconds to load; and a
page that shows a graph is opened by many.

Design: a process for each plan (see `program`), few at a time, with a timeout and without this process's
secrets. A plan of an application that the cluster has is kept: its code and settings never change under one
id and version.

Invariants:

1. At most `MOST_PROCESSES` planning processes run; who comes beyond `MOST_WAITING` is refused.
2. When `plan` has returned, its process and what that started are gone.
3. Nothing of the environment reaches a process but `PASSED_ON`.

Called by `console.handlers.graphs`, `console.kept_state` and `console.server`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
import time
from collections import OrderedDict
from pathlib import Path
from typing import Final
from weakref import WeakValueDictionary

import msgspec

from drivetrain.cluster.client import Client, error_of_view
from drivetrain.cluster.code_transfer import fetch
from drivetrain.cluster.leader import LeaderSearch
from drivetrain.cluster.messages.applications import ApplicationSpec
from drivetrain.cluster.parent import PARENT_VARIABLE
from drivetrain.code.cache import CodeCache
from drivetrain.console.answers.graph import Graph
from drivetrain.console.planning.requests import OUTCOME, REQUEST, Outcome, PlanCode, PrepareUpload, StateName
from drivetrain.console.problems import RequestError
from drivetrain.errors import InternalError, UserError
from drivetrain.private_files import private
from drivetrain.runtime.temporary_folders import make_temporary_folder

MOST_PROCESSES: Final = 2
MOST_WAITING: Final = 20
MOST_PLANS: Final = 200
FETCH_MS: Final = 20_000
KEPT_S: Final = 600.0
LARGEST_OUTCOME_BYTES: Final = 64 * 2**20

PASSED_ON: Final = ("PATH", "HOME", "LANG", "LC_ALL", "PYTHONPATH", "TMPDIR", "TZ", "VIRTUAL_ENV")

_USER: Final = "console"


class Planning:
    """Plans for the cluster of `client`, whose masters are HOST:PORT; each takes `timeout_ms` at most."""

    def __init__(self, client: Client, masters: list[str], timeout_ms: int) -> None:
        self._search: Final = LeaderSearch(client.system, masters)
        self._timeout_s: Final = timeout_ms / 1000
        self.directory: Final = make_temporary_folder("drivetrain-console-")
        self._cache: Final = CodeCache(self.directory / "code")
        self._places: Final = asyncio.Semaphore(MOST_PROCESSES)
        self._waiting = 0
        self._plans: Final[OrderedDict[bytes, Outcome]] = OrderedDict()
        self._making: Final[WeakValueDictionary[str, asyncio.Lock]] = WeakValueDictionary()
        """By code; a lock is there for as long as anyone has it or waits for it."""

    def close(self) -> None:
        """Give the directory free; it is removed when this process ends."""
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
        """What names the state of an application that the cluster has; raises as `graph`."""
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
        """Plan and pack an upload; the archive is in `directory` then. Raises as `drivetrain submit`."""
        return await self._run(asked, directory)

    async def _planned(self, spec: ApplicationSpec) -> Outcome:
        self._cache.use(spec.code, _USER)
        try:
            if self._cache.path(spec.code) is None:
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

    async def _run(self, asked: PlanCode | PrepareUpload, directory: Path) -> Outcome:
        self.require_place()
        self._waiting += 1
        try:
            async with self._places:
                return await self._process(asked, directory)
        finally:
            self._waiting -= 1

    async def _process(self, asked: PlanCode | PrepareUpload, directory: Path) -> Outcome:
        with open(directory / REQUEST, "wb", opener=private) as file:
            file.write(msgspec.json.encode(asked))
        with open(directory / "log", "wb", opener=private) as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",  # what lies in the current directory hides no package
                "-m",
                "drivetrain.console.planning.program",
                str(directory),
                env=_environment(),
                stdin=asyncio.subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            async with asyncio.timeout(self._timeout_s):
                await process.wait()
        except TimeoutError as error:
            raise UserError(
                "the application's file takes too long to load",
                expected=f"at most {self._timeout_s:g} s",
                remedy="read data in the application's functions, not while the graph is built; or set "
                "console.planning-timeout",
            ) from error
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        return _outcome(directory, process.returncode)


def _outcome(directory: Path, status: int | None) -> Outcome:
    path = directory / OUTCOME
    if not path.is_file() or path.is_symlink() or path.stat().st_size > LARGEST_OUTCOME_BYTES:
        raise UserError(
            "the process that planned the application ended without an answer",
            got=f"exit code {status}; it wrote\n{_end_of(directory / 'log')}",
            remedy="the application's file must not end its process, and needs its packages where "
            "the console runs",
        )
    try:
        outcome = msgspec.json.decode(path.read_bytes(), type=Outcome)
    except msgspec.MsgspecError as error:
        raise UserError("the plan of the application cannot be read", got=str(error)) from error
    if outcome.error is not None:
        raise error_of_view(outcome.error)
    return outcome


def _end_of(log: Path, most_bytes: int = 2_000) -> str:
    with open(log, "rb") as file:
        file.seek(max(0, log.stat().st_size - most_bytes))
        return file.read().decode(errors="replace")


def _environment() -> dict[str, str]:
    passed = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    return {**passed, PARENT_VARIABLE: str(os.getpid())}

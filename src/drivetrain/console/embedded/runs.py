"""The applications that `drivetrain run` runs on this machine, for a console: the counterpart of the client
of a cluster.

Problem: pages, metrics and histories query applications many times a second, and use only the interface of a
cluster's client.

Design: the same queries, with the same answers, from a look at a state directory (`look`) that is at most
`FRESH_S` old, made in one of few threads. Requests that only a cluster can fulfil are refused, with the
reason.

Invariants:

1. However many queries there are, an application is looked at once in `FRESH_S`.
2. A run is changed only by request: a stop, a savepoint, a change.

Called by `console.server`; read by the handlers.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Final, NoReturn, TypeVar

from drivetrain.api.durations import DEFAULT_TIMEOUT, milliseconds
from drivetrain.api.moments import moment_ms, moment_text
from drivetrain.cluster.client import Piece, UnknownApplicationError
from drivetrain.cluster.client.client_errors import ApplicationOverError, StillUnderWayError
from drivetrain.cluster.client.submission import Submission
from drivetrain.cluster.messages.applications import (
    ApplicationSummary,
    ApplicationView,
    MasterView,
    WorkerView,
)
from drivetrain.cluster.messages.following import JobStatus
from drivetrain.config import Config, did_you_mean
from drivetrain.config.catalog import run as run_keys
from drivetrain.console.embedded.embedded_status import ANSWER_S, EmbeddedStatus, look_at
from drivetrain.core.job.history import NO_HISTORY, History
from drivetrain.core.picture.placed_graph import Graph
from drivetrain.errors import InternalError, UnavailableError, UserError
from drivetrain.private_files import Writers
from drivetrain.runtime.checkpoints.savepoint_requests import make_savepoint
from drivetrain.runtime.control_requests import ControlRequest, ask
from drivetrain.runtime.run_directory import RunDirectory
from drivetrain.runtime.state_place import state_home

FRESH_S: Final = 0.5
MOST_THREADS: Final = 8
FORGET_S: Final = 60.0
POLL_S: Final = 0.5
_STOPS_S: Final = 150.0
"""How long a run may take to finish its batches and publish its last checkpoint."""

T = TypeVar("T")


class OnlyInClusterError(UserError):
    """Something was asked of a run of this machine that only a cluster can do."""

    code = "only-in-cluster"


class EmbeddedRuns:
    """The applications with a state below the state directory of `config`."""

    def __init__(self, config: Config) -> None:
        self.directory: Final = Path(state_home(config)).absolute()
        self._writers: Final = Writers(config[run_keys.WRITERS])
        self._threads: Final = ThreadPoolExecutor(MOST_THREADS, "runs")
        self._looks: Final[dict[str, tuple[float, asyncio.Future[EmbeddedStatus]]]] = {}
        self._epochs: Final[dict[str, tuple[int | None, int]]] = {}
        """By application: when the run that was seen last began, and how many were seen."""

    async def close(self) -> None:
        """Stop looking; the runs keep running."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def look_anew(self) -> None:
        """Look again for the next request, however recent the last look is."""
        self._looks.clear()

    # ---- reading

    async def applications(self) -> tuple[ApplicationSummary, ...]:
        """All applications, over or not, the newest first, in short."""
        looks = await asyncio.gather(*map(self._look, await self.in_thread(self._ids)))
        lines = (look.view.line for look in looks)
        return tuple(sorted(lines, key=lambda line: line.submitted_ms, reverse=True))

    async def application(self, app: str) -> ApplicationView:
        """The application of this id, or the one of this name that runs, else the newest of that name.

        Raises UnknownApplicationError.
        """
        ids = await self.in_thread(self._ids)
        if app in ids:
            return (await self._look(app)).view
        named = [id for id in ids if id.rpartition("-")[0] == app]
        looks = await asyncio.gather(*map(self._look, named))
        if not looks:
            raise UnknownApplicationError(
                "no application of this id or name has run here",
                where=app,
                expected=f"one with its state in {self.directory}",
                remedy=did_you_mean(app, ids, otherwise="name its state directory with --state-dir"),
            )
        return max(looks, key=lambda look: (not look.state.is_over, look.began_ms)).view

    async def job_status(self, view: ApplicationView) -> JobStatus | None:
        """The status of an application, the final one when it is over; None while it does not answer."""
        return (await self._look(view.app_id)).status

    async def history(self, view: ApplicationView) -> History:
        """The last quarter of an hour of the run; empty when it was killed."""
        look = await self._look(view.app_id)
        if look.last is not None:
            return look.last.history
        if look.status is None:
            return NO_HISTORY
        try:
            answer = await self.in_thread(lambda: ask(look.rundir, ControlRequest("history"), ANSWER_S))
        except UnavailableError:
            return NO_HISTORY
        return answer.history or NO_HISTORY

    async def graph(self, view: ApplicationView) -> Graph:
        """The graph that runs, or ran last, with coordinates; raises UserError when none is known."""
        look = await self._look(view.app_id)
        if look.last is not None:
            return look.last.graph
        answer = await self.in_thread(lambda: ask(look.rundir, ControlRequest("graph")))
        if answer.graph is None:
            raise InternalError("the answer of a run lacks its graph", where=view.app_id)
        return answer.graph

    async def threads(self, view: ApplicationView) -> dict[str, str]:
        """The stacks of the threads of a run, as text; raises NotRunningError when it does not run."""
        look = await self._look(view.app_id)
        answer = await self.in_thread(lambda: ask(look.rundir, ControlRequest("threads")))
        if answer.threads is None:
            raise InternalError("the answer of a run lacks its threads", where=view.app_id)
        return answer.threads

    async def workers(self) -> tuple[WorkerView, ...]:
        """None: this is no cluster."""
        return ()

    async def masters(self) -> tuple[MasterView, ...]:
        """None: this is no cluster."""
        return ()

    async def rundir(self, view: ApplicationView) -> RunDirectory:
        """The state directory of an application."""
        return (await self._look(view.app_id)).rundir

    async def wait_clock(self, app: str, moment: str | int | datetime, timeout: str = DEFAULT_TIMEOUT) -> int:
        """Wait until an application has processed everything before `moment`; returns its clock, in ms.

        Raises StillUnderWayError when the clock does not reach it in time, ApplicationOverError when the
        application ends first.
        """
        wanted_ms, app_id = moment_ms(moment, "moment"), (await self.application(app)).app_id

        def reached(look: EmbeddedStatus) -> int | None:
            clock_ms = look.view.clock_ms
            if clock_ms is not None and clock_ms >= wanted_ms:
                return clock_ms
            if look.state.is_over:
                raise ApplicationOverError(
                    f"the application has ended before its clock reached {moment_text(wanted_ms)}",
                    where=app_id,
                    remedy="drivetrain run continues it",
                )
            return None

        wait_s = milliseconds(timeout, "timeout") / 1000
        return await self._wait(app_id, reached, wait_s, "the application's clock is not there yet")

    # ---- writing

    async def kill(self, app: str) -> ApplicationView:
        """Have a run finish its batches and end, as by Ctrl-C; returns when it has."""
        look = await self._look((await self.application(app)).app_id)
        await self.in_thread(lambda: ask(look.rundir, ControlRequest("stop")))
        return await self._wait(
            look.app_id,
            lambda now: now.view if now.state.is_over else None,
            _STOPS_S,
            "the application is still finishing its batches",
        )

    async def savepoint(self, app: str, place: str | Path, timeout: str = "1 min") -> Path:
        """Have a run write a savepoint; returns the directory. Raises like `drivetrain.savepoint`."""
        timeout_ms, directory = milliseconds(timeout, "timeout"), Path(place).absolute()
        rundir = (await self._look((await self.application(app)).app_id)).rundir
        await self.in_thread(lambda: make_savepoint(rundir, directory, timeout_ms))
        return directory

    # ---- what there is only in a cluster

    async def submit(self, submission: Submission, *, submission_id: str | None = None) -> NoReturn:
        """Refuse."""
        raise only_in_cluster("take applications", "start it with drivetrain run", submission.spec.name)

    async def restart(self, app: str) -> NoReturn:
        """Refuse."""
        raise only_in_cluster("start an application again", "start it again with drivetrain run", app)

    async def replay(self, app: str, replay_from: str | int | datetime) -> NoReturn:
        """Refuse."""
        raise only_in_cluster("begin a replay", "stop it, and give drivetrain run --replay-from", app)

    async def logs(
        self, app: str, process: str | None = None, *, max_bytes: int = 64 * 1024, offset: int | None = None
    ) -> list[Piece]:
        """Refuse."""
        raise only_in_cluster("show logs", "see the terminal or file that drivetrain run writes to", app)

    async def follow_logs(
        self, app: str, process: str | None = None, *, max_bytes: int = 64 * 1024
    ) -> AsyncIterator[Piece | None]:
        """Refuse."""
        for piece in await self.logs(app, process):
            yield piece

    # ---- inside

    async def in_thread(self, do: Callable[[], T]) -> T:
        """What `do` returns, in one of the threads that look at state directories."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, do)

    def _ids(self) -> list[str]:
        return sorted(file.parent.name for file in self.directory.glob("*/application.json"))

    async def _look(self, app_id: str) -> EmbeddedStatus:
        now_s = time.monotonic()
        at_s, found = self._looks.get(app_id, (-FRESH_S, None))
        if found is None or (found.done() and now_s - at_s >= FRESH_S):
            self._forget(now_s)
            found = asyncio.ensure_future(self._looked(app_id))
            self._looks[app_id] = now_s, found
        return await asyncio.shield(found)

    def _forget(self, now_s: float) -> None:
        old = [id for id, (at_s, look) in self._looks.items() if look.done() and now_s - at_s > FORGET_S]
        for id in old:
            del self._looks[id]

    async def _looked(self, app_id: str) -> EmbeddedStatus:
        try:
            look = await self.in_thread(lambda: look_at(self.directory / app_id, self._writers))
        except OSError as error:  # it was deleted meanwhile
            raise UnknownApplicationError(
                "the state of this application is gone", where=app_id, got=str(error)
            ) from error
        began_ms, epoch = self._epochs.get(app_id, (None, 0))
        if look.status is not None and look.status.started_ms != began_ms:
            epoch += 1
            self._epochs[app_id] = look.status.started_ms, epoch
        return look.in_epoch(epoch)

    async def _wait(
        self, app_id: str, found: Callable[[EmbeddedStatus], T | None], timeout_s: float, otherwise: str
    ) -> T:
        end_s = time.monotonic() + timeout_s
        while True:
            known = found(await self._look(app_id))
            if known is not None:
                return known
            if time.monotonic() >= end_s:
                raise StillUnderWayError(
                    otherwise, where=app_id, got=f"after {timeout_s:g} s", remedy="look again later"
                )
            await asyncio.sleep(POLL_S)


def only_in_cluster(what: str, remedy: str, app: str | None = None) -> OnlyInClusterError:
    """The error for something that only the console of a cluster can do."""
    return OnlyInClusterError(
        f"this console shows the runs of one machine, and cannot {what}",
        where=app,
        expected="the console of a cluster",
        remedy=remedy,
    )

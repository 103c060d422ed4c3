"""Polls the cluster and the applications that a page watches, and keeps the board up to date.

Problem: every open page must show changes within a second, and pages that are open for days must not slow
down the cluster: two hundred pages may cost the masters and an application master no more than one.

Design: one loop polls the cluster while any page listens, and one loop polls each application that a page
watches. Both continue for a while after the last page has closed, because pages are reloaded. They put the
results on the board and wake the listeners, which read the board at their own speed. While no leader answers,
an application's master is asked directly, at its last known address.

Invariants:

1. Each application is looked at by at most one loop.
2. No error of a poll ends its loop.
3. An application is gone when the leader reports it, or when it was missing in `LOOKS_UNTIL_GONE` consecutive
   lists: a list that comes in pages may lack one that changed meanwhile.

Called by `console.services` and `console.handlers`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from typing import Final

import msgspec

from drivetrain.cluster.client import Client, UnknownApplicationError
from drivetrain.cluster.messages import applications as messages
from drivetrain.cluster.messages.following import JobStatus
from drivetrain.console.answers.applications import ApplicationSnapshot
from drivetrain.console.answers.cluster import Shows
from drivetrain.console.answers.events import ConnectionEvent, GoneEvent
from drivetrain.console.embedded.runs import EmbeddedRuns
from drivetrain.console.past.recorder import Recorder
from drivetrain.console.watching.board import Board, Topic
from drivetrain.console.watching.guest_snapshots import Snapshots, snapshots_of, without_texts
from drivetrain.console.watching.rates import Rates
from drivetrain.console.watching.status_answers import cluster_of, line_of
from drivetrain.core.job.history import NO_HISTORY, STEP_MS, History
from drivetrain.errors import DrivetrainError

EVERY_S: Final = 1.0
OVER_EVERY_S: Final = 10.0
"""How often an application that is over is looked at: it may be restarted."""
LINGER_S: Final = 20.0
LOOKS_UNTIL_GONE: Final = 3

CLUSTER: Final = Topic("cluster")
CONNECTION: Final = Topic("connection")
LINE: Final = "application"
SNAPSHOT: Final = "snapshot"
GONE: Final = "gone"

log = logging.getLogger("drivetrain.console")


@dataclass
class _Watched:
    """An application that is looked at."""

    listeners: int = 0
    left_s: float = 0.0
    view: messages.ApplicationView | None = None
    rates: Rates = field(default_factory=Rates)
    snapshots: Snapshots | None = None
    history: History = NO_HISTORY
    """The last quarter of an hour, for the diagnosis; more is in the recorder's file."""
    history_s: float | None = None
    """When the history was asked for; it has a new moment every `STEP_MS`."""
    looking: asyncio.Task[None] | None = None


class Watch:
    """Looks through `client`, whose timeout is how long one look may take."""

    def __init__(
        self, client: Client | EmbeddedRuns, recorder: Recorder, *, every_s: float = EVERY_S
    ) -> None:
        self.board: Final = Board()
        self.is_ending = False
        """Whether the console ends: streams send what there is, and end."""
        self.boot: Final = secrets.token_hex(4)
        """Makes the numbers of this console's events differ from those of the one before."""
        self._client: Final = client
        self._shows: Final[Shows] = "runs" if isinstance(client, EmbeddedRuns) else "cluster"
        self._recorder: Final = recorder
        self._every_s: Final = every_s
        self._watched: Final[dict[str, _Watched]] = {}
        self._listeners = 0
        self._left_s = 0.0
        self._looking: asyncio.Task[None] | None = None
        self._bell = asyncio.Event()
        self._masters: tuple[messages.MasterView, ...] = ()
        self._workers: tuple[messages.WorkerView, ...] = ()
        self._lines: tuple[messages.ApplicationSummary, ...] = ()
        self._missing: Final[dict[str, int]] = {}

    async def close(self) -> None:
        """Stop looking."""
        tasks = [self._looking, *(watched.looking for watched in self._watched.values())]
        for task in tasks:
            if task is not None:
                task.cancel()
        await asyncio.gather(*(task for task in tasks if task is not None), return_exceptions=True)

    def end_streams(self) -> None:
        """The console ends: let every stream send what is left, and end."""
        self.is_ending = True
        self._ring()

    async def look_last(self, timeout_s: float) -> None:
        """Look once more at everything that is watched, so that streams get the final state."""
        looks = [self._look_at(app_id, watched) for app_id, watched in self._watched.items()]
        if self._listeners:
            looks.append(self._look_at_cluster())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await asyncio.gather(*looks, return_exceptions=True)

    @contextlib.asynccontextmanager
    async def listening(self, app_ids: Iterable[str] = ()) -> AsyncIterator[None]:
        """Within the block, the board follows the cluster, and these applications in detail."""
        ids = list(dict.fromkeys(app_ids))
        self._listeners += 1
        for app_id in ids:
            self._watched.setdefault(app_id, _Watched()).listeners += 1
        self._start()
        try:
            yield
        finally:
            now_s = time.monotonic()
            self._listeners -= 1
            self._left_s = now_s
            for app_id in ids:
                watched = self._watched[app_id]
                watched.listeners -= 1
                watched.left_s = now_s

    async def wait_after(self, number: int, timeout_s: float) -> None:
        """Wait until the board has something newer than `number`, at most `timeout_s`."""
        if self.board.newest <= number and not self.is_ending:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._bell.wait(), timeout_s)

    async def snapshots(self, app: str) -> Snapshots:
        """An application, of this id or name, as it is now; raises like `Client.application`."""
        view = await self._client.application(app)
        watched = self._watched.get(view.app_id)
        if watched is not None and watched.snapshots is not None and watched.listeners:
            return watched.snapshots
        client = self._client
        status, history, workers, masters = await asyncio.gather(
            client.job_status(view), client.history(view), client.workers(), client.masters()
        )
        return snapshots_of(view, status, workers, masters, history, Rates(), _now_ms())

    # ---- the cluster

    def _start(self) -> None:
        if self._looking is None or self._looking.done():
            self._looking = asyncio.ensure_future(self._look_again_and_again())
        for app_id, watched in self._watched.items():
            if watched.looking is None or watched.looking.done():
                watched.looking = asyncio.ensure_future(self._follow(app_id, watched))

    async def _look_again_and_again(self) -> None:
        while self._listeners or time.monotonic() - self._left_s < LINGER_S:
            try:
                await self._look_at_cluster()
            except DrivetrainError as error:
                self._note_connection(error)
            except Exception:  # see invariant 2
                log.exception("looking at the cluster failed; it is tried again")
            await asyncio.sleep(self._every_s)

    async def _look_at_cluster(self) -> None:
        self._masters = await self._client.masters()
        if self._shows == "cluster" and not any(master.leads for master in self._masters):
            self._note_cluster()  # the queries below need a leader
        self._workers, self._lines = await asyncio.gather(self._client.workers(), self._client.applications())
        self._note_cluster()
        for line in self._lines:
            shown = without_texts(line)
            self._put(
                Topic(LINE, line.app_id),
                line_of(line),
                for_guests=None if shown is line else line_of(shown),
            )
        there = {line.app_id for line in self._lines}
        for app_id in self.board.topics(LINE):
            self._missing[app_id] = 0 if app_id in there else self._missing.get(app_id, 0) + 1
            if self._missing[app_id] >= LOOKS_UNTIL_GONE:
                self._gone(app_id)
        self._note_connection(None)

    def _note_cluster(self) -> None:
        cluster = cluster_of(self._masters, self._workers, self._lines, _now_ms(), self._shows)
        still = tuple(
            msgspec.structs.replace(m, silent_ms=m.silent_ms and m.silent_ms // 1000) for m in cluster.masters
        )
        self._put(CLUSTER, cluster, msgspec.structs.replace(cluster, now_ms=0, masters=still))

    def _note_connection(self, error: DrivetrainError | None) -> None:
        event = ConnectionEvent(
            is_connected=error is None,
            since_ms=_now_ms(),
            problem=None if error is None else error.what,
            remedy=None if error is None else error.remedy,
        )
        self._put(CONNECTION, event, msgspec.structs.replace(event, since_ms=0))

    # ---- one application

    async def _follow(self, app_id: str, watched: _Watched) -> None:
        while watched.listeners or time.monotonic() - watched.left_s < LINGER_S:
            try:
                await self._look_at(app_id, watched)
            except DrivetrainError as error:
                log.info("cannot look at %s: %s", app_id, error.what)
            except Exception:  # see invariant 2
                log.exception("looking at an application failed; it is tried again")
            is_over = watched.view is not None and watched.view.state.is_over
            await asyncio.sleep(OVER_EVERY_S if is_over else self._every_s)
        del self._watched[app_id]
        self.board.drop(Topic(SNAPSHOT, app_id))

    async def _look_at(self, app_id: str, watched: _Watched) -> None:
        try:
            watched.view = await self._client.application(app_id)
        except UnknownApplicationError:
            self._gone(app_id)
            return
        except DrivetrainError:
            if watched.view is None:
                raise  # else its application master may still answer
        view = watched.view
        status = await self._ask(view, watched)
        if status is not None:
            watched.rates.note(status.epoch, status.now_ms, status.counts)
        made = watched.snapshots = snapshots_of(
            view, status, self._workers, self._masters, watched.history, watched.rates, _now_ms()
        )
        self._put(Topic(SNAPSHOT, app_id), made.for_users, _timeless(made.for_users), made.for_guests)

    async def _ask(self, view: messages.ApplicationView, watched: _Watched) -> JobStatus | None:
        """Ask its application master for the status, and for the history when that has grown."""
        now_s = time.monotonic()
        if watched.history_s is not None and now_s - watched.history_s < STEP_MS / 1000:
            return await self._client.job_status(view)
        status, watched.history = await asyncio.gather(
            self._client.job_status(view), self._client.history(view)
        )
        # Without an answer: the next application master is asked for its history at once.
        watched.history_s = None if status is None else now_s
        await self._recorder.note(view.app_id, watched.history)
        return status

    def _gone(self, app_id: str) -> None:
        self._missing.pop(app_id, None)
        if self.board.gone(app_id, GONE, msgspec.json.encode(GoneEvent(app_id=app_id))):
            self._ring()

    def _put(
        self,
        topic: Topic,
        state: msgspec.Struct,
        meaning: msgspec.Struct | None = None,
        for_guests: msgspec.Struct | None = None,
    ) -> None:
        data = msgspec.json.encode(state)
        shown = data if for_guests is None or for_guests is state else msgspec.json.encode(for_guests)
        if self.board.put(topic, data if meaning is None else msgspec.json.encode(meaning), data, shown):
            self._ring()

    def _ring(self) -> None:
        bell, self._bell = self._bell, asyncio.Event()
        bell.set()


def _timeless(snapshot: ApplicationSnapshot) -> ApplicationSnapshot:
    """A snapshot without the times of the look."""
    job = snapshot.job
    if job is not None:
        checkpoints = job.checkpoints
        if checkpoints is not None:
            checkpoints = msgspec.structs.replace(checkpoints, now_ms=0)
        job = msgspec.structs.replace(job, now_ms=0, checkpoints=checkpoints)
    return msgspec.structs.replace(snapshot, now_ms=0, job=job)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000

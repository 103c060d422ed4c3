"""Records the figures of all applications that run, for curves of the last weeks.

Problem: users ask for figures of a time when no page was open.

Design: every `EVERY_S` the recorder requests the last quarter of an hour from all applications that run, and
records it in `history_file`. So a console that was away for less than that has missed nothing. A request for
the history of one application queries that application first, if it may have newer figures. All access to the
file is in one thread.

Invariants:

1. No error of an application, or of the file, ends the recording.
2. At most `MOST_ASKED` applications are asked at once.

Called by `console.server`, `console.watching.cluster_watch` and `console.services`.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

from drivetrain.cluster.client import Client
from drivetrain.cluster.messages.applications import ApplicationState, ApplicationView
from drivetrain.console.embedded.runs import EmbeddedRuns
from drivetrain.console.past.history_file import HistoryFile
from drivetrain.core.job.history import STEP_MS, History, Moment
from drivetrain.errors import DrivetrainError

EVERY_S: Final = 60.0
FIRST_S: Final = 10.0
MOST_ASKED: Final = 8
MOST_NOTED: Final = 1_000
FILE: Final = "history.sqlite"

T = TypeVar("T")
log = logging.getLogger("drivetrain.console")


class Recorder:
    """Records what `client` reports, in the directory of the console."""

    def __init__(self, client: Client | EmbeddedRuns, directory: Path) -> None:
        self._client: Final = client
        self._path: Final = directory / FILE
        self._thread: Final = ThreadPoolExecutor(1, "history")
        self._places: Final = asyncio.Semaphore(MOST_ASKED)
        self._noted_s: Final[OrderedDict[str, float]] = OrderedDict()
        """When the figures of an application were noted: it has new ones every `STEP_MS`."""
        self._file: HistoryFile | None = None
        self._recording: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Open the file and begin to record; without a file that can be used, a warning is written."""
        try:
            self._file = await self._in_thread(lambda: HistoryFile(self._path))
        except DrivetrainError as error:
            log.warning("%s", error)
            return
        self._recording = asyncio.ensure_future(self._record())

    async def close(self) -> None:
        """End recording, and close the file."""
        if self._recording is not None:
            self._recording.cancel()
            await asyncio.gather(self._recording, return_exceptions=True)
        file = self._file
        if file is not None:
            await self._in_thread(file.close)
        self._thread.shutdown()

    async def note(self, app_id: str, history: History) -> None:
        """Keep what an application master has reported."""
        file, moments = self._file, history.moments
        if file is not None and moments:
            self._noted_s[app_id] = time.monotonic()
            self._noted_s.move_to_end(app_id)
            while len(self._noted_s) > MOST_NOTED:
                self._noted_s.popitem(last=False)
            await self._in_thread(lambda: file.note(app_id, moments, _now_ms()))

    async def between(
        self, view: ApplicationView, since_ms: int | None, until_ms: int | None, span_ms: int, points: int
    ) -> History:
        """The moments of an application, at most `points`; without a beginning, the last `span_ms`."""
        file, app_id = self._file, view.app_id
        if file is None:
            return await self._client.history(view)
        if time.monotonic() - self._noted_s.get(app_id, -math.inf) >= STEP_MS / 1000:
            await self.note(app_id, await self._client.history(view))

        def read() -> list[Moment]:
            end = (file.newest_ms(app_id) or _now_ms()) if until_ms is None else until_ms
            begin = end - span_ms if since_ms is None else since_ms
            return file.between(app_id, begin, end, points)

        return History(tuple(await self._in_thread(read)))

    async def _record(self) -> None:
        await asyncio.sleep(FIRST_S)
        while True:
            try:
                lines = await self._client.applications()
                ids = [line.app_id for line in lines if line.state is ApplicationState.ACTIVE]
                await asyncio.gather(*map(self._record_one, ids))
            except DrivetrainError as error:
                log.info("no figures are recorded: %s", error.what)
            except Exception:  # see invariant 1
                log.exception("recording figures failed; it is tried again")
            await asyncio.sleep(EVERY_S)

    async def _record_one(self, app_id: str) -> None:
        async with self._places:
            try:
                await self.note(app_id, await self._client.history(await self._client.application(app_id)))
            except DrivetrainError as error:
                log.info("the figures of %s are not recorded: %s", app_id, error.what)

    async def _in_thread(self, do: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, do)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000

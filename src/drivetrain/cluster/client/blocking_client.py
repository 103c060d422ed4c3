"""The client for programs without an event loop.

Design: an event loop in its own thread runs the asynchronous client; every method here passes a call to it
and waits, so that Ctrl-C interrupts only the waiting.

Called by the commands and by programs; made by `connect`.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final, TypeVar

from drivetrain.api.durations import DEFAULT_TIMEOUT
from drivetrain.cluster.client.attachment import ReportEnd, ShowNotice, ShowStatus
from drivetrain.cluster.client.blocking_changes import BlockingVersionsClient
from drivetrain.cluster.client.open_client import open_any_client
from drivetrain.cluster.client.process_logs import Piece
from drivetrain.cluster.client.submission import Submission, prepare_submission
from drivetrain.cluster.messages.applications import (
    ApplicationSummary,
    ApplicationView,
    MasterView,
    Priority,
    WorkerView,
)
from drivetrain.cluster.messages.following import JobStatus, ThreadStacks
from drivetrain.config import Config
from drivetrain.core.job.history import History

T = TypeVar("T")

_CLOSE_S: Final = 15


def connect(config: Config | None = None) -> BlockingClient:
    """Open a client of the cluster in `config` (`cluster.masters`, the secret), or of the one that the
    console at `client.console` shows (with `client.console-token`); a context manager.

    Nothing is sent before the first call. Raises ConfigError, InsecureBindError, BindError.

    >>> def run(file: str) -> str:
    ...     with connect() as cluster:
    ...         app = cluster.submit(file, sets={"input": "/some/text"})
    ...         return cluster.wait(app, "1 min").state.value
    """
    return BlockingClient(config if config is not None else Config())


class BlockingClient(BlockingVersionsClient):
    """The methods of `client.Client`, each waiting for its result in the calling thread."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._loop: Final = asyncio.new_event_loop()
        self._thread: Final = threading.Thread(
            target=self._loop.run_forever, name="cluster-client", daemon=True
        )
        self._thread.start()
        try:
            self._client = self._wait(open_any_client(config))
        except BaseException:
            self._end_thread()
            raise

    def __enter__(self) -> BlockingClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect; applications keep running."""
        if not self._loop.is_closed():
            try:
                self._wait(self._client.close())
            finally:
                self._end_thread()

    def submit(
        self,
        file: str,
        *,
        name: str | None = None,
        sets: Mapping[str, str] | None = None,
        directory: Path | None = None,
        archives: Sequence[Path] = (),
        fresh: bool = False,
        replay_from: str | int | datetime | None = None,
        priority: Priority = Priority.NORMAL,
    ) -> str:
        """Load and plan the application of `file` here, then hand it to the cluster; returns its id.

        Raises the errors of loading, planning and `Client.submit`.
        """
        submission = prepare_submission(
            file,
            sets or {},
            self._config,
            name=name,
            directory=directory,
            archives=archives,
            fresh=fresh,
            replay_from=replay_from,
            priority=priority,
        )
        return self.submit_prepared(submission)

    def submit_prepared(self, submission: Submission, *, submission_id: str | None = None) -> str:
        """Hand a prepared application to the cluster; see `Client.submit`."""
        return self._wait(self._client.submit(submission, submission_id=submission_id))

    def applications(self) -> tuple[ApplicationSummary, ...]:
        """All applications; see `Client.applications`."""
        return self._wait(self._client.applications())

    def application(self, app: str) -> ApplicationView:
        """One application; see `Client.application`."""
        return self._wait(self._client.application(app))

    def status(self, app: str) -> tuple[ApplicationView, JobStatus | None]:
        """One application and its status; see `Client.status`."""
        return self._wait(self._client.status(app))

    def history(self, view: ApplicationView) -> History:
        """The last quarter of an hour of an application; see `Client.history`."""
        return self._wait(self._client.history(view))

    def kill(self, app: str) -> ApplicationView:
        """End an application; see `Client.kill`."""
        return self._wait(self._client.kill(app))

    def restart(self, app: str) -> ApplicationView:
        """Start an application again; see `Client.restart`."""
        return self._wait(self._client.restart(app))

    def replay(self, app: str, replay_from: str | int | datetime) -> ApplicationView:
        """Process messages again from a timestamp on; see `Client.replay`."""
        return self._wait(self._client.replay(app, replay_from))

    def wait(self, app: str, timeout: str = DEFAULT_TIMEOUT) -> ApplicationView:
        """Wait until an application has ended, for `timeout` ("5 min") at most; see `Client.wait`."""
        return self._wait(self._client.wait(app, timeout))

    def savepoint(self, app: str, place: str | os.PathLike[str] | None, timeout: str = "1 min") -> Path | str:
        """Have an application write a savepoint; see `Client.savepoint`."""
        return self._wait(self._client.savepoint(app, place, timeout))

    def wait_clock(self, app: str, moment: str | int | datetime, timeout: str = DEFAULT_TIMEOUT) -> int:
        """Wait until everything before `moment` has been processed; see `Client.wait_clock`."""
        return self._wait(self._client.wait_clock(app, moment, timeout))

    def threads(self, app: str, executor: str | None = None) -> ThreadStacks:
        """The stacks of an executor's threads; see `Client.threads`."""
        return self._wait(self._client.threads(app, executor))

    def wait_gone(self, app: str, timeout: str = DEFAULT_TIMEOUT) -> None:
        """Wait until none of its processes runs; see `Client.wait_gone`."""
        self._wait(self._client.wait_gone(app, timeout))

    def workers(self) -> tuple[WorkerView, ...]:
        """All workers; see `Client.workers`."""
        return self._wait(self._client.workers())

    def masters(self) -> tuple[MasterView, ...]:
        """All masters; see `Client.masters`."""
        return self._wait(self._client.masters())

    def follow(
        self, app: str, *, tick: str = "200 ms"
    ) -> Iterator[ShowStatus | ShowNotice | ReportEnd | None]:
        """Follow the events of an application; see `Client.follow`."""
        return self._iterate(lambda: self._client.follow(app, tick=tick))

    def logs(self, app: str, process: str | None = None, *, max_bytes: int = 64 * 1024) -> list[Piece]:
        """The ends of logs; see `Client.logs`."""
        return self._wait(self._client.logs(app, process, max_bytes=max_bytes))

    def follow_logs(
        self, app: str, process: str | None = None, *, max_bytes: int = 64 * 1024
    ) -> Iterator[Piece | None]:
        """Follow logs as they are written; see `Client.follow_logs`."""
        return self._iterate(lambda: self._client.follow_logs(app, process, max_bytes=max_bytes))

    def _wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _iterate(self, make: Callable[[], AsyncIterator[T]]) -> Iterator[T]:
        # An asynchronous generator must be made, stepped and closed by one loop.
        async def begin() -> AsyncIterator[T]:
            return make()

        async def step(iterator: AsyncIterator[T]) -> tuple[T] | None:
            async for item in iterator:
                return (item,)
            return None

        async def end(iterator: AsyncIterator[T]) -> None:
            close = getattr(iterator, "aclose", None)
            if close is not None:
                await close()

        iterator = self._wait(begin())
        try:
            while (item := self._wait(step(iterator))) is not None:
                yield item[0]
        finally:
            self._wait(end(iterator))

    def _end_thread(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CLOSE_S)
        if not self._thread.is_alive():
            self._loop.close()

"""The client for programs without an event loop.

Design: an event loop in its own thread runs the asynchronous client; every method here passes a call to it
and waits, so that Ctrl-C interrupts only the waiting.

Called by the commands and by programs; made by `connect`.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final, TypeVar

from drivetrain.api.durations import DEFAULT_TIMEOUT
from drivetrain.cluster.client.attachment import End, Say, Show
from drivetrain.cluster.client.edits_of_graphs import EditOfGraph, attach_edit, remove_edit, replace_edit
from drivetrain.cluster.client.open_client import AnyClient, open_any_client
from drivetrain.cluster.client.process_logs import Piece
from drivetrain.cluster.client.submission import Submission, prepare_submission
from drivetrain.cluster.client.version_requests import GraphHistory
from drivetrain.cluster.messages.applications import (
    ApplicationLine,
    ApplicationView,
    MasterView,
    Priority,
    WorkerView,
)
from drivetrain.cluster.messages.following import JobStatus, ThreadStacks
from drivetrain.config import Config
from drivetrain.core.change.change_options import NO_OPTIONS, ChangeOptions
from drivetrain.core.change.change_state import ChangeState, require_done
from drivetrain.core.change.graph_version import GraphVersion
from drivetrain.core.change.handover import time_given
from drivetrain.core.change.scaling_state import PlannedScaling, ScalingState, require_scaled
from drivetrain.core.job.history import History
from drivetrain.runtime.running_config import ChangedValue

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


class BlockingClient:
    """The methods of `client.Client`, each waiting for its result in the calling thread."""

    def __init__(self, config: Config) -> None:
        self._config: Final = config
        self._loop: Final = asyncio.new_event_loop()
        self._thread: Final = threading.Thread(
            target=self._loop.run_forever, name="cluster-client", daemon=True
        )
        self._thread.start()
        try:
            self._client: Final[AnyClient] = self._wait(open_any_client(config))
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

    def applications(self) -> tuple[ApplicationLine, ...]:
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

    def savepoint(self, app: str, place: str | os.PathLike[str] | None, timeout: str = "1 min") -> Path:
        """Have an application write a savepoint to a directory; see `Client.savepoint`."""
        return self._wait(self._client.savepoint(app, place, timeout))

    def wait_clock(self, app: str, moment: str | int | datetime, timeout: str = DEFAULT_TIMEOUT) -> int:
        """Wait until everything before `moment` has been processed; see `Client.wait_clock`."""
        return self._wait(self._client.wait_clock(app, moment, timeout))

    def threads(self, app: str, executor: str | None = None) -> ThreadStacks:
        """The stacks of an executor's threads; see `Client.threads`."""
        return self._wait(self._client.threads(app, executor))

    def update(
        self,
        app: str,
        file: str,
        *,
        sets: Mapping[str, str] | None = None,
        directory: Path | None = None,
        archives: Sequence[Path] = (),
        discard: bool = False,
        even_if_read: bool = False,
        drop_state: Iterable[str] = (),
        at: str | int | datetime = "now",
        timeout: str = DEFAULT_TIMEOUT,
    ) -> int:
        """Change an application to the graph in `file` while it runs; returns the version once its trial is
        over.

        `sets` are added to the settings of the application. With `discard`, removed fragments do not process
        the rest of their input; with `even_if_read`, it may change what other applications read. The
        processors in `drop_state` may begin with an empty state, if theirs does not fit. With `at`, an event
        time or "next-window", the new version gets the messages from then on. Raises the refusal,
        ChangeUnderwayError, RolledBackError when the new version has failed, and UnavailableError when its
        trial has not ended `timeout` after it came into force; the trial then continues.
        """
        spec = self.application(app).spec
        known = {**spec.config, **spec.settings, **(sets or {})}
        submission = prepare_submission(file, known, self._config, directory=directory, archives=archives)
        drops = tuple(drop_state)
        options = ChangeOptions(discards=discard, even_if_read=even_if_read, drops=drops, at=time_given(at))
        return self._ended(app, self.begin_update(app, submission, 0, options), timeout)

    def roll_back(
        self,
        app: str,
        number: int | None = None,
        timeout: str = DEFAULT_TIMEOUT,
        *,
        discard: bool = False,
        even_if_read: bool = False,
        drop_state: Iterable[str] = (),
    ) -> int:
        """Change an application back to a version (None: the one before); like `update`."""
        wanted = self.versions(app).record.follows if number is None else number
        options = ChangeOptions(discards=discard, even_if_read=even_if_read, drops=tuple(drop_state))
        return self._ended(app, self.begin_rollback(app, wanted, 0, options), timeout)

    def attach(
        self, app: str, file: str, *, to: str, directory: Path | None = None, timeout: str = DEFAULT_TIMEOUT
    ) -> int:
        """Add what the function `attach` in `file` makes after processor `to`; returns and raises as
        `update`."""
        begun = self.begin_edit(app, attach_edit(file, to, directory=directory))
        return self._ended(app, begun, timeout)

    def replace(
        self,
        app: str,
        processor: str,
        file: str,
        *,
        directory: Path | None = None,
        discard: bool = False,
        even_if_read: bool = False,
        drop_state: Iterable[str] = (),
        timeout: str = DEFAULT_TIMEOUT,
    ) -> int:
        """Put what the function `replace` in `file` returns in place of a processor, like `update`."""
        edit = replace_edit(file, processor, directory=directory)
        options = ChangeOptions(discards=discard, even_if_read=even_if_read, drops=tuple(drop_state))
        return self._ended(app, self.begin_edit(app, edit, 0, options), timeout)

    def remove(
        self,
        app: str,
        processor: str,
        *,
        discard: bool = False,
        even_if_read: bool = False,
        timeout: str = DEFAULT_TIMEOUT,
    ) -> int:
        """Remove a processor, and everything that reads from it, like `update`."""
        options = ChangeOptions(discards=discard, even_if_read=even_if_read)
        return self._ended(app, self.begin_edit(app, remove_edit(processor), 0, options), timeout)

    def begin_edit(
        self, app: str, edit: EditOfGraph, against: int = 0, options: ChangeOptions = NO_OPTIONS
    ) -> ChangeState:
        """Edit the graph in force of an application; see `Client.edit`."""
        return self._wait(self._client.edit(app, edit, against, options))

    def edited(self, app: str, edit: EditOfGraph, against: int = 0) -> GraphVersion:
        """The version that an edit would make; see `Client.edited`."""
        return self._wait(self._client.edited(app, edit, against))

    def begin_update(
        self, app: str, submission: Submission, against: int = 0, options: ChangeOptions = NO_OPTIONS
    ) -> ChangeState:
        """Change an application while it runs; see `Client.update`."""
        return self._wait(self._client.update(app, submission, against, options))

    def begin_rollback(
        self, app: str, number: int, against: int = 0, options: ChangeOptions = NO_OPTIONS
    ) -> ChangeState:
        """Change an application back to an earlier version; see `Client.roll_back`."""
        return self._wait(self._client.roll_back(app, number, against, options))

    def give_up_change(self, app: str, number: int) -> ChangeState:
        """Have an application go back from a version on trial; see `Client.give_up_change`."""
        return self._wait(self._client.give_up_change(app, number))

    def scale(self, app: str, fragment: str, partitions: int, timeout: str = DEFAULT_TIMEOUT) -> ScalingState:
        """Divide the state of a fragment, or of a processor's fragment, into so many partitions; see
        `drivetrain scale`. Waits until the fragment runs again, and returns how long it took.

        Raises UserError when that is impossible, or has failed, ChangeUnderwayError during a change, and
        UnavailableError when it has not ended after `timeout`; the scaling then continues.

        >>> def wider(client: BlockingClient) -> int:
        ...     return client.scale("shop", "hourly", partitions=8).paused_ms
        """
        begun = self.begin_scaling(app, fragment, partitions)
        return require_scaled(self.wait_scaled(app, begun, timeout))

    def plan_scaling(self, app: str, fragment: str, partitions: int) -> PlannedScaling:
        """What `scale` would do, with the size of the state; see `Client.plan_scaling`."""
        return self._wait(self._client.plan_scaling(app, fragment, partitions))

    def begin_scaling(self, app: str, fragment: str, partitions: int) -> ScalingState:
        """Begin to divide the state of a fragment again; see `Client.scale`."""
        return self._wait(self._client.scale(app, fragment, partitions))

    def wait_scaled(self, app: str, begun: ScalingState, timeout: str = DEFAULT_TIMEOUT) -> ScalingState:
        """Wait until a scaling has ended; see `Client.wait_scaled`."""
        return self._wait(self._client.wait_scaled(app, begun, timeout))

    def configure(
        self, app: str, values: Mapping[str, str], restore: Iterable[str] = ()
    ) -> tuple[ChangedValue, ...]:
        """Change configuration keys of an application while it runs; see `Client.configure`."""
        return self._wait(self._client.configure(app, values, restore))

    def change_state(self, app: str) -> ChangeState:
        """How an application changes; see `Client.change_state`."""
        return self._wait(self._client.change_state(app))

    def wait_change(self, app: str, number: int, timeout: str = DEFAULT_TIMEOUT) -> ChangeState:
        """Wait until the trial of a version has ended; see `Client.wait_change`."""
        return self._wait(self._client.wait_change(app, number, timeout))

    def versions(self, app: str) -> GraphHistory:
        """The versions of an application's graph; see `Client.versions`."""
        return self._wait(self._client.versions(app))

    def _ended(self, app: str, begun: ChangeState, timeout: str) -> int:
        return require_done(self.wait_change(app, begun.number, timeout))

    def wait_gone(self, app: str, timeout: str = DEFAULT_TIMEOUT) -> None:
        """Wait until none of its processes runs; see `Client.wait_gone`."""
        self._wait(self._client.wait_gone(app, timeout))

    def workers(self) -> tuple[WorkerView, ...]:
        """All workers; see `Client.workers`."""
        return self._wait(self._client.workers())

    def masters(self) -> tuple[MasterView, ...]:
        """All masters; see `Client.masters`."""
        return self._wait(self._client.masters())

    def follow(self, app: str, *, tick: str = "200 ms") -> Iterator[Show | Say | End | None]:
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

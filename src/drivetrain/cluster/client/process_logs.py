"""Reads the logs of an application's processes from the workers that keep them.

Problem: an application's processes come and go, on any worker, and their logs stay where they ran.

Design: the client asks every worker; each answers for the logs that it has. Following continues from the
offset of each log, and regularly looks for new processes.

Invariants:
1. While following, each byte of a process's log is shown once, in order; logs that exist at the start are
   shown from their last `max_bytes` on.
2. A worker that does not answer hides its logs, not those of the others.
3. Following ends when every log has been read to its end after the application was over. If a worker stays
   silent, it ends with an error that names the worker.

Called by `client.Client`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from drivetrain.actor import ActorFailedError, ActorRef, AskError
from drivetrain.cluster.client.client_errors import NoLogError
from drivetrain.cluster.leader import NoLeaderError, NoMasterError
from drivetrain.cluster.messages.applications import ApplicationView, WorkerView
from drivetrain.cluster.messages.launching import LogChunk, ReadLog
from drivetrain.errors import UnavailableError

_READ_MS: Final = 5_000
_PAUSE_S: Final = 0.5
_LOOK_EVERY: Final = 4
"""The client looks for new processes and the application's end once in so many rounds."""
_LAST_ROUNDS: Final = 3
"""How many rounds a worker may stay silent when the application is over."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of the log of `process`, which ran on `worker`; `data` is its bytes, unchanged.

    `next_offset` is the position of the next piece.
    """

    process: str
    worker: str
    data: bytes
    next_offset: int = 0


@dataclass(slots=True)
class _Log:
    """The offset up to which a log was read; None, before the first read, stands for its end."""

    worker: WorkerView
    process: str
    offset: int | None
    is_silent: bool = False
    """Whether its worker left the last request unanswered."""


@dataclass(frozen=True, slots=True)
class _FoundLogs:
    """The logs that workers have of an application's processes."""

    logs: list[tuple[WorkerView, str]]
    silent: list[str]
    """Workers that did not answer."""


class LogClient(Protocol):
    """The methods of the client that a reader of logs needs."""

    async def application(self, app: str) -> ApplicationView:
        """The application of this id or name."""

    async def workers(self) -> tuple[WorkerView, ...]:
        """All registered workers."""


class LogReader:
    """Reads logs for `client`."""

    def __init__(self, client: LogClient) -> None:
        self._client: Final = client

    async def read(
        self, view: ApplicationView, process: str | None, max_bytes: int, offset: int | None = None
    ) -> list[Piece]:
        """The ends of the logs, or what follows `offset`; see `Client.logs`."""
        pieces, logs = await self._begin(view, process, max_bytes, offset=offset)
        if not pieces and (silent := [log.worker.name for log in logs if log.is_silent]):
            raise _not_read_to_the_end(view.app_id, silent)
        return pieces

    async def follow(
        self, view: ApplicationView, process: str | None, max_bytes: int
    ) -> AsyncIterator[Piece | None]:
        """Yield the ends of the logs, then new output; see `Client.follow_logs`."""
        pieces, logs = await self._begin(view, process, max_bytes, may_be_none=not view.state.is_over)
        for piece in pieces:
            yield piece
        rounds, last_rounds, silent = 0, 0, list[str]()
        is_over = view.state.is_over
        while True:
            was_quiet = True
            for log in logs:
                while (more := await self._read_on(view.app_id, log, max_bytes)) is not None:
                    was_quiet = False
                    yield more
            if was_quiet:
                # The last output may have been written after the registry recorded the end: read once more.
                unread = sorted({*silent, *(log.worker.name for log in logs if log.is_silent)})
                if is_over and not unread:
                    return
                last_rounds += is_over
                if last_rounds >= _LAST_ROUNDS:
                    raise _not_read_to_the_end(view.app_id, unread)
                yield None
                await asyncio.sleep(_PAUSE_S)
            rounds += 1
            if silent or rounds % _LOOK_EVERY == 0:
                try:
                    is_over = (await self._client.application(view.app_id)).state.is_over
                    found = await self._find(view.app_id)
                except (NoLeaderError, NoMasterError):
                    continue  # workers answer even without a leader
                logs += _new(found, process, logs)
                silent = found.silent

    async def _begin(
        self,
        view: ApplicationView,
        process: str | None,
        max_bytes: int,
        *,
        offset: int | None = None,
        may_be_none: bool = False,
    ) -> tuple[list[Piece], list[_Log]]:
        pieces: list[Piece] = []
        logs: list[_Log] = []
        found = await self._find(view.app_id)
        for worker, name in found.logs:
            if process is not None and name != process:
                continue
            log = _Log(worker, name, offset)
            piece = await self._read_on(view.app_id, log, max_bytes)
            pieces += [piece] if piece is not None else []
            logs += [log] if log.is_silent or log.offset is not None else []
        if not logs and not may_be_none:
            if found.silent:
                raise _not_read_to_the_end(view.app_id, found.silent)
            names = ", ".join(sorted({name for _, name in found.logs}))
            raise NoLogError(
                "no worker has a log of this application" if process is None else f"no log of {process!r}",
                where=view.app_id,
                expected=f"one of {names}" if names and process is not None else None,
                remedy="name one of these by --process"
                if names
                else "logs are on the worker that ran the process: start that worker again",
            )
        return pieces, logs

    async def _find(self, app_id: str) -> _FoundLogs:
        workers = [worker for worker in await self._client.workers() if worker.worker is not None]
        asks = (_ask(worker, ReadLog(app_id, None, None, 1)) for worker in workers)
        logs: list[tuple[WorkerView, str]] = []
        silent: list[str] = []
        for worker, chunk in zip(workers, await asyncio.gather(*asks, return_exceptions=True), strict=True):
            if isinstance(chunk, AskError):
                silent.append(worker.name)
            elif isinstance(chunk, BaseException):
                raise chunk
            elif chunk is not None:
                logs += [(worker, name) for name in dict.fromkeys((*chunk.processes, chunk.process))]
        return _FoundLogs(sorted(logs, key=lambda one: (one[1], one[0].name)), silent)

    async def _read_on(self, app_id: str, log: _Log, max_bytes: int) -> Piece | None:
        try:
            chunk = await _ask(log.worker, ReadLog(app_id, log.process, log.offset, max_bytes))
        except AskError:
            log.is_silent = True
            return None
        log.is_silent = False
        if chunk is None:
            return None
        log.offset = chunk.next_offset
        if not chunk.data:
            return None
        return Piece(log.process, log.worker.name, chunk.data, chunk.next_offset)


def _new(found: _FoundLogs, process: str | None, logs: Sequence[_Log]) -> list[_Log]:
    known = {(log.worker.worker_id, log.process) for log in logs}
    return [
        _Log(worker, name, 0)
        for worker, name in found.logs
        if (worker.worker_id, name) not in known and process in (None, name)
    ]


async def _ask(worker: WorkerView, message: ReadLog) -> LogChunk | None:
    """Ask `worker` for a log; None if it has no such log; raises AskError if it does not answer."""
    reference: ActorRef | None = worker.worker
    if reference is None:
        return None
    try:
        return await reference.ask(message, LogChunk, timeout_ms=_READ_MS)
    except ActorFailedError as error:
        if error.failure_code == NoLogError.code:
            return None
        raise


def _not_read_to_the_end(app_id: str, workers: Sequence[str]) -> UnavailableError:
    return UnavailableError(
        "logs could not be read to their end: their workers do not answer",
        where=app_id,
        got=", ".join(workers),
        remedy="run `drivetrain logs` again when these workers answer; they keep their logs",
    )

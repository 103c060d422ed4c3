"""Reads what an application's processes wrote, from the workers that keep it.

Problem: an application's processes come and go, on any worker, and their logs stay where they ran.

Design: every worker is asked; each answers for what it has. Following reads on from the offset of each log,
and looks now and then for processes that are new.

Invariants:
1. While following, each byte of a process's log is shown once, in order; of logs that were there before, from
their last `max_bytes` on.
2. A worker that does not answer hides its logs, not those of the others.

Called by `client.Client`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from drivetrain.actor import ActorRef, AskError
from drivetrain.cluster.client.errors import NoLogError
from drivetrain.cluster.leader import NoLeaderError, NoMasterError
from drivetrain.cluster.messages.applications import ApplicationView, WorkerView
from drivetrain.cluster.messages.launching import LogChunk, ReadLog

if TYPE_CHECKING:
    from drivetrain.cluster.client.client import Client

_READ_MS: Final = 5_000
_PAUSE_S: Final = 0.5
_LOOK_EVERY: Final = 4
"""Every so many rounds the client looks for new processes and whether the application is over."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of the log of `process`, which ran on `worker`; `data` is as it was written."""

    process: str
    worker: str
    data: bytes


@dataclass(slots=True)
class _Log:
    """Where one log has been read to."""

    worker: WorkerView
    process: str
    offset: int


class LogReader:
    """Reads logs for `client`."""

    def __init__(self, client: Client) -> None:
        self._client: Final = client

    async def read(self, view: ApplicationView, process: str | None, max_bytes: int) -> list[Piece]:
        """The ends of the logs; see `Client.logs`."""
        pieces, _ = await self._begin(view, process, max_bytes)
        return pieces

    async def follow(
        self, view: ApplicationView, process: str | None, max_bytes: int
    ) -> AsyncIterator[Piece | None]:
        """The ends of the logs and what comes after; see `Client.follow_logs`."""
        pieces, logs = await self._begin(view, process, max_bytes, may_be_none=not view.state.is_over)
        for piece in pieces:
            yield piece
        rounds, is_over = 0, view.state.is_over
        while True:
            was_quiet = True
            for log in logs:
                while (more := await self._read_on(view.app_id, log, max_bytes)) is not None:
                    was_quiet = False
                    yield more
            if was_quiet:
                # What was written last may have come after the registry heard of the end: read once more.
                if is_over:
                    return
                yield None
                await asyncio.sleep(_PAUSE_S)
            rounds += 1
            if rounds % _LOOK_EVERY == 0:
                try:
                    is_over = (await self._client.application(view.app_id)).state.is_over
                    logs += await self._new(view.app_id, process, logs)
                except (NoLeaderError, NoMasterError):
                    continue  # the workers are there all the same

    async def _begin(
        self, view: ApplicationView, process: str | None, max_bytes: int, *, may_be_none: bool = False
    ) -> tuple[list[Piece], list[_Log]]:
        pieces: list[Piece] = []
        logs: list[_Log] = []
        known = await self._find(view.app_id)
        for worker, name in known:
            if process is not None and name != process:
                continue
            chunk = await _ask(worker, ReadLog(view.app_id, name, None, max_bytes))
            if chunk is not None:
                pieces.append(Piece(name, worker.name, chunk.data))
                logs.append(_Log(worker, name, chunk.next_offset))
        if not logs and not may_be_none:
            names = ", ".join(sorted({name for _, name in known}))
            raise NoLogError(
                "no worker has a log of this application" if process is None else f"no log of {process!r}",
                where=view.app_id,
                expected=f"one of {names}" if names and process is not None else None,
                remedy="name one of these by --process"
                if names
                else "logs are on the worker that ran the process: start that worker again",
            )
        return pieces, logs

    async def _find(self, app_id: str) -> list[tuple[WorkerView, str]]:
        """Every process of the application that some worker has a log of, by name."""
        workers = [worker for worker in await self._client.workers() if worker.worker is not None]
        asks = (_ask(worker, ReadLog(app_id, None, None, 1)) for worker in workers)
        found: list[tuple[WorkerView, str]] = []
        for worker, chunk in zip(workers, await asyncio.gather(*asks), strict=True):
            if chunk is not None:
                found += [(worker, name) for name in dict.fromkeys((*chunk.processes, chunk.process))]
        return sorted(found, key=lambda one: (one[1], one[0].name))

    async def _new(self, app_id: str, process: str | None, logs: Sequence[_Log]) -> list[_Log]:
        known = {(log.worker.worker_id, log.process) for log in logs}
        return [
            _Log(worker, name, 0)
            for worker, name in await self._find(app_id)
            if (worker.worker_id, name) not in known and process in (None, name)
        ]

    async def _read_on(self, app_id: str, log: _Log, max_bytes: int) -> Piece | None:
        chunk = await _ask(log.worker, ReadLog(app_id, log.process, log.offset, max_bytes))
        if chunk is None or not chunk.data:
            return None
        log.offset = chunk.next_offset
        return Piece(log.process, log.worker.name, chunk.data)


async def _ask(worker: WorkerView, message: ReadLog) -> LogChunk | None:
    reference: ActorRef | None = worker.worker
    if reference is None:
        return None
    try:
        return await reference.ask(message, LogChunk, timeout_ms=_READ_MS)
    except AskError:
        return None  # no such log there, or nobody there

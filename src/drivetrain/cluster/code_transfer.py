"""Moves an application's archive from a client to the leader, and from the masters to a worker.

Problem: connections break and leaders change in the middle; bytes that arrived should not be sent again, and
the archive must arrive unchanged.

Design: the receiver reports how much it has. A client sends from there until the leader reports that the
archive is complete, verified and durable; a new leader that has less reports that, and gets the rest. A
worker appends to a file and requests the bytes from its end on, from any master; it verifies the hash when it
unpacks.

Invariants:
1. `upload` returns only when a leader has answered `complete`.
2. No chunk is larger than `CHUNK_BYTES`.
3. A transfer that makes no progress ends with an error.

Called by clients, workers and application masters.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol, TypeVar

from drivetrain.actor import ActorFailedError, AskError, Message
from drivetrain.cluster.leader import LeaderSearch
from drivetrain.cluster.messages.code import CHUNK_BYTES, CodeChunk, CodeStored, GetCode, PutCode
from drivetrain.code.archive import Archive
from drivetrain.errors import PeerViolationError, UnavailableError

R = TypeVar("R", bound=Message)

NO_CODE: Final = "no-code"
_MOST_SETBACKS: Final = 20
_ASK_MS: Final = 5_000
_PAUSE_S: Final = 0.5


class CodeMissingError(UnavailableError):
    """No master that answers has the archive."""

    code = NO_CODE


class AskLeader(Protocol):
    """Asks the current leader, repeatedly if necessary, until it answers or a timeout has passed."""

    async def __call__(self, message: Message, reply: type[R]) -> R:
        """Return the answer; raises a DrivetrainError without one."""


class PartialArchive(Protocol):
    """The bytes of an archive that have arrived; `CodeCache` is one."""

    def arrived_bytes(self, sha256: str) -> int:
        """How many bytes of an archive have arrived."""

    def append(self, sha256: str, data: bytes) -> None:
        """Append the next bytes."""


async def upload(ask: AskLeader, archive: Archive) -> None:
    """Send the archive to the leader, except the bytes that it has.

    Raises what `ask` raises, or PeerViolationError when the transfer makes no progress.
    """
    size = archive.size_bytes
    stored = await ask(PutCode(archive.sha256, 0, size, b""), CodeStored)
    furthest, setbacks = 0, 0
    while not stored.complete:
        offset = stored.stored_bytes
        if not 0 <= offset <= size:
            raise _no_progress(archive.sha256, f"{offset} of {size} bytes stored")
        chunk = archive.data[offset : offset + CHUNK_BYTES]
        stored = await ask(PutCode(archive.sha256, offset, size, chunk), CodeStored)
        if stored.stored_bytes <= furthest and not stored.complete:
            setbacks += 1
            if setbacks > _MOST_SETBACKS + size // CHUNK_BYTES:
                raise _no_progress(archive.sha256, f"{stored.stored_bytes} of {size} bytes, again and again")
        furthest = max(furthest, stored.stored_bytes)


async def fetch(
    search: LeaderSearch,
    sha256: str,
    cache: PartialArchive,
    blocking: Callable[..., Awaitable[object]],
    *,
    timeout_ms: int,
) -> None:
    """Download the archive into `cache`, ready to install; continues after the part that is there.

    Asks the leader first, then the other masters. `blocking(function, *args)` runs the function in a thread.
    Raises CodeMissingError when no master that answers has it, or none answers within `timeout_ms`.
    """
    end_s = asyncio.get_running_loop().time() + timeout_ms / 1000
    offset = await blocking(cache.arrived_bytes, sha256)
    assert isinstance(offset, int)
    while True:
        chunk = await _chunk(search, GetCode(sha256, offset), end_s)
        if chunk.offset != offset or (not chunk.data and offset < chunk.size_bytes):
            raise _no_progress(sha256, f"a chunk at {chunk.offset} of {len(chunk.data)} bytes")
        if chunk.data:
            await blocking(cache.append, sha256, chunk.data)
        offset += len(chunk.data)
        if offset >= chunk.size_bytes:
            return


async def _chunk(search: LeaderSearch, request: GetCode, end_s: float) -> CodeChunk:
    loop = asyncio.get_running_loop()
    while True:
        refusals = 0
        for place in _places(search):
            master = await search.master(place)
            if master is None:
                continue
            try:
                return await master.ask(request, CodeChunk, timeout_ms=_ASK_MS)
            except ActorFailedError as error:
                refusals += error.failure_code == NO_CODE
            except AskError:
                search.forget(place)
        if refusals == len(search.masters) or loop.time() + _PAUSE_S >= end_s:
            raise CodeMissingError(
                "the masters do not have the application's code"
                if refusals
                else "no master gives the application's code",
                where=request.sha256,
                got=f"{refusals} of {len(search.masters)} masters do not have it",
                remedy="start the missing masters, or submit the application again",
            )
        await asyncio.sleep(_PAUSE_S)


def _places(search: LeaderSearch) -> list[str]:
    """The masters, the last known leader first."""
    places = list(search.masters)
    if search.leads in places:
        places.remove(search.leads)
        places.insert(0, search.leads)
    return places


def _no_progress(sha256: str, got: str) -> PeerViolationError:
    return PeerViolationError(
        "the transfer of an application's code makes no progress",
        where=sha256,
        got=got,
        remedy="use one version of Drivetrain everywhere",
    )

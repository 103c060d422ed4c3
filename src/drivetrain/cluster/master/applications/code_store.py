"""Archives of application code on a master's disk, by their SHA-256.

Problem. Code is uploaded in pieces over a network that breaks, by clients that vanish, and must be on a
majority of masters before an application that needs it is accepted.

Design. Every chunk is a separate file, so that no archive is ever in memory as a whole; the archive is
verified after the last chunk, and only then a manifest names the chunks: an archive without a manifest is an
incomplete upload, and starts again after a restart. The leader sends a complete archive to the other masters
and answers `complete` when a majority has it. Each master removes archives that no record has needed for a
while; a master that knows of no leader removes nothing, as its registry may be outdated.

Invariants:
1. An archive with a manifest has the bytes whose SHA-256 is its name, durably.
2. The leader answers `complete` only when a majority has the archive.
3. An archive has at most `LARGEST_BYTES`, in `MOST_CHUNKS`. At most `MOST_UPLOADS` are incomplete, and those
   that no application needs have at most `MOST_UNNEEDED_BYTES`: a new one replaces the oldest.
4. Only names made of 64 hexadecimal digits reach the disk.

Called by `/user/master`: clients through the leader (`PutCode`), any process (`GetCode`), leaders
(`ReplicateCode`).
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Final

import msgspec

from drivetrain.actor import ActorRef, Failure, Message
from drivetrain.actor.disk import Disk
from drivetrain.cluster.guarded import GuardedActor
from drivetrain.cluster.master.master_messages import (
    CodeReplicated,
    EnsureCode,
    EnsureCodeReply,
    Leadership,
    Tick,
)
from drivetrain.cluster.master.master_settings import MasterSettings
from drivetrain.cluster.master.registry.application_records import codes_of
from drivetrain.cluster.master.registry.replica import ReplicaStore
from drivetrain.cluster.messages.code import CHUNK_BYTES, CodeChunk, CodeStored, GetCode, PutCode
from drivetrain.cluster.messages.replication import ReplicateCode
from drivetrain.code.archive import LARGEST_BYTES
from drivetrain.errors import DrivetrainError

log = logging.getLogger("drivetrain.cluster")

_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_PREFIX: Final = "code-"
_MOST_CHUNK_BYTES: Final = 4 * CHUNK_BYTES
MOST_CHUNKS: Final = 4096
MOST_UPLOADS: Final = 16
MOST_UNNEEDED_BYTES: Final = 16 * LARGEST_BYTES


@dataclass(slots=True)
class _Archive:
    """The lengths of the chunks on this master; complete once verified."""

    size_bytes: int
    chunks: list[int] = field(default_factory=list)
    stored_bytes: int = 0
    is_complete: bool = False
    hash: hashlib._Hash = field(default_factory=hashlib.sha256)
    unneeded_since_ms: int | None = None


class CodeStore(GuardedActor):
    """The archives of one master."""

    def __init__(
        self, settings: MasterSettings, disk: Disk, store: ReplicaStore, leadership: Leadership
    ) -> None:
        self._settings: Final = settings
        self._disk: Final = disk
        self._store: Final = store
        self._leadership: Final = leadership
        self._archives: dict[str, _Archive] = {}
        self._waiting: dict[str, list[tuple[ActorRef, Message]]] = {}

    async def pre_start(self) -> None:
        """Load the complete archives; remove the remains of uploads."""
        names = await self._disk.names()
        for name in names:
            sha256 = name.removeprefix(_PREFIX)
            if name.startswith(_PREFIX) and _SHA256.fullmatch(sha256):
                sizes = msgspec.msgpack.decode(await self._disk.read(name) or b"\x90", type=list[int])
                self._archives[sha256] = _Archive(sum(sizes), sizes, sum(sizes), is_complete=True)
        for name in names:
            if name.startswith(_PREFIX) and name.removeprefix(_PREFIX).split(".")[0] not in self._archives:
                await self._disk.delete(name)
        interval_ms = max(1, min(60_000, self._settings.code_grace_ms // 4))
        self.context.timers.start_periodic("sweep", Tick(), interval_ms=interval_ms)

    async def act(self, message: Message) -> None:
        """Handle one message; a disk error becomes the answer."""
        try:
            await self._handle(message)
        except (DrivetrainError, OSError) as error:
            log.warning("code archives: %s", error)
            if self.context.sender is not None:
                code = error.code if isinstance(error, DrivetrainError) else "disk"
                self.context.reply(Failure(code, str(error)))

    async def _handle(self, message: Message) -> None:
        match message:
            case PutCode():
                await self._put(message, is_from_client=True)
            case ReplicateCode():
                await self._put(message, is_from_client=False)
            case GetCode(sha256, offset):
                await self._get(sha256, offset)
            case EnsureCode(sha256):
                self._ensure(sha256)
            case CodeReplicated():
                self._replicated(message)
            case Tick():
                await self._sweep()
            case _:
                self.context.unhandled(message)

    # ---- uploads

    async def _put(self, message: PutCode | ReplicateCode, *, is_from_client: bool) -> None:
        sha256 = message.sha256
        if (
            _SHA256.fullmatch(sha256) is None
            or not 1 <= message.size_bytes <= LARGEST_BYTES
            or message.offset < 0
            or len(message.data) > _MOST_CHUNK_BYTES
        ):
            what = f"not a chunk of an archive of at most {LARGEST_BYTES // 2**20} MiB"
            self.context.reply(Failure("bad-code", what, sha256[:80]))
            return
        archive = await self._take_chunk(message)
        if archive is None:
            return
        if not archive.is_complete:
            self.context.reply(CodeStored(sha256, archive.stored_bytes, False))
        elif is_from_client:
            self._replicate(sha256, CodeStored(sha256, archive.size_bytes, True))
        else:
            self.context.reply(CodeStored(sha256, archive.size_bytes, True))

    async def _take_chunk(self, message: PutCode | ReplicateCode) -> _Archive | None:
        sha256 = message.sha256
        archive = self._archives.get(sha256) or _Archive(message.size_bytes)
        if not archive.is_complete and archive.size_bytes != message.size_bytes:
            await self._remove(sha256)
            archive = _Archive(message.size_bytes)
        fits = message.offset == archive.stored_bytes
        if archive.is_complete or not message.data or not fits:
            return archive  # the answer contains the offset to continue from
        if (
            archive.stored_bytes + len(message.data) > archive.size_bytes
            or len(archive.chunks) >= MOST_CHUNKS
        ):
            self.context.reply(Failure("bad-code", "more bytes or chunks than the archive can have", sha256))
            return None
        if sha256 not in self._archives:
            await self._make_room(archive.size_bytes)
            self._archives[sha256] = archive
        name = f"{_PREFIX}{sha256}.{len(archive.chunks)}"
        await self._disk.write(name, message.data)
        await self._disk.sync(name)
        archive.hash.update(message.data)
        archive.chunks.append(len(message.data))
        archive.stored_bytes += len(message.data)
        if archive.stored_bytes < archive.size_bytes:
            return archive
        if archive.hash.hexdigest() != sha256:
            await self._remove(sha256)
            self.context.reply(
                Failure("bad-code", "the archive's bytes do not have its SHA-256", sha256, "send it again")
            )
            return None
        name = f"{_PREFIX}{sha256}"
        await self._disk.write(f"{name}.new", msgspec.msgpack.encode(archive.chunks))
        await self._disk.sync(f"{name}.new")
        await self._disk.replace(f"{name}.new", name)
        archive.is_complete = True
        return archive

    async def _make_room(self, size_bytes: int) -> None:
        """Before an upload: remove the oldest archives that no application needs, if those are too large."""
        needed = codes_of(self._store.map.values())
        free = {
            sha256: archive
            for sha256, archive in self._archives.items()
            if sha256 not in needed and sha256 not in self._waiting
        }
        uploads = sum(not archive.is_complete for archive in free.values())
        total_bytes = sum(archive.size_bytes for archive in free.values())
        for sha256, archive in free.items():
            is_upload = not archive.is_complete
            if (is_upload and uploads >= MOST_UPLOADS) or total_bytes + size_bytes > MOST_UNNEEDED_BYTES:
                log.info("removed the archive %s, which no application needs, for a new one", sha256)
                uploads -= is_upload
                total_bytes -= archive.size_bytes
                await self._remove(sha256)

    async def _get(self, sha256: str, offset: int) -> None:
        archive = self._archives.get(sha256)
        if archive is None or not archive.is_complete or not 0 <= offset < archive.size_bytes:
            self.context.reply(Failure("no-code", "this master does not have that archive", sha256[:80]))
            return
        data = await self._chunk_at(sha256, archive, offset)
        self.context.reply(CodeChunk(sha256, offset, archive.size_bytes, data))

    async def _chunk_at(self, sha256: str, archive: _Archive, offset: int) -> bytes:
        start = 0
        for number, size in enumerate(archive.chunks):
            if offset < start + size:
                data = await self._disk.read(f"{_PREFIX}{sha256}.{number}") or b""
                return data[offset - start :][:CHUNK_BYTES]
            start += size
        return b""

    # ---- replication

    def _replicate(self, sha256: str, answer: Message) -> None:
        """Answer once a majority has the archive."""
        sender = self.context.sender
        if sender is None:
            return
        waiting = self._waiting.setdefault(sha256, [])
        waiting.append((sender, answer))
        if len(waiting) == 1:
            self._pipe(sha256, self._spread(sha256))

    def _ensure(self, sha256: str) -> None:
        """Answer whether this master has the archive, after trying to get it from the others."""
        archive = self._archives.get(sha256)
        if not sha256 or (archive is not None and archive.is_complete):
            self.context.reply(EnsureCodeReply(True))
            return
        sender = self.context.sender
        if sender is None or _SHA256.fullmatch(sha256) is None:
            if sender is not None:
                self.context.reply(EnsureCodeReply(False))
            return
        waiting = self._waiting.setdefault(sha256, [])
        waiting.append((sender, EnsureCodeReply(True)))
        if len(waiting) == 1:
            self._pipe(sha256, self._collect(sha256))

    def _pipe(self, sha256: str, work: Awaitable[int]) -> None:
        self.context.pipe_to_self(
            work,
            lambda copies: CodeReplicated(sha256, copies),
            lambda _: CodeReplicated(sha256, 0),
        )

    def _replicated(self, message: CodeReplicated) -> None:
        enough = message.copies >= self._settings.quorum
        for sender, answer in self._waiting.pop(message.sha256, ()):
            if enough:
                sender.tell(answer)
            elif isinstance(answer, EnsureCodeReply):
                sender.tell(EnsureCodeReply(False))
            else:
                sender.tell(
                    Failure(
                        "no-quorum",
                        f"the code is on {message.copies} masters, {self._settings.quorum} are needed",
                        remedy="try again when a majority of the masters runs",
                    )
                )

    async def _spread(self, sha256: str) -> int:
        """Send the archive to the other masters; returns how many have it, including this one."""
        peers = [self._leadership.peers[address] for address in sorted(self._leadership.peers)]
        outcomes = await asyncio.gather(*(self._send_to(peer, sha256) for peer in peers))
        return 1 + sum(outcomes)

    async def _send_to(self, peer: ActorRef, sha256: str) -> bool:
        archive = self._archives[sha256]
        offset, data = 0, b""
        try:
            while True:
                message = ReplicateCode(sha256, offset, archive.size_bytes, data)
                timeout_ms = self._settings.quorum_timeout_ms // 2
                stored = await peer.ask(message, CodeStored, timeout_ms=timeout_ms)
                if stored.complete:
                    return True
                offset = stored.stored_bytes
                data = await self._chunk_at(sha256, archive, offset)
        except (DrivetrainError, OSError) as error:
            log.warning("could not give an archive to %s: %s", peer.path.address, error)
            return False

    async def _collect(self, sha256: str) -> int:
        """Get an archive from another master that has it; returns a quorum on success.

        Another master has it, because a majority received it before its upload was answered.
        """
        for address in sorted(self._leadership.peers):
            peer, offset = self._leadership.peers[address], 0
            try:
                while True:
                    timeout_ms = self._settings.quorum_timeout_ms // 2
                    chunk = await peer.ask(GetCode(sha256, offset), CodeChunk, timeout_ms=timeout_ms)
                    # Through the mailbox: one chunk at a time, in order with other messages.
                    put = ReplicateCode(sha256, offset, chunk.size_bytes, chunk.data)
                    stored = await self.context.me.ask(put, CodeStored, timeout_ms=timeout_ms)
                    if stored.complete:
                        return self._settings.quorum
                    offset = stored.stored_bytes
            except DrivetrainError:
                continue
        return 0

    # ---- removal

    async def _sweep(self) -> None:
        """Remove archives that no application has needed for a while."""
        now_ms = self._leadership.now_ms()
        if self._leadership.election.leader is None:
            return
        needed = codes_of(self._store.map.values())
        for sha256, archive in list(self._archives.items()):
            if sha256 in needed or sha256 in self._waiting:
                archive.unneeded_since_ms = None
            elif archive.unneeded_since_ms is None:
                archive.unneeded_since_ms = now_ms
            elif now_ms >= archive.unneeded_since_ms + self._settings.code_grace_ms:
                log.info("removed the archive %s, which no application needs", sha256)
                await self._remove(sha256)

    async def _remove(self, sha256: str) -> None:
        archive = self._archives.pop(sha256, None)
        if archive is None:
            return
        await self._disk.delete(f"{_PREFIX}{sha256}")
        for number in range(len(archive.chunks)):
            await self._disk.delete(f"{_PREFIX}{sha256}.{number}")

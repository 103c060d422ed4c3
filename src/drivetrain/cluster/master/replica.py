"""One master's copy of the registry: the map and its disk.

Design: `ReplicaStore` keeps map and log together; what changed in the map is appended and synced before
anything is answered. When that fails (a full disk), the log is behind the map: the store is *dirty*, and
nothing is acknowledged until a fresh snapshot has replaced the log. `Replica` is the actor around it; it
also gossips: now and then it tells another master a checksum of what it holds, and whoever differs compares.

Invariants:
1. An acknowledged round, and every fence that was answered for, is durable here.
2. A disk that refuses costs the acknowledgement, not the process.

Called by leaders (writes, reads) and by other replicas (gossip), through `/user/master`.
"""

from __future__ import annotations

import logging
from typing import Final

from drivetrain.actor import Actor, Message
from drivetrain.actor.disk import Disk
from drivetrain.cluster.master.local import Standing, Tick
from drivetrain.cluster.master.settings import MasterSettings
from drivetrain.cluster.messages.replication import (
    CHUNK_BYTES,
    Digest,
    Entries,
    EntriesWritten,
    Gossip,
    GossipDigest,
    ReadDigest,
    ReadEntries,
    TermRefused,
    WriteEntries,
    WriteFailed,
)
from drivetrain.core.map_log import Fenced, Rebased, Record, Written, decode, encode, restore, snapshot
from drivetrain.core.replicated_map import IncompleteBaseError, MapDigest, ReplicatedMap, StaleTermError
from drivetrain.errors import DrivetrainError

log = logging.getLogger("drivetrain.cluster")

LOG: Final = "registry.log"
_NEW_LOG: Final = "registry.new"
_SMALL_LOG_BYTES: Final = 1024 * 1024
_GROWTH: Final = 4


class ReplicaStore:
    """A replicated map and its log on a disk; `load` first."""

    def __init__(self, disk: Disk) -> None:
        self.map = ReplicatedMap()
        self._disk: Final = disk
        self._log_bytes = 0
        self._snapshot_bytes = 0
        self._is_dirty = False

    async def load(self) -> None:
        """Read what was durable; raises `CorruptLogError`, OSError."""
        data = await self._disk.read(LOG) or b""
        records, length = decode(data, LOG)
        self.map = restore(records, LOG)
        self._log_bytes = self._snapshot_bytes = length
        if length < len(data):
            log.info("left out %d bytes at the end of %s, which a crash cut off", len(data) - length, LOG)
            self._is_dirty = True

    async def keep(self, records: list[Record]) -> None:
        """Make what changed in the map durable. Raises `DiskFullError`, OSError; then call it again."""
        if not records and not self._is_dirty:
            return
        was_dirty, self._is_dirty = self._is_dirty, True
        if was_dirty or self._log_bytes > max(_SMALL_LOG_BYTES, _GROWTH * self._snapshot_bytes):
            data = snapshot(self.map)
            await self._disk.write(_NEW_LOG, data)
            await self._disk.sync(_NEW_LOG)
            await self._disk.replace(_NEW_LOG, LOG)
            self._log_bytes = self._snapshot_bytes = len(data)
        else:
            data = b"".join(map(encode, records))
            await self._disk.append(LOG, data)
            await self._disk.sync(LOG)
            self._log_bytes += len(data)
        self._is_dirty = False


class Replica(Actor):
    """Answers leaders and gossips."""

    def __init__(self, settings: MasterSettings, store: ReplicaStore, standing: Standing) -> None:
        self._settings = settings
        self._store = store
        self._standing = standing
        self._complained = False
        self._repairing: MapDigest | None = None

    def pre_start(self) -> None:
        """Begin to gossip."""
        self.context.timers.start_periodic("gossip", Tick(), interval_ms=self._settings.gossip_interval_ms)

    async def receive(self, message: Message) -> None:
        """Handle one request; what it changes is durable before it is answered."""
        match message:
            case WriteEntries():
                await self._write(message)
            case ReadDigest():
                await self._read_digest(message)
            case ReadEntries(keys):
                self.context.reply(Entries(tuple(self._store.map.take(keys, CHUNK_BYTES))))
            case Tick():
                self._gossip()
            case Gossip():
                self._compare(message)
            case GossipDigest():
                await self._repair(message.digest)
            case Entries():
                await self._take(message)
            case _:
                self.context.unhandled(message)

    async def _write(self, message: WriteEntries) -> None:
        me, replica = self._settings.me, self._store.map
        fence, base = replica.fence, replica.base
        why = ""
        try:
            new = replica.write(message.entries, message.term)
            if message.base is not None:
                replica.rebase(message.base)
        except StaleTermError as error:
            self.context.reply(TermRefused(me, message.term, error.fence))
            return
        except IncompleteBaseError as error:
            # What has come is kept; the leader sends everything again.
            new, why = list(message.entries), error.what
        changes: list[Record] = [Fenced(replica.fence)] if replica.fence != fence else []
        changes += [Written(tuple(new))] if new else []
        changes += [Rebased(replica.base)] if replica.base != base else []
        why = await self._keep(changes) or why
        if message.is_last or why:
            self.context.reply(
                WriteFailed(me, message.term, message.round, why)
                if why
                else EntriesWritten(me, message.term, message.round)
            )

    async def _read_digest(self, message: ReadDigest) -> None:
        me, replica = self._settings.me, self._store.map
        try:
            is_new = replica.fence_off(message.term)
        except StaleTermError as error:
            self.context.reply(TermRefused(me, message.term, error.fence))
            return
        if not await self._keep([Fenced(message.term)] if is_new else []):
            self.context.reply(Digest(me, message.term, replica.digest()))

    async def _keep(self, changes: list[Record]) -> str:
        """Make changes durable; returns why not, else nothing."""
        try:
            await self._store.keep(changes)
        except (DrivetrainError, OSError) as error:
            if not self._complained:
                log.error("this master acknowledges no writes: %s", error)  # noqa: TRY400
                self._complained = True
            return str(error)
        if self._complained:
            log.warning("the disk takes writes again")
            self._complained = False
        return ""

    # ---- gossip

    def _gossip(self) -> None:
        peers = [peer for address, peer in sorted(self._standing.peers.items())]
        if peers:
            peer = self.context.system.rng.choice(peers)
            replica = self._store.map
            peer.tell(Gossip(self._settings.me, replica.base, replica.summary()), self.context.me)

    def _compare(self, message: Gossip) -> None:
        replica = self._store.map
        if (message.base, message.summary) != (replica.base, replica.summary()):
            self.context.reply(GossipDigest(self._settings.me, replica.digest()))

    async def _repair(self, digest: MapDigest) -> None:
        """Get from the sender what is newer there, a message at a time: writes must not wait for it."""
        replica = self._store.map
        if digest.base < replica.base or self.context.sender is None:
            return
        missing = replica.missing(digest)
        if missing:
            self._repairing = digest
            self.context.reply(ReadEntries(tuple(missing)))
        elif replica.rebase(digest):
            await self._keep([Rebased(replica.base)])

    async def _take(self, message: Entries) -> None:
        new = self._store.map.merge(message.entries)
        if new:
            await self._keep([Written(tuple(new))])
            if self._repairing is not None:
                await self._repair(self._repairing)

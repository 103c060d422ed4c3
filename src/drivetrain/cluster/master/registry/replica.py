"""One master's copy of the registry: the map and its disk.

Design: `ReplicaStore` keeps map and log in agreement; changes of the map are appended and synced before any
answer. When that fails (a full disk), the log lacks changes: the store is *dirty*, and nothing is
acknowledged until a fresh snapshot has replaced the log. `Replica` is the actor around it; it also gossips:
it regularly sends another master a checksum of its entries, and if that differs, they compare.

Invariants:
1. Every acknowledged round, and every fence confirmed in an answer, is durable here.
2. A disk error prevents the acknowledgement, but does not end the process.

Called by leaders (writes, reads) and by other replicas (gossip), through `/user/master`.
"""

from __future__ import annotations

import logging
from typing import Final

from drivetrain.actor import Message
from drivetrain.actor.disk import Disk
from drivetrain.cluster.guarded import GuardedActor
from drivetrain.cluster.master.master_messages import Leadership, Tick
from drivetrain.cluster.master.master_settings import MasterSettings
from drivetrain.cluster.master.registry.plausible_terms import is_plausible
from drivetrain.cluster.messages.replication import (
    Digest,
    Entries,
    EntriesWritten,
    Gossip,
    GossipDigest,
    ReadDigest,
    ReadEntries,
    TermRefused,
    WriteBase,
    WriteEntries,
    WriteFailed,
)
from drivetrain.core.cluster.map_log import (
    Fenced,
    Rebased,
    Record,
    Written,
    decode,
    encode,
    restore,
    snapshot,
)
from drivetrain.core.cluster.replicated_map import (
    DigestCollector,
    IncompleteBaseError,
    MapDigest,
    ReplicatedMap,
    StaleTermError,
    first_keys,
    in_pieces,
)
from drivetrain.errors import DrivetrainError

log = logging.getLogger("drivetrain.cluster")

LOG: Final = "registry.log"
_NEW_LOG: Final = "registry.new"
_LEADER: Final = "the leader"
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
        """Read the log; raises `CorruptLogError`, OSError."""
        data = await self._disk.read(LOG) or b""
        records, length = decode(data, LOG)
        self.map = restore(records, LOG)
        self._log_bytes = self._snapshot_bytes = length
        if length < len(data):
            log.info("left out %d bytes at the end of %s, which a crash cut off", len(data) - length, LOG)
            self._is_dirty = True

    def mark_dirty(self) -> None:
        """The map may have entries that the log lacks: let `keep` write a snapshot."""
        self._is_dirty = True

    async def keep(self, records: list[Record]) -> None:
        """Make changes of the map durable. After `DiskFullError` or OSError, call it again."""
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
            data = encode(*records)
            await self._disk.append(LOG, data)
            await self._disk.sync(LOG)
            self._log_bytes += len(data)
        self._is_dirty = False


class Replica(GuardedActor):
    """Answers leaders and gossips."""

    def __init__(self, settings: MasterSettings, store: ReplicaStore, leadership: Leadership) -> None:
        self._settings = settings
        self._store = store
        self._leadership = leadership
        self._complained = False
        self._digests = DigestCollector()
        self._series = 0
        self._repairing: MapDigest | None = None

    def pre_start(self) -> None:
        """Start gossiping."""
        self.context.timers.start_periodic("gossip", Tick(), interval_ms=self._settings.gossip_interval_ms)

    async def act(self, message: Message) -> None:
        """Handle one request; its changes are durable before the answer."""
        if not is_plausible(message, self._leadership.election.term):
            return
        match message:
            case WriteEntries():
                await self._write(message)
            case WriteBase():
                await self._write_base(message)
            case ReadDigest():
                await self._read_digest(message)
            case ReadEntries(keys):
                entries = self._store.map.take(keys, self._settings.chunk_bytes)
                self.context.reply(Entries(tuple(entries)))
            case Tick():
                self._gossip()
            case Gossip():
                self._compare(message)
            case GossipDigest():
                await self._take_digest(message)
            case Entries():
                await self._take(message)
            case _:
                self.context.unhandled(message)

    def recovered(self) -> None:
        """Mark the store dirty: the failed handler's changes may not be in the log."""
        self._store.mark_dirty()

    # ---- leaders

    async def _write(self, message: WriteEntries) -> None:
        replica = self._store.map
        fence = replica.fence
        try:
            new = replica.write(message.entries, message.term)
        except StaleTermError as error:
            self._refuse_term(message.term, error)
            return
        changes: list[Record] = [Fenced(replica.fence)] if replica.fence != fence else []
        changes += [Written(tuple(new))] if new else []
        why = await self._keep(changes)
        if message.round:
            self._answer_round(message, why)

    async def _write_base(self, message: WriteBase) -> None:
        replica = self._store.map
        try:
            is_new = replica.fence_off(message.term)
        except StaleTermError as error:
            self._refuse_term(message.term, error)
            return
        changes: list[Record] = [Fenced(message.term)] if is_new else []
        series = (message.term, message.round)
        base = self._digests.add(_LEADER, series, message.piece, message.pieces, message.digest)
        if base is None:
            await self._keep(changes)
            return
        missing: tuple[str, ...] = ()
        try:
            gone = replica.rebase(base)
        except IncompleteBaseError:
            missing = first_keys(replica.missing(base), self._settings.chunk_bytes)
        else:
            changes += [] if gone is None else [Rebased(replica.base, tuple(gone))]
        why = await self._keep(changes)
        self._answer_round(message, why or ("entries of the base are missing" if missing else ""), missing)

    def _answer_round(
        self, message: WriteEntries | WriteBase, why: str, missing: tuple[str, ...] = ()
    ) -> None:
        me = self._settings.me
        self.context.reply(
            WriteFailed(me, message.term, message.round, why, missing)
            if why
            else EntriesWritten(me, message.term, message.round)
        )

    def _refuse_term(self, term: int, error: StaleTermError) -> None:
        self.context.reply(TermRefused(self._settings.me, term, error.fence))

    async def _read_digest(self, message: ReadDigest) -> None:
        replica = self._store.map
        try:
            is_new = replica.fence_off(message.term)
        except StaleTermError as error:
            self._refuse_term(message.term, error)
            return
        if await self._keep([Fenced(message.term)] if is_new else []):
            return
        for series, piece, pieces, digest in self._pieces():
            self.context.reply(Digest(self._settings.me, message.term, series, piece, pieces, digest))

    def _pieces(self) -> list[tuple[int, int, int, MapDigest]]:
        """The current digest in pieces: (series, piece, pieces, digest)."""
        self._series += 1
        pieces = in_pieces(self._store.map.digest(), self._settings.chunk_bytes)
        return [(self._series, number, len(pieces), piece) for number, piece in enumerate(pieces)]

    async def _keep(self, changes: list[Record]) -> str:
        """Make changes durable; returns the reason on failure, else an empty string."""
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
        peers = [peer for address, peer in sorted(self._leadership.peers.items())]
        if peers:
            peer = self.context.system.rng.choice(peers)
            replica = self._store.map
            peer.tell(Gossip(self._settings.me, replica.base, replica.summary()), self.context.me)

    def _compare(self, message: Gossip) -> None:
        replica = self._store.map
        if (message.base, message.summary) != (replica.base, replica.summary()):
            for series, piece, pieces, digest in self._pieces():
                self.context.reply(GossipDigest(self._settings.me, series, piece, pieces, digest))

    async def _take_digest(self, message: GossipDigest) -> None:
        sender = self.context.sender
        if message.master not in self._settings.peers or sender is None:
            return
        series = (sender.path.address, message.series)
        digest = self._digests.add(message.master, series, message.piece, message.pieces, message.digest)
        if digest is not None:
            await self._repair(digest)

    async def _repair(self, digest: MapDigest) -> None:
        """Get the sender's newer entries, one message at a time, so that writes do not wait for it."""
        replica = self._store.map
        if digest.base < replica.base or self.context.sender is None:
            return
        missing = replica.missing(digest)
        if missing:
            self._repairing = digest
            self.context.reply(ReadEntries(first_keys(missing, self._settings.chunk_bytes)))
            return
        gone = replica.rebase(digest)
        if gone is not None:
            await self._keep([Rebased(replica.base, tuple(gone))])

    async def _take(self, message: Entries) -> None:
        new = self._store.map.merge(message.entries)
        if new:
            await self._keep([Written(tuple(new))])
            if self._repairing is not None:
                await self._repair(self._repairing)

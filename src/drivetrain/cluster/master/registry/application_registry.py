"""The leader's access to the registry: takes it over from a majority, then writes to a majority.

Design: one actor per term. It reads the digests of a majority (which fences off older terms), fetches the
newest entries, stamps them again, writes them as the term's base, and passes them to the master. Then it
takes puts; those that arrive while a write is under way go together into the next, so that a burst takes few
rounds. Every write is cut into rounds, each one message of bounded size (several for the base), sent to all
replicas until they answer; it waits in the system's purgatory for a majority before the next round begins. So
the registry may be of any size. A replica that misses a round lacks entries when the base arrives, and gets
them then. When a round times out, its outcome is unknown, so the leader resigns instead of guessing.

When there are more tombstones than live entries (and many), the live entries become the next base of the
term, and a majority drops the tombstones.

Invariants:
1. One round at a time; `PutDone(n)` is sent only when everything up to n is durable on a majority.
2. After a round has failed, this actor acknowledges nothing.
3. While nothing is under way, `live` has the stamp of every live entry.

Called by the master (spawned) and by `application_manager` (`Put`).
"""

from __future__ import annotations

import logging
from collections import deque
from enum import Enum
from typing import Final

from drivetrain.actor import ActorRef, Message
from drivetrain.cluster.master.leader_actor import LeaderActor
from drivetrain.cluster.master.master_messages import (
    Leadership,
    Put,
    PutDone,
    RegistryTakenOver,
    ReportHigherTerm,
    Resign,
    Tick,
)
from drivetrain.cluster.master.master_settings import MasterSettings
from drivetrain.cluster.master.registry.plausible_terms import is_plausible
from drivetrain.cluster.master.registry.replica import ReplicaStore
from drivetrain.cluster.master.registry.rounds import Round, RoundExpired
from drivetrain.cluster.messages.replication import (
    Digest,
    Entries,
    EntriesWritten,
    ReadDigest,
    ReadEntries,
    TermRefused,
    WriteBase,
    WriteEntries,
    WriteFailed,
)
from drivetrain.core.cluster.replicated_map import (
    Base,
    DigestCollector,
    MapDigest,
    MapEntry,
    Stamp,
    Stamper,
    first_keys,
    in_chunks,
    in_pieces,
    newest,
)

log = logging.getLogger("drivetrain.cluster")


class Stage(Enum):
    """The current activity of the registry's actor."""

    READING = "reads digests"
    FETCHING = "fetches entries"
    INSTALLING = "writes the base of its term"
    READY = "waits for puts"
    PUTTING = "writes puts"
    TRIMMING = "drops tombstones"


class RegistryActor(LeaderActor):
    """Reads and writes the registry for the leader of `term`; `replica` is this master's own."""

    def __init__(
        self,
        settings: MasterSettings,
        term: int,
        leadership: Leadership,
        store: ReplicaStore,
        replica: ActorRef,
        election: ActorRef,
    ) -> None:
        self._settings: Final = settings
        self.leading_term = self._term = term
        self._leadership: Final = leadership
        self._store: Final = store
        self._replica: Final = replica
        self._election: Final = election
        self._stage = Stage.READING
        self._collector = DigestCollector()
        self._digests: dict[str, MapDigest] = {}
        self._holders: dict[str, ActorRef] = {}
        self._wanted: dict[str, Stamp] = {}
        self._found: dict[str, MapEntry] = {}
        self._fetch_until_ms = 0
        self._stamper = Stamper(term, settings.me)
        self._round: Round | None = None
        self._rounds = 0
        self._next: deque[list[MapEntry] | MapDigest] = deque()  # the contents of the next rounds
        self._written: dict[str, MapEntry] = {}  # the entries of the write under way, by key
        self._live: dict[str, Stamp] = {}
        self._tombstones = 0
        self._queue: dict[str, bytes | None] = {}
        self._last_put = 0
        self._putting = 0
        self._owner: ActorRef | None = None
        self._has_failed = False

    def pre_start(self) -> None:
        """Start taking over."""
        beat_ms = max(1, self._settings.lease_ms // 8)
        self.context.timers.start_periodic("tick", Tick(), interval_ms=beat_ms)
        self._start_round([ReadDigest(self._term)])

    def leave(self) -> None:
        """Cancel the waiting round."""
        if self._round is not None:
            self._round.force_complete()

    def act(self, message: Message) -> None:
        """Handle one message."""
        if not is_plausible(message, self._term):
            return
        match message:
            case Tick():
                self._send()
            case Put():
                self._owner = self.context.sender
                self._queue.update(message.changes)
                self._last_put = message.number
                self._begin_next()
            case Entries():
                self._take(message)
            case RoundExpired():
                if self._is_current(message.round):
                    self._fail("no majority of the masters acknowledged a write in time")
            case Digest() | EntriesWritten() | WriteFailed() | TermRefused():
                if message.term == self._term and message.master in self._settings.masters:
                    self._answered(message)
            case _:
                self.context.unhandled(message)

    def _answered(self, message: Digest | EntriesWritten | WriteFailed | TermRefused) -> None:
        master = message.master
        match message:
            case Digest():
                self._take_digest(message)
            case EntriesWritten():
                if self._is_current(message.round):
                    self._acknowledge(master)
            case WriteFailed():
                if self._is_current(message.round):
                    log.log(
                        logging.DEBUG if message.missing else logging.WARNING,
                        "%s did not acknowledge a write: %s",
                        master,
                        message.why,
                    )
                    self._give_missing(message)
            case TermRefused():
                # Otherwise the next leader would be refused, too.
                self._election.tell(ReportHigherTerm(message.fence))
                self._fail(f"{master} follows a leader of term {message.fence}")

    # ---- taking over

    def _take_digest(self, message: Digest) -> None:
        sender = self.context.sender
        if self._stage is not Stage.READING or sender is None:
            return
        series = (sender.path.address, message.series)
        digest = self._collector.add(message.master, series, message.piece, message.pieces, message.digest)
        if digest is not None:
            self._digests[message.master] = digest
            self._holders[message.master] = sender
            self._acknowledge(message.master)

    def _fetch(self) -> None:
        """Fetch the entries of the majority that this master lacks."""
        self._stage = Stage.FETCHING
        self._wanted = newest(list(self._digests.values()))
        self._found = {
            key: entry
            for key, entry in self._store.map.entries.items()
            if key in self._wanted and entry.stamp >= self._wanted[key]
        }
        self._fetch_until_ms = self._leadership.now_ms() + self._settings.quorum_timeout_ms
        self._ask_for_entries(self._holders)

    def _ask_for_entries(self, holders: dict[str, ActorRef]) -> None:
        wanted = self._wanted
        missing = [key for key in sorted(wanted) if key not in self._found]
        if not missing:
            self._install()
            return
        for master, holder in holders.items():
            stamps = self._digests[master].stamps
            keys = [key for key in missing if stamps.get(key) == wanted[key]]
            if keys:
                holder.tell(ReadEntries(first_keys(keys, self._settings.chunk_bytes)), self.context.me)

    def _take(self, message: Entries) -> None:
        if self._stage is not Stage.FETCHING:
            return
        before = len(self._found)
        for entry in message.entries:
            wanted = self._wanted.get(entry.key)
            if wanted is not None and entry.stamp >= wanted:
                self._found[entry.key] = entry
        if len(self._found) > before:
            self._fetch_until_ms = self._leadership.now_ms() + self._settings.quorum_timeout_ms
            sender = self.context.sender
            self._ask_for_entries({m: holder for m, holder in self._holders.items() if holder == sender})

    def _install(self) -> None:
        self._stage = Stage.INSTALLING
        live = [(key, entry.value) for key, entry in sorted(self._found.items()) if entry.value is not None]
        self._write([self._stamper.entry(key, value) for key, value in live])
        stamps = {key: entry.stamp for key, entry in self._written.items()}
        self._next.append(MapDigest(Base(self._term), stamps))
        self._next_round()

    # ---- writing

    def _begin_next(self) -> None:
        """Start the next write, if none is under way."""
        if self._stage is not Stage.READY or self._has_failed:
            return
        if self._tombstones > max(self._settings.most_tombstones, len(self._live)):
            self._stage = Stage.TRIMMING
            self._next.append(MapDigest(self._stamper.base, dict(self._live)))
            self._next_round()
        elif self._queue:
            self._stage = Stage.PUTTING
            queue, self._queue = self._queue, {}
            self._putting = self._last_put
            self._write([self._stamper.entry(key, value) for key, value in queue.items()])
            self._next_round()

    def _write(self, entries: list[MapEntry]) -> None:
        self._written = {entry.key: entry for entry in entries}
        self._next += map(list, in_chunks(entries, self._settings.chunk_bytes))

    def _next_round(self) -> None:
        """Start the next round; after the last one, the write is done."""
        if not self._next:
            self._done()
            return
        number, limit = self._rounds + 1, self._settings.chunk_bytes
        match self._next.popleft():
            case MapDigest() as base:
                pieces = in_pieces(base, limit)
                messages: list[Message] = [
                    WriteBase(self._term, number, at, len(pieces), piece) for at, piece in enumerate(pieces)
                ]
            case entries:
                messages = [WriteEntries(self._term, number, tuple(entries))]
        self._start_round(messages)

    def _done(self) -> None:
        stage, self._stage = self._stage, Stage.READY
        written, self._written = self._written, {}
        for key, entry in written.items():
            self._live.pop(key, None)
            if entry.value is None:
                self._tombstones += 1
            else:
                self._live[key] = entry.stamp
        if stage is Stage.INSTALLING:
            values = {key: entry.value for key, entry in written.items() if entry.value is not None}
            self._wanted, self._found, self._digests = {}, {}, {}
            self.context.parent.tell(RegistryTakenOver(self._term, values))
        elif stage is Stage.TRIMMING:
            self._tombstones = 0
        elif self._owner is not None:
            self._owner.tell(PutDone(self._putting))
        self._begin_next()

    def _give_missing(self, message: WriteFailed) -> None:
        """Send a replica the entries of the base that it lacks, having missed rounds of this term."""
        holder = self._replicas().get(message.master)
        here = self._store.map.entries
        found = (self._written.get(key) or here.get(key) for key in message.missing)
        entries = [entry for entry in found if entry is not None]
        if holder is not None and entries:
            for chunk in in_chunks(entries, self._settings.chunk_bytes):
                holder.tell(WriteEntries(self._term, 0, chunk), self.context.me)
            if self._round is not None:
                self._round.tell(holder, self.context.me)

    # ---- rounds

    def _replicas(self) -> dict[str, ActorRef]:
        return {self._settings.me: self._replica, **self._leadership.peers}

    def _start_round(self, messages: list[Message]) -> None:
        self._rounds += 1
        settings = self._settings
        self._round = Round(
            self._rounds, messages, settings.quorum, settings.quorum_timeout_ms, self.context.me
        )
        self.context.system.purgatory.try_complete_else_watch(self._round, (self._key(self._rounds),))
        self._send()

    def _send(self) -> None:
        """Send the round to replicas that have not acknowledged it; request missing entries."""
        if self._has_failed or not self._leadership.leads(self._term):
            return
        now_ms = self._leadership.now_ms()
        if self._stage is Stage.FETCHING:
            if now_ms >= self._fetch_until_ms:
                self._fail("what a majority holds could not be read in time")
            else:
                self._ask_for_entries(self._holders)
        elif self._round is not None:
            for master, replica in self._replicas().items():
                if self._round.is_due(master, now_ms):
                    self._round.tell(replica, self.context.me)

    def _acknowledge(self, master: str) -> None:
        current = self._round
        if current is None or self._has_failed:
            return
        current.acknowledged.add(master)
        self.context.system.purgatory.check_and_complete(self._key(current.number))
        if not current.completed or len(current.acknowledged) < current.quorum:
            return
        if not self._leadership.leads(self._term):
            self._fail("its lease ran out")
            return
        self._round = None
        if self._stage is Stage.READING:
            self._fetch()
        else:
            self._next_round()

    def _is_current(self, number: int) -> bool:
        return self._round is not None and self._round.number == number

    def _fail(self, why: str) -> None:
        if not self._has_failed:
            self._has_failed = True
            self._election.tell(Resign(self._term, why))

    def _key(self, number: int) -> tuple[str, int, int]:
        return ("master.round", self.context.me.path.uid, number)

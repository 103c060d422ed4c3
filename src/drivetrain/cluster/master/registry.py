"""The leader's hand on the registry: takes over from a majority, then writes to a majority.

Design: an actor per term. It reads the digests of a majority (which fences older terms off), fetches what is
newest, stamps it anew, writes it as the term's base, and hands it to the master. From then on it takes
puts; those that come while a round is under way go together in the next one, so a burst costs few rounds.
A round is sent to all replicas, again until they answer, and waits for a majority in the system's purgatory.
If time is up the outcome is unknown, so the leader resigns rather than go on with a guess.

Invariants:
1. One round at a time; `PutDone(n)` comes only when everything up to n is durable on a majority.
2. After a round failed, this actor acknowledges nothing any more.

Called by the master (spawned) and by `applications` (`Put`).
"""

from __future__ import annotations

import logging
from typing import Final

from drivetrain.actor import ActorRef, Message
from drivetrain.cluster.master.local import Put, PutDone, Resign, RoundExpired, Standing, TakenOver, Tick
from drivetrain.cluster.master.office import Officer
from drivetrain.cluster.master.replica import ReplicaStore
from drivetrain.cluster.master.settings import MasterSettings
from drivetrain.cluster.messages.replication import (
    CHUNK_BYTES,
    Digest,
    Entries,
    EntriesWritten,
    ReadDigest,
    ReadEntries,
    TermRefused,
    WriteEntries,
    WriteFailed,
)
from drivetrain.core.purgatory import DelayedOperation
from drivetrain.core.replicated_map import MapDigest, MapEntry, Stamp, Stamper, in_chunks, newest

log = logging.getLogger("drivetrain.cluster")


class Round(DelayedOperation):
    """Waits until a majority has acknowledged one round."""

    __slots__ = ("acknowledged", "messages", "number", "quorum", "registry")

    def __init__(
        self, number: int, messages: list[Message], quorum: int, timeout_ms: int, registry: ActorRef
    ) -> None:
        super().__init__(timeout_ms)
        self.number = number
        self.messages = messages
        self.quorum = quorum
        self.registry = registry
        self.acknowledged: set[str] = set()

    def try_complete(self) -> bool:
        """Complete when a majority has it."""
        return len(self.acknowledged) >= self.quorum and self.force_complete()

    def on_complete(self) -> None:
        """The actor looks itself, in its own turn."""

    def on_expiration(self) -> None:
        """Tell the actor that time is up."""
        self.registry.tell(RoundExpired(self.number))


class RegistryActor(Officer):
    """Reads and writes the registry for the leader of `term`; `replica` is this master's own."""

    def __init__(
        self,
        settings: MasterSettings,
        term: int,
        standing: Standing,
        store: ReplicaStore,
        replica: ActorRef,
        election: ActorRef,
    ) -> None:
        self._settings: Final = settings
        self.office_term = self._term = term
        self._standing: Final = standing
        self._store: Final = store
        self._replica: Final = replica
        self._election: Final = election
        self._digests: dict[str, MapDigest] = {}
        self._holders: dict[str, ActorRef] = {}
        self._wanted: dict[str, Stamp] | None = None
        self._found: dict[str, MapEntry] = {}
        self._stamper = Stamper(term, settings.me)
        self._round: Round | None = None
        self._rounds = 0
        self._values: dict[str, bytes] | None = None
        self._is_ready = False
        self._queue: dict[str, bytes | None] = {}
        self._last_put = 0
        self._putting = 0
        self._owner: ActorRef | None = None
        self._has_failed = False
        self._fetch_until_ms = 0

    def pre_start(self) -> None:
        """Begin to take over."""
        beat_ms = max(1, self._settings.lease_ms // 8)
        self.context.timers.start_periodic("tick", Tick(), interval_ms=beat_ms)
        self._start_round([ReadDigest(self._term)])

    def post_stop(self) -> None:
        """Let nothing of this wait any more."""
        if self._round is not None:
            self._round.force_complete()

    def act(self, message: Message) -> None:  # noqa: C901 - a table of messages
        """Handle one message."""
        match message:
            case Tick():
                self._send()
            case Put():
                self._owner = self.context.sender
                self._queue.update(message.changes)
                self._last_put = message.number
                self._write_queue()
            case Digest():
                if message.term == self._term and self._wanted is None and self.context.sender is not None:
                    self._digests[message.master] = message.digest
                    self._holders[message.master] = self.context.sender
                    self._acknowledge(message.master)
            case Entries():
                self._take(message)
            case EntriesWritten():
                if message.term == self._term and self._is_current(message.round):
                    self._acknowledge(message.master)
            case WriteFailed():
                if message.term == self._term and self._is_current(message.round):
                    log.warning("%s did not acknowledge a write: %s", message.master, message.why)
            case TermRefused():
                if message.term == self._term:
                    self._fail(f"{message.master} follows a leader of term {message.fence}")
            case RoundExpired():
                if self._is_current(message.round):
                    self._fail("no majority of the masters acknowledged a write in time")
            case _:
                self.context.unhandled(message)

    # ---- taking over

    def _fetch(self) -> None:
        """What a majority holds is known: get what of it this master does not have."""
        self._wanted = newest(list(self._digests.values()))
        self._fetch_until_ms = self._standing.now_ms() + self._settings.quorum_timeout_ms
        self._found = {
            key: entry
            for key, entry in self._store.map.entries.items()
            if key in self._wanted and entry.stamp >= self._wanted[key]
        }
        self._ask_for_entries()

    def _ask_for_entries(self) -> None:
        wanted = self._wanted or {}
        missing = [key for key in sorted(wanted) if key not in self._found]
        if not missing:
            self._install()
            return
        for master, digest in self._digests.items():
            keys = [key for key in missing if digest.stamps.get(key) == wanted[key]]
            if keys:
                self._holders[master].tell(ReadEntries(tuple(keys)), self.context.me)

    def _take(self, message: Entries) -> None:
        if self._wanted is None or self._values is not None:
            return
        before = len(self._found)
        for entry in message.entries:
            wanted = self._wanted.get(entry.key)
            if wanted is not None and entry.stamp >= wanted:
                self._found[entry.key] = entry
        if len(self._found) > before:
            self._ask_for_entries()

    def _install(self) -> None:
        self._values = {key: e.value for key, e in sorted(self._found.items()) if e.value is not None}
        entries = [self._stamper.entry(key, value) for key, value in self._values.items()]
        base = MapDigest(self._term, {entry.key: entry.stamp for entry in entries})
        self._write(entries, base)

    # ---- rounds

    def _write(self, entries: list[MapEntry], base: MapDigest | None = None) -> None:
        number = self._rounds + 1
        chunks = in_chunks(entries, CHUNK_BYTES) or [()]
        last = len(chunks) - 1
        self._start_round(
            [
                WriteEntries(self._term, number, chunk, at == last, base if at == last else None)
                for at, chunk in enumerate(chunks)
            ]
        )

    def _write_queue(self) -> None:
        if self._is_ready and self._round is None and self._queue and not self._has_failed:
            queue, self._queue = self._queue, {}
            self._putting = self._last_put
            self._write([self._stamper.entry(key, value) for key, value in queue.items()])

    def _start_round(self, messages: list[Message]) -> None:
        self._rounds += 1
        settings = self._settings
        self._round = Round(
            self._rounds, messages, settings.quorum, settings.quorum_timeout_ms, self.context.me
        )
        self.context.system.purgatory.try_complete_else_watch(self._round, (self._key(self._rounds),))
        self._send()

    def _send(self) -> None:
        """Send the round to whoever has not acknowledged it; ask for what is missing."""
        if self._has_failed or not self._standing.leads(self._term):
            return
        if self._wanted is not None and self._values is None:
            if self._standing.now_ms() >= self._fetch_until_ms:
                self._fail("what a majority holds could not be read in time")
            else:
                self._ask_for_entries()
        elif self._round is not None:
            replicas = {self._settings.me: self._replica, **self._standing.peers}
            for master, replica in replicas.items():
                if master not in self._round.acknowledged:
                    for message in self._round.messages:
                        replica.tell(message, self.context.me)

    def _acknowledge(self, master: str) -> None:
        current = self._round
        if current is None or self._has_failed:
            return
        current.acknowledged.add(master)
        self.context.system.purgatory.check_and_complete(self._key(current.number))
        if not current.completed or len(current.acknowledged) < current.quorum:
            return
        if not self._standing.leads(self._term):
            self._fail("its lease ran out")
            return
        if self._wanted is None:
            self._round = None
            self._fetch()
        elif not self._is_ready:
            self._round = None
            self._is_ready = True
            self.context.parent.tell(TakenOver(self._term, self._values or {}))
            self._write_queue()
        else:
            self._round = None
            if self._owner is not None:
                self._owner.tell(PutDone(self._putting))
            self._write_queue()

    def _is_current(self, number: int) -> bool:
        return self._round is not None and self._round.number == number

    def _fail(self, why: str) -> None:
        if not self._has_failed:
            self._has_failed = True
            self._election.tell(Resign(self._term, why))

    def _key(self, number: int) -> tuple[str, int, int]:
        return ("master.round", self.context.me.path.uid, number)

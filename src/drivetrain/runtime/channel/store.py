"""A channel on disk: the log of entries, its segments, and the positions of its subscribers.

Layout below the channel's uri:

    log/00000000000000000007.json     entry 7, created atomically, never changed
    segments/<name>.arrow             immutable messages; files that no entry names do not count
    positions/<subscriber>            the number of the entry that the subscriber reads next
    needs/<subscriber>                the first entry that it may read again, if it feeds others

Problem: producer and subscribers are different processes that may die between any two system calls, and
subscribers poll for new entries many times a second.

Design: `drivetrain.core.channel.channel_log` decides; this class makes the decisions durable. Segments are on
disk before the entry that names them, so every visible entry can be read. A store lists the log only
once: after that, a check for new entries is one probe for the next number.

Invariants:

1. Whatever the moment of a crash, the entries form a dense run that ends in a whole entry.
2. A segment is deleted after the entry that names it, never before.
3. Only the producer writes and deletes log and segments, and only its subscriber writes a position; but the
   subscriber puts back damaged entries, with segments in a folder of its own (`remade/`). The two may be
   different processes, and one may start again while the other runs. The locks of fragments ensure that there
   is one producer at a time, and one process per subscriber.

Called by: the engine (append, trim), the channel data source (read), source-end ingestion (both).
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from drivetrain.core.channel.channel_log import (
    ChannelLog,
    Entry,
    FragmentId,
    Segment,
    StaleIncarnationError,
    SubscriberId,
    TrimmedError,
)
from drivetrain.core.checkpoint.transaction import Command
from drivetrain.core.clock.time_bounds import NO_CLOCK_MS
from drivetrain.crash_points import CrashPoint, maybe_crash
from drivetrain.runtime.channel.files import ChannelFiles
from drivetrain.runtime.channel.positions import SubscriberPositions
from drivetrain.runtime.channel.segments import SEGMENTS, MessageLossError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LOG = "log"
_SUFFIX = ".json"
_KEPT_ENTRIES = 4096  # in memory, for each of several uses; a channel may live for years

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Entry).decode


class ChannelStore(SubscriberPositions):
    """One channel at `uri` (any file system Arrow can reach; a path without a scheme is local).

    Readers need only the uri. A producer also passes its `fragment`; its `incarnation` is one
    above the log's last unless given. Safe to use from several threads of one process.
    """

    def __init__(
        self,
        uri: str,
        *,
        fragment: str = "",
        incarnation: int | None = None,
        durable: bool = True,
        filesystem: Any = None,
    ) -> None:
        super().__init__(ChannelFiles(uri, durable=durable, filesystem=filesystem))
        self.uri = uri
        self.fragment = FragmentId(fragment)
        self._incarnation = incarnation
        self._lock = threading.RLock()
        self._cache: dict[int, Entry] = {}
        self._start = 0
        self._end: int | None = None  # None until the log has been listed once
        self._produced: ChannelLog | None = None

    # -- reading -------------------------------------------------------------------------------

    def length(self) -> int:
        """The number the next entry will get: the entries below it exist. Cheap to poll."""
        with self._lock:
            if self._end is None:
                self._start, self._end = self._list()
            while self.files.exists(_entry_path(self._end)):
                self._end += 1
            if self.files.exists(_entry_path(self._end + 1)) and not self.files.exists(
                _entry_path(self._end)
            ):
                raise self._hole(self._end)  # probed in this order, because entries are created in theirs
            return self._end

    def start(self) -> int:
        """The number of the oldest retained entry, as of the last listing or trim of this object."""
        with self._lock:
            self.length()
            return self._start

    def oldest(self) -> int:
        """The number of the oldest retained entry now, whichever process trimmed. Cheap to poll."""
        with self._lock:
            end = self.length()
            while self._start < end - 1 and not self.files.exists(_entry_path(self._start)):
                self._start += 1  # entries are trimmed from the oldest on, and the newest stays
            return self._start

    def numbers(self) -> list[int]:
        """The numbers of all entries on disk now, ascending, damaged ones and gaps included."""
        names = (n for n in self.files.names(LOG) if n.endswith(_SUFFIX) and not n.startswith("."))
        return sorted(int(name.removesuffix(_SUFFIX)) for name in names)

    def read_entry(self, number: int) -> Entry:
        """Entry `number` as it is on disk now; raises TrimmedError or MessageLossError."""
        return self._load(number)

    def put_back(self, entry: Entry) -> None:
        """Put an entry in the place of a damaged or missing one, durably and in one step.

        Only the channel's subscriber may call it, and the producer for its own entries.
        """
        with self._lock:
            try:
                self.files.replace(_entry_path(entry.number), _encode(entry), kept=True)
            except FileNotFoundError:  # a producer that starts at this moment deletes half-written files
                self.files.replace(_entry_path(entry.number), _encode(entry), kept=True)
            self._cache.pop(entry.number, None)
            self._produced = None

    def last(self) -> Entry | None:
        """The newest entry, or None if the channel is empty."""
        length = self.length()
        return self.entry(length - 1) if length else None

    def entry(self, number: int) -> Entry:
        """Entry `number`; raises TrimmedError if it is gone, MessageLossError if it is damaged."""
        with self._lock:
            known = self._cache.get(number)
            return self._keep(self._load(number)) if known is None else known

    def stored_ms(self, number: int) -> int:
        """When entry `number` was appended, in ms since the epoch. Raises FileNotFoundError if it is gone."""
        return self.files.modified_ms(_entry_path(number))

    def entries(self, start: int, end: int | None = None) -> list[Entry]:
        """The entries with numbers in [start, end), up to the end of the log."""
        length = self.length()
        return [self.entry(number) for number in range(start, length if end is None else min(end, length))]

    def since(self, ts_ms: int) -> list[Entry]:
        """The retained entries that can hold a message with a timestamp at or after `ts_ms`."""
        return ChannelLog(self.entries(self.start())).since(ts_ms)

    def forget(self, before: int) -> None:
        """Drop entries below `before` from memory (not from disk): they will not be read again."""
        with self._lock:
            for number in [number for number in self._cache if number < before]:
                del self._cache[number]

    # -- appending -----------------------------------------------------------------------------

    @property
    def incarnation(self) -> int:
        """The producer's incarnation: above that of every entry of other producers."""
        with self._lock:
            return self._own_incarnation(self._log())

    def last_batch(self) -> int:
        """The newest batch id that this producer's fragment has appended, -1 if none."""
        with self._lock:
            return self._log().last_batch(self.fragment)

    def append(self, batch_id: int, segments: Sequence[Segment], clock_ms: int) -> Entry | None:
        """Append a batch durably; None, and nothing added, if the log already has the batch.

        `clock_ms` is the producer's clock after the batch. The segments of a replay become orphans.
        Raises StaleIncarnationError, ClockMovedBackError.
        """
        return self._append(batch_id, segments, clock_ms)

    def append_clock(self, clock_ms: int) -> Entry | None:
        """Append an entry without messages; None if the clock is not new."""
        return self._append(None, (), clock_ms)

    def append_barrier(self, barrier: Command) -> Entry | None:
        """Append the barrier of a checkpoint; None if the log already has it."""
        with self._lock:
            last = self.last()
            if last is not None and last.barrier is not None and last.barrier.round >= barrier.round:
                return None
            return self._append(None, (), NO_CLOCK_MS if last is None else last.clock_ms, barrier)

    def cut(self, end: int) -> int:
        """Delete the entries from `end` on, newest first, with their segments; returns how many.

        Only while no process writes or reads the channel. After a crash in between, call it again.
        """
        with self._lock:
            gone = [number for number in sorted(self.numbers(), reverse=True) if number >= end]
            for number in gone:
                with suppress(MessageLossError, TrimmedError):
                    for segment in self._load(number).segments:
                        self.files.delete(segment.path)
                self.files.delete(_entry_path(number))
            self._cache.clear()
            self._start, self._end, self._produced = 0, None, None
            return len(gone)

    def _append(
        self,
        batch_id: int | None,
        segments: Sequence[Segment],
        clock_ms: int,
        barrier: Command | None = None,
    ) -> Entry | None:
        with self._lock:
            log = self._log()
            while True:
                entry = log.next_entry(
                    fragment=self.fragment,
                    incarnation=self._own_incarnation(log),
                    batch_id=batch_id,
                    segments=segments,
                    clock_ms=clock_ms,
                    barrier=barrier,
                )
                if entry is None:
                    return None
                maybe_crash(CrashPoint.BEFORE_ENTRY)
                if self.files.create(_entry_path(entry.number), _encode(entry)):
                    self._require_follows(entry)
                    maybe_crash(CrashPoint.AFTER_ENTRY)
                    log.add(entry)
                    self._bound(log)
                    self._end = entry.number + 1
                    return self._keep(entry)
                # Another producer took the number: read its entry, then decide again.
                for newer in self.entries(log.end):
                    log.add(newer)

    def _require_follows(self, entry: Entry) -> None:
        """Raise StaleIncarnationError, and take the entry back, if another producer has appended later ones.

        It has, and has deleted those that all subscribers have read, if the entry before it is gone, which
        was the newest and stays then. This process was suspended for long.
        """
        before = _entry_path(entry.number - 1)
        if entry.number > 0 and not self.files.exists(before) and self.numbers()[-1] > entry.number:
            self.files.delete(_entry_path(entry.number))
            self._produced = self._end = None
            raise StaleIncarnationError(
                "another producer has continued the channel, and deleted what all subscribers have read",
                where=self.uri,
                got=f"entry {entry.number} of incarnation {entry.incarnation}, which nobody would read",
                remedy="nothing to do: that one continues, and this process ends",
            )

    def _bound(self, log: ChannelLog) -> None:
        # A long-lived process need not hold entries that a log read back to its newest entry would not hold.
        if len(log.entries) > _KEPT_ENTRIES:
            log.drop(log.entries[: len(log.entries) // 2])

    def _keep(self, entry: Entry) -> Entry:
        self._cache[entry.number] = entry
        while len(self._cache) > _KEPT_ENTRIES:
            del self._cache[next(iter(self._cache))]
        return entry

    def _own_incarnation(self, log: ChannelLog) -> int:
        if self._incarnation is None:
            self._incarnation = 0 if log.last is None else log.last.incarnation + 1
        return self._incarnation

    def _log(self) -> ChannelLog:
        # An entry carries its producer's last batch id, so reading back to this producer's newest is enough.
        if self._produced is None:
            tail: list[Entry] = []
            for number in range(self.length() - 1, self.start() - 1, -1):
                tail.append(self.entry(number))
                if tail[-1].fragment == self.fragment:
                    break
            self._produced = ChannelLog(reversed(tail))
        return self._produced

    # -- trimming ------------------------------------------------------------------------------

    def trim(self, subscribers: Mapping[SubscriberId, int], checkpoint: int | None = None) -> int:
        """Delete the entries that all subscribers have passed, with their segments; returns how many.

        The arguments are those of `ChannelLog.trimmable`. Entries go first, oldest first, so that a crash in
        between leaves a dense log and orphan segments, which `clean_orphans` takes.
        """
        with self._lock:
            # Entries that no subscriber has passed are not read: a log may be long.
            end = min([*subscribers.values(), self.length()]) + 1
            log = ChannelLog(self.entries(self.start(), end))
            gone = log.trimmable(subscribers, checkpoint)
            # Read again, not from memory: a subscriber may have replaced one.
            for entry in [self._as_it_is(known) for known in gone]:
                self.files.delete(_entry_path(entry.number))
                self._start = entry.number + 1
                for segment in entry.segments:
                    self.files.delete(segment.path)
            self.forget(self._start)
            self._produced = None
            return len(gone)

    def clean_orphans(self) -> int:
        """Delete the producer's segments and temporary files that no entry names; returns how many.

        Only the producer may call it, and only while no batch is being written. Subscribers may be reading.
        """
        with self._lock:
            named = self._named()
            orphans = [f"{SEGMENTS}/{name}" for name in self.files.names(SEGMENTS)]
            orphans = [path for path in orphans if path not in named]
            orphans += [f"{LOG}/{name}" for name in self.files.names(LOG) if name.endswith(".tmp")]
            for path in orphans:
                self.files.delete(path)
            return len(orphans)

    def _named(self) -> set[str]:
        """The segments of all readable entries, including those before a gap that will be repaired."""
        named: set[str] = set()
        for number in self.numbers():
            with suppress(MessageLossError, TrimmedError):
                named.update(segment.path for segment in self._load(number).segments)
        return named

    def _as_it_is(self, entry: Entry) -> Entry:
        try:
            return self._load(entry.number)
        except (MessageLossError, TrimmedError):
            return entry  # all subscribers have passed it

    # -- files ---------------------------------------------------------------------------------

    def _list(self) -> tuple[int, int]:
        numbers = set(self.numbers())
        if not numbers:
            return 0, 0
        # A listing during a trim may miss entries below others that it contains: the dense run that
        # ends in the newest entry is the log.
        start = max(numbers)
        while start - 1 in numbers:
            start -= 1
        return start, max(numbers) + 1

    def _load(self, number: int) -> Entry:
        path = _entry_path(number)
        try:
            content = self.files.read(path)
        except FileNotFoundError as error:
            raise TrimmedError(
                f"entry {number} of the channel is not there",
                where=self.uri,
                expected="an entry that was not trimmed",
                remedy="start this subscriber over with --fresh: it begins at the oldest entry left",
            ) from error
        where = f"{self.uri}/{path}"
        try:
            entry = _decode(content)
        except msgspec.DecodeError as error:
            raise _damaged(number, where, str(error)) from error
        if entry.number != number:
            raise _damaged(number, where, f"entry {entry.number}")
        return entry

    def _hole(self, number: int) -> MessageLossError:
        return _damaged(number, f"{self.uri}/{_entry_path(number)}", "no such file, but a later one exists")


def _damaged(number: int, where: str, got: str) -> MessageLossError:
    return MessageLossError(
        f"entry {number} of the channel cannot be read as it was written",
        where=where,
        expected=f"entry {number}",
        got=got,
        remedy="it is repaired when the fragment starts again, unless its input is gone, too",
    )


def _entry_path(number: int) -> str:
    return f"{LOG}/{number:020d}{_SUFFIX}"

"""The dead letters of a fragment, within bounds: in few files, dropped when they are too old or too many.

The problem: one bad message a second makes 86,400 entries and segments a day in the channel of dead letters,
which nothing reads to its end; eventually their tracebacks fill the disk.

The design: batches append to a channel. From time to time its oldest entries are rolled: written to one
compressed file, after which the channel drops them. `core.channel.merging` decides which rolled files to
merge. When the total is larger or older than allowed, the oldest files are deleted, and the number of their
messages is recorded. The channel's newest entry always stays: it has the number of the last batch.

    log/, segments/      the channel: the newest messages
    rolled/<first>-<end>-<level>-<messages>-<stored ms>.arrow    the entries [first, end), compressed
    dropped.json         how many messages were dropped, up to which entry

What if we die here: a file is written under a hidden name, synced and renamed before the channel drops its
entries; and a drop is recorded before it is deleted. The next `tidy` deletes what was rolled or recorded
already, and does not count it again.

Invariants:

1. Every message is in the channel or in one effective rolled file, or it is counted as dropped.
2. Readers in other processes see each message once, in order, even while entries are rolled.
3. Only the fragment's own process appends, rolls and drops; there one thread at a time tidies.

Called by the fragment's query (`tidy`) and by `dead_letter_pages`.
"""

from __future__ import annotations

import itertools
import logging
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
from pyarrow import ipc

from drivetrain.core.channel.channel_log import Entry, SubscriberId, TrimmedError
from drivetrain.core.channel.merging import Piece, counting, merged_level, next_merge
from drivetrain.errors import InputError
from drivetrain.runtime.channel.columns import TS
from drivetrain.runtime.channel.segments import MessageLossError, verified
from drivetrain.runtime.channel.store import ChannelStore
from drivetrain.runtime.durable_file import DurableFile
from drivetrain.runtime.whole_files import full_disk_named, publish_file

log = logging.getLogger(__name__)

SCHEMA = pa.schema(
    [
        ("operator", pa.string()),
        ("message", pa.string()),
        ("file", pa.string()),
        ("line", pa.int64()),
        ("error", pa.string()),
        ("timestamp", pa.timestamp("us", "UTC")),
    ]
)
ENTRY = "entry"
STORED = "stored_ms"
_STORED_SCHEMA = pa.schema([*SCHEMA, (ENTRY, pa.int64()), (STORED, pa.int64())])
FAN = 64
MOST_BYTES = 8 * 2**20
"""The largest size of one rolled file."""
_BATCH_BYTES = 512 * 1024
_NAME = re.compile(r"(\d+)-(\d+)-(\d+)-(\d+)-(\d+)\.arrow")
_TRIES = 5
_LOOK_S = 60.0
"""How often to check whether something has become too old."""
_ROLLED = SubscriberId("rolled")


@dataclass(frozen=True)
class RetentionLimits:
    """How much is kept: the most bytes on disk, and the longest age."""

    size_bytes: int
    age_ms: int


class DroppedMessages(msgspec.Struct, frozen=True):
    """How many messages were dropped, of the entries below `end`."""

    messages: int = 0
    end: int = 0


@dataclass(frozen=True)
class _RolledFile:
    path: Path
    piece: Piece
    messages: int
    stored_ms: int

    @property
    def first(self) -> int:
        return self.piece.first

    @property
    def end(self) -> int:
        return self.piece.end

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Its messages, a part at a time; the file may be deleted meanwhile."""
        with pa.memory_map(str(self.path)) as file:
            try:
                reader = ipc.open_file(file)
                for index in range(reader.num_record_batches):
                    yield reader.get_batch(index)
            except pa.ArrowException as error:
                raise InputError(
                    "a file of dead letters is damaged",
                    where=str(self.path),
                    got=str(error),
                    remedy="delete it: the others can be read then",
                ) from error


@dataclass(frozen=True)
class _ChannelEntry:
    channel: ChannelStore
    entry: Entry
    stored_ms: int

    @property
    def first(self) -> int:
        return self.entry.number

    @property
    def end(self) -> int:
        return self.entry.number + 1

    @property
    def messages(self) -> int:
        return sum(segment.rows for segment in self.entry.segments)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Its messages; all of its segments are opened before the first is yielded."""
        for content in [verified(self.channel.files, segment) for segment in self.entry.segments]:
            reader = ipc.open_file(content)
            for index in range(reader.num_record_batches):
                yield self._converted(reader.get_batch(index))

    def _converted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        stored = [batch.column(TS if name == "timestamp" else name) for name in SCHEMA.names]
        columns = [column.cast(kind) for column, kind in zip(stored, SCHEMA.types, strict=True)]
        numbers = (self.entry.number, self.stored_ms)
        more = [pa.repeat(pa.scalar(number, pa.int64()), batch.num_rows) for number in numbers]
        return pa.RecordBatch.from_arrays([*columns, *more], schema=_STORED_SCHEMA)


class DeadLetterStore:
    """The dead letters of one fragment, in `channel`; `keep` is for the process that runs the fragment."""

    def __init__(self, channel: ChannelStore, keep: RetentionLimits | None = None) -> None:
        self.channel = channel
        self.keep = keep
        self._tidied: tuple[int, float] = (0, 0)
        self._folder = Path(channel.uri) / "rolled"
        self._record = DurableFile(
            Path(channel.uri) / "dropped.json",
            "the number of dropped dead letters",
            if_damaged="delete it: what was dropped before is not counted then",
            if_full="free some space and run the same command again: it continues",
        )

    # -- reading -------------------------------------------------------------------------------------

    @property
    def dropped(self) -> DroppedMessages:
        """The messages dropped because they were too old or too many."""
        content = self._record.read()
        return DroppedMessages() if content is None else msgspec.json.decode(content, type=DroppedMessages)

    @property
    def messages(self) -> int:
        """How many messages are kept now."""
        return sum(part.messages for part in self._parts())

    @property
    def numbers(self) -> range:
        """The numbers of the kept messages: each keeps its own when older ones are dropped."""
        for _ in range(_TRIES):
            dropped, messages = self.dropped, self.messages
            if self.dropped == dropped:
                break
        return range(dropped.messages, dropped.messages + messages)

    def batches(self, skip: int = 0) -> Iterator[pa.RecordBatch]:
        """All messages, oldest first, without the first `skip`; one batch at a time is in memory.

        They have the columns of `SCHEMA`, `entry` and `stored_ms`. Raises MessageLossError or InputError for
        damaged files.
        """
        position, tries = 0, 0
        while tries <= _TRIES:
            try:
                for part in self._parts():
                    if part.end <= position:
                        continue
                    if part.first >= position and skip >= part.messages:
                        skip -= part.messages
                    else:
                        for batch in part.batches():
                            rows = batch.filter(pc.greater_equal(batch.column(ENTRY), position))
                            yield rows.slice(min(skip, rows.num_rows))
                            skip = max(0, skip - rows.num_rows)
                    position, tries = part.end, 0
                break
            except (FileNotFoundError, MessageLossError, TrimmedError):
                tries += 1  # it was rolled, merged or dropped meanwhile
                if tries > _TRIES:
                    raise

    def _parts(self, *, damaged: bool = True) -> list[_RolledFile | _ChannelEntry]:
        """The current parts, in order; damaged entries only with `damaged`."""
        channel = ChannelStore(self.channel.uri)  # as it is now: another process may have deleted from it
        end = channel.length()  # first the channel: entries that are rolled meanwhile are found as a file
        dropped = self.dropped.end
        entries = []
        for number in range(channel.oldest(), end):
            try:
                entry, stored_ms = channel.entry(number), channel.stored_ms(number)
                entries.append(_ChannelEntry(channel, entry, stored_ms))
            except (FileNotFoundError, TrimmedError):
                continue
            except MessageLossError as error:
                if damaged:
                    raise
                log.warning("dead letters that cannot be read are left out: %s", error)
        rolled = [file for file in self._rolled() if file.end > dropped]
        behind = max(dropped, rolled[-1].end if rolled else 0)
        return [*rolled, *(entry for entry in entries if entry.first >= behind)]

    def _rolled(self) -> list[_RolledFile]:
        """The effective rolled files, in order."""
        files: dict[Piece, _RolledFile] = {}
        for path in self._files():
            if (found := _NAME.fullmatch(path.name)) is not None:
                first, end, level, messages, stored_ms = map(int, found.groups())
                try:
                    piece = Piece(first, end, level, path.stat().st_size)
                except FileNotFoundError:
                    continue
                files[piece] = _RolledFile(path, piece, messages, stored_ms)
        return [files[piece] for piece in counting(files)]

    def _files(self) -> list[Path]:
        try:
            return list(self._folder.iterdir())
        except FileNotFoundError:
            return []

    # -- writing -------------------------------------------------------------------------------------

    def tidy(self) -> None:
        """Roll and merge what is due, and drop what is over the limits. Cheap when nothing is new."""
        known = (self.channel.length(), time.monotonic() // _LOOK_S)
        if known[0] == 0 or known == self._tidied:
            return
        self._tidied = known
        self._delete_dead()
        self._drop()
        while self._roll() or self._merge():
            self._delete_dead()
        self._drop()

    def _roll(self) -> bool:
        """Replace the oldest entries by one file, if they are many, large, or complete for their period."""
        parts = self._parts(damaged=False)
        newest = self.channel.length() - 1
        entries = [part for part in parts if isinstance(part, _ChannelEntry) and part.first < newest]
        when = self._time_of(entries[0]) if entries else 0
        entries = list(itertools.takewhile(lambda part: self._time_of(part) == when, entries))
        is_over = bool(entries) and self._time_of(parts[-1]) != when
        size = sum(part.entry.bytes for part in entries)
        if not entries or (len(entries) < FAN and size < MOST_BYTES and not is_over):
            return False
        taken: list[_ChannelEntry] = []
        for part in entries[:FAN]:
            if taken and sum(one.entry.bytes for one in taken) + part.entry.bytes > MOST_BYTES:
                break
            taken.append(part)
        self._write(taken, level=1)
        return True

    def _merge(self) -> bool:
        """Replace several files of the same period by one, if they are many."""
        for _, of_a_time in itertools.groupby(self._rolled(), self._time_of):
            files = {file.piece: file for file in of_a_time}
            if run := next_merge(list(files), fan=FAN, most=MOST_BYTES):
                self._write([files[piece] for piece in run], merged_level(run))
                return True
        return False

    def _time_of(self, part: _RolledFile | _ChannelEntry) -> int:
        """The number of a part's period, an eighth of the maximum age: files are dropped by period."""
        return 0 if self.keep is None else part.stored_ms // max(1, self.keep.age_ms // 8)

    def _write(self, parts: Sequence[_RolledFile] | Sequence[_ChannelEntry], level: int) -> None:
        messages, aside = 0, self._folder / ".rolling.tmp"
        stored_ms = max(part.stored_ms for part in parts)
        with full_disk_named(str(aside)):
            self._folder.mkdir(exist_ok=True)
            options = ipc.IpcWriteOptions(compression="zstd")
            with (
                pa.OSFile(str(aside), "wb") as file,
                ipc.new_file(file, _STORED_SCHEMA, options=options) as out,
            ):
                for batch in _larger(batch for part in parts for batch in _readable(part)):
                    out.write_batch(batch)
                    messages += batch.num_rows
            name = f"{parts[0].first:012d}-{parts[-1].end:012d}-{level}-{messages}-{stored_ms}.arrow"
            publish_file(pafs.LocalFileSystem(), str(aside), str(self._folder / name))

    def _drop(self) -> None:
        """Drop the oldest parts while there are too many bytes, or they are too old."""
        if self.keep is None:
            return
        now_ms = time.time_ns() // 1_000_000
        parts = self._parts(damaged=False)
        left = sum(_size_of(part) for part in parts)
        messages, end = 0, 0
        for part in parts[:-1]:  # the newest entry has the number of the last batch
            if left <= self.keep.size_bytes and now_ms - part.stored_ms <= self.keep.age_ms:
                break
            left -= _size_of(part)
            messages, end = messages + part.messages, part.end
        if end:
            self._record.write(msgspec.json.encode(DroppedMessages(self.dropped.messages + messages, end)))
            log.warning("%d dead letters were dropped, by dead-letters.keep-bytes and -age", messages)
            self._delete_dead()

    def _delete_dead(self) -> None:
        """Delete files that were rolled into others, or dropped."""
        dropped = self.dropped.end
        kept = [file for file in self._rolled() if file.end > dropped]
        paths = {file.path for file in kept}
        for path in self._files():
            if path not in paths:
                path.unlink(missing_ok=True)
        behind = max(dropped, kept[-1].end if kept else 0)
        if self.channel.oldest() < min(behind, self.channel.length() - 1):
            self.channel.trim({_ROLLED: behind})


def _readable(part: _RolledFile | _ChannelEntry) -> Iterator[pa.RecordBatch]:
    """The messages of a part; a damaged entry has none, and logs a warning."""
    try:
        yield from part.batches()
    except (MessageLossError, InputError) as error:
        log.warning("dead letters that cannot be read are left out: %s", error)


def _larger(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in fewer batches."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(one.nbytes for one in held) >= _BATCH_BYTES:
            yield from pa.Table.from_batches(held).combine_chunks().to_batches()
            held = []
    if held:
        yield from pa.Table.from_batches(held).combine_chunks().to_batches()


def _size_of(part: _RolledFile | _ChannelEntry) -> int:
    return part.piece.size if isinstance(part, _RolledFile) else part.entry.bytes

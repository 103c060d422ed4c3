"""The files of a transactional sink: its prepared batches, and how far it has published.

The problem: a batch must be able to wait between the moment when its rows are known and the moment when
they may be seen, through any crash, and without being held in memory. The transaction itself cannot wait:
Kafka ends a transaction whose process is gone.

The design: in the sink's own directory,

    publication.json                 the note of `core.checkpoint.publication`
    outbox/batches/00000007.json     batch 7 is prepared: its segments, in order
    outbox/segments/<name>.arrow     messages, ready to be sent; segments that no batch names do not count

A small batch comes to the driver as Arrow and is written there; a large one is written by Spark's tasks, and
is read back one Arrow batch at a time. The size of the batch before decides between the two, as in the file
sink.

A batch that is published at once, and that Spark computes again if that fails, need not be kept: its segments
are neither synced nor compressed, and no file names them.

What if we die here: a batch is prepared when its file has its name, which comes after its segments.
Unfinished files, and segments that were not kept, are removed at the next opening.

Invariants:

1. A prepared batch can be read completely, or reading raises; it survives a crash of the machine.
2. Preparing a batch again replaces it.
3. At most one segment, or one small batch, is in memory at any time.
4. A batch that was staged without being kept is never prepared.

Called by the Kafka, SQL and Redis sinks. Source: the transactional outbox.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow.fs as pafs

from drivetrain.core.channel.channel_log import Segment
from drivetrain.core.checkpoint.publication import Publication
from drivetrain.errors import OutputError
from drivetrain.runtime.channel.columns import TS
from drivetrain.runtime.channel.segments import SEGMENTS, MessageLossError, read_segment
from drivetrain.runtime.channel.store import ChannelStore
from drivetrain.runtime.whole_files import publish_bytes
from drivetrain.spark.channel.writer import write_segments
from drivetrain.spark.measure.small_batches import SmallBatches
from drivetrain.spark.session.dataframe_calls import selected

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_BATCHES = "batches"
_NO_TIME = f"timestamp_millis(0) AS {TS}"


class PreparedBatch(msgspec.Struct, frozen=True):
    """The segments of a batch, in order."""

    batch: int
    segments: tuple[Segment, ...]

    @property
    def rows(self) -> int:
        """How many messages it has."""
        return sum(segment.rows for segment in self.segments)


class Outbox:
    """The directory of one sink; see the module's docstring."""

    def __init__(self, state_dir: str, sink_id: str) -> None:
        self.note = Path(state_dir).absolute() / "publication.json"
        self._place = self.note.parent / "outbox"
        self._store = ChannelStore(str(self._place), fragment=sink_id)
        self._passing = ChannelStore(str(self._place), fragment=sink_id, durable=False)
        self._files = self._store.files
        self._small = SmallBatches()
        self._cleaned = False

    # -- the note ----------------------------------------------------------------------------------

    def publication(self) -> Publication | None:
        """The note, or None before the sink has begun."""
        try:
            content = json.loads(self.note.read_text())
        except FileNotFoundError:
            return None
        found = Publication(content["token"], content["published"], content["begun"])
        found.check()
        return found

    def begin(self) -> Publication:
        """The note; a new one with a new token when the sink begins."""
        found = self.publication()
        if found is None:
            found = Publication(uuid.uuid4().hex)
            self.keep(found)
        return found

    def keep(self, publication: Publication) -> None:
        """Store this as the note, durably."""
        publication.check()
        self.note.parent.mkdir(parents=True, exist_ok=True)
        content = json.dumps(asdict(publication)).encode()
        publish_bytes(pafs.LocalFileSystem(), str(self.note), content)

    def forget(self) -> None:
        """Remove the note and all batches."""
        for batch in self.batches():
            self.drop(batch)
        self.note.unlink(missing_ok=True)

    # -- batches -----------------------------------------------------------------------------------

    def stage(self, df: DataFrame, batch_id: int, *, kept: bool = True) -> PreparedBatch:
        """Write the rows of a batch as segments; it is prepared only once `prepare` has named them.

        Without `kept` it is published before this process does anything else, or never: then `discard` it.
        """
        self._clean()
        self._cleaned = False  # if writing fails, its segments have to be removed
        staged = self._staged(df, batch_id, kept=kept)
        self._cleaned = True
        return staged

    def _staged(self, df: DataFrame, batch_id: int, *, kept: bool) -> PreparedBatch:
        timed = selected(df, "*", _NO_TIME)  # segments need timestamps of their messages
        store = self._store if kept else self._passing
        segments = write_segments(timed, store, batch_id, small=self._small, compressed=kept)
        return PreparedBatch(batch_id, tuple(segments))

    def discard(self, staged: PreparedBatch) -> None:
        """Delete the segments of a batch that is not prepared."""
        self._delete(staged)

    def prepare(self, batch: PreparedBatch) -> None:
        """Name the segments of a staged batch, in place of those it had before."""
        before = self.prepared(batch.batch)
        name = self._name(batch.batch)
        directory = self._place / _BATCHES
        directory.mkdir(parents=True, exist_ok=True)
        publish_bytes(pafs.LocalFileSystem(), str(directory / name), msgspec.json.encode(batch))
        self._delete(before)

    def prepared(self, batch_id: int) -> PreparedBatch | None:
        """A prepared batch, or None."""
        try:
            content = self._files.read(f"{_BATCHES}/{self._name(batch_id)}")
        except FileNotFoundError:
            return None
        return msgspec.json.decode(content.to_pybytes(), type=PreparedBatch)

    def batches(self) -> list[int]:
        """The ids of all prepared batches, in increasing order."""
        names = (name for name in self._files.names(_BATCHES) if not name.startswith("."))
        return sorted(int(name.removesuffix(".json")) for name in names)

    def files(self, batch: PreparedBatch) -> list[Segment]:
        """The segments of a batch with absolute paths, for who reads and verifies them itself."""
        return [
            msgspec.structs.replace(segment, path=str(self._place / segment.path))
            for segment in batch.segments
        ]

    def messages(self, batch: PreparedBatch) -> Iterator[Any]:
        """The messages of a batch as Arrow record batches; raises `MessageLossError` if one has changed."""
        for segment in batch.segments:
            yield from read_segment(self._files, segment)

    def messages_to_publish(self, batch: PreparedBatch, waits_to: str) -> Iterator[Any]:
        """The messages of a batch, which waits to be "published" or "committed" (`waits_to`).

        Raises `OutputError` if one has changed.
        """
        try:
            yield from self.messages(batch)
        except MessageLossError as error:
            # Not a loss of a channel, which its fragment would repair by running again.
            raise OutputError(
                f"batch {batch.batch} waits to be {waits_to}, and is damaged",
                where=error.where,
                expected=error.expected,
                got=error.got,
                remedy="put the file back from a copy; or go back to a savepoint, or start over with --fresh",
            ) from error

    def drop(self, batch_id: int) -> None:
        """Drop a prepared batch."""
        batch = self.prepared(batch_id)
        self._files.delete(f"{_BATCHES}/{self._name(batch_id)}")
        self._delete(batch)

    # -- files -------------------------------------------------------------------------------------

    def _delete(self, batch: PreparedBatch | None) -> None:
        for segment in batch.segments if batch is not None else ():
            self._files.delete(segment.path)

    def _clean(self) -> None:
        """Remove unfinished files of a process that died; once, before anything is written."""
        if self._cleaned:
            return
        prepared = filter(None, map(self.prepared, self.batches()))
        named = {os.path.basename(segment.path) for batch in prepared for segment in batch.segments}
        for name in set(self._files.names(SEGMENTS)) - named:
            self._files.delete(f"{SEGMENTS}/{name}")
        self._cleaned = True

    def _name(self, batch_id: int) -> str:
        return f"{batch_id:08d}.json"

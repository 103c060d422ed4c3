"""The file sink: files of whole batches in one directory, or one for each partition, exactly once.

The problem: Spark may run a batch again after a crash, tasks may run twice, readers may read the directory
at any moment, and a batch may have ten rows or ten million.

The design: the name of a file contains its batches. A batch that is not newer than the newest file was
published, and is skipped. Otherwise it is written to `_drivetrain/` (names that start with `_` are ignored by
Spark, pyarrow and pandas), synced, and renamed into place in one step. A batch that must wait for its
transaction is renamed to a hidden place; when the transaction is published, its batches are joined into one
file (see `rolling`), and a manifest records the progress (see `publication_manifest`). A sink that rolls its
files lets batches wait there without transactions too.

    <dir>/part-<sink id>-<batch>.<extension>      visible to readers: only batches that had rows
    <dir>/part-<sink id>-<batch>-to<batch>.…      several batches, joined
    <dir>/<column>=<value>/…/part-…               the same, of one partition: see `partitioned_files`
    <dir>/part-<sink id>-life<n>-<batch>.…        the same, of the n-th life (see `core.replay.replay`)
    <dir>/_drivetrain/owner.json                  the directory's owner: see `output_ownership`
    <dir>/_drivetrain/staging/…                   files being written
    <dir>/_drivetrain/prepared/…                  batches that are not committed yet: see `stored_rolling`
    <dir>/_drivetrain/rolling/…                   batches that count, and wait to be joined: see `rolling`

Invariants:

1. A reader sees a batch completely or not at all (with partitions: each part of it); a published file never
   changes.
2. A batch is published at most once, whichever process is killed, and at least once before Spark commits it.
3. When `write` raises, nothing of the batch is visible, and no staged file is left behind.
4. When `prepare` returns, the batch survives a crash of the machine, and no reader sees it. The same is true
   of `write` when files are rolled.

In an object store nothing is renamed. The file of a batch is written to the local disk and uploaded in one
request, under its final name, only if that is free; a file that waits is copied to its name, under the same
condition, and then deleted (docs/decisions/0105-one-decision-is-left-to-an-object-store.md).

The size of the batch before determines whether the driver or the workers write, since a batch's
own size is known only when it is computed; the workers also write if Spark refuses to send the driver so
much. Called by the engine. Source: the file layout of Spark's own sink, without its metadata log.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import threading
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, cast

from drivetrain.api.sinks import FileSink, Guarantee
from drivetrain.config import Config
from drivetrain.connectors.files.file_formats import (
    EXTENSIONS,
    compression_of,
    header_of,
    render,
    schema_checksum,
)
from drivetrain.connectors.files.output_ownership import WAITING, OutputDirectory, refusals_named
from drivetrain.connectors.files.partitioned_files import PartitionedFiles
from drivetrain.connectors.files.prepared_folders import PreparedFolders
from drivetrain.connectors.files.publication_manifest import (
    NONE,
    Manifest,
    Published,
    PublishedSink,
    last_published,
)
from drivetrain.connectors.files.rolling import FILE_BYTES, Rolling
from drivetrain.connectors.files.staging import BatchStaging, Target
from drivetrain.connectors.files.stored_rolling import StoredRolling, is_missing
from drivetrain.core.replay.replay import FIRST_LIFE
from drivetrain.errors import OutputError
from drivetrain.runtime.objects.settings import StoreSettings
from drivetrain.runtime.state_place import copies_place
from drivetrain.spark.connector.publishing import abort_after
from drivetrain.spark.connector.sink import SinkContext, TransactionalSinkWriter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

STORE_LOOK_S = 10.0
"""The shortest time between two looks for batches in an object store that are due to be joined."""


class FileSinkWriter:
    """Writes the batches of one file sink; see the module docstring."""

    guarantee: Guarantee = "exactly once"

    def __init__(self, sink: FileSink, context: SinkContext) -> None:
        self._sink = sink
        self._context = context
        self._uri = _absolute(sink.path)
        stores = StoreSettings.of(context.config or Config())
        self._directory = OutputDirectory(
            self._uri, context.app_id, context.state_dir, stores, sink.partition_by, context.require_own
        )
        is_copied = copies_place(context.config or Config()) is not None
        is_contended = self._directory.is_contended(is_copied=is_copied)
        home = _absolute(sink.together or sink.path)
        self._manifest = Manifest(
            home, context.app_id, stores, context.require_own, is_contended=is_contended
        )
        self._life = "" if context.life == FIRST_LIFE else f"life{context.life}-"
        parts = Target(self._uri, sink.format, b"", compression_of(sink), stores)
        self._target = dataclasses.replace(parts, format="parquet", compression="snappy")
        self._partitions: PartitionedFiles | None = None
        if sink.partition_by:
            self._partitions = PartitionedFiles(self._directory, context.sink_id, parts, sink.partition_by)
        else:
            self._target = parts
        limits = (FILE_BYTES, None) if sink.roll is None else (sink.roll.size_bytes, sink.roll.age_ms)
        files = (self._directory, context.sink_id, self._target, self._partitions)
        self._stored: StoredRolling | None = None
        """The same as `_rolling`, if a process that is taken for lost may still publish."""
        if not is_contended:
            self._rolling = Rolling(*files, size_bytes=limits[0], age_ms=limits[1])
        else:
            folders = PreparedFolders(self._directory, context.state_dir, context.claim)
            self._stored = StoredRolling(*files, folders, size_bytes=limits[0], age_ms=limits[1])
            self._rolling = self._stored
        self._turn = threading.Lock()
        """Held while files are joined and published, by batches, checkpoints and polls."""
        self._looked_s = -math.inf
        self._claimed = False
        self._last: int | None = None
        """The newest batch that counts as published; None until it is looked up."""
        self._staging = BatchStaging(self._directory, context.sink_id, is_contended=is_contended)
        self._one_by_one: bool | None = None
        """Whether the manifest counts every file; None before the first batch."""

    @property
    def group(self) -> str:
        """The directory with the manifest."""
        return f"files:{self._manifest.filesystem.type_name}:{self._manifest.root}"

    def validate(self) -> None:
        """Raise OutputError unless the directory is ours or empty, and is writable."""
        if self._stored is not None:
            self._stored.drop_gone()
        self._directory.check()

    def check_fresh(self) -> None:
        """Does nothing: files can always be removed."""

    def fresh(self) -> None:
        """Remove the files that this application published here, and its claim."""
        self._manifest.note(self._context.sink_id, None)
        with self._turn:  # another thread may publish
            if self._stored is not None:
                self._stored.begin_anew()
            self._directory.clear()
            self._claimed, self._one_by_one, self._last = False, None, None

    def name_of(self, batch_id: int) -> str:
        """The name of a file with one batch."""
        packed = ".gz" if self._sink.compression == "gzip" and self._sink.format != "parquet" else ""
        extension = f"{EXTENSIONS[self._sink.format]}{packed}"
        return f"part-{self._context.sink_id}-{self._life}{batch_id:08d}.{extension}"

    def write(self, df: DataFrame, batch_id: int) -> int:
        """Publish the rows of a batch and return their number; 0 if it was published before.

        With rolled files they count as published, and become visible when their file does.
        """
        with self._explained():
            rows = self._written(df, batch_id, waits=False)
        if self._sink.roll is not None:
            self.roll(batch_id - 1)  # Spark does not run these batches again
        return rows

    def newest(self) -> int:
        """The newest batch of this life that counts as published; a negative number if there is none."""
        with self._explained():
            return self._published()

    def roll(self, released: int | None = None, *, ends: bool = False) -> None:
        """Show the due batches among those that wait to be joined, up to `released` (None: all of them)."""
        if self._sink.roll is not None and (ends or self._is_time_to_look()) and self._is_ours():
            with self._publishing():
                self._rolling.show(released, ends=ends)

    # -- batches that wait ---------------------------------------------------------------------------

    def prepare(self, df: DataFrame, batch_id: int) -> int:
        """Keep the rows of a batch unseen, replacing an earlier try; returns their number."""
        with self._explained():
            return self._written(df, batch_id, waits=True)

    def prepared(self) -> list[int]:
        """The prepared batches, in increasing order."""
        if self._stored is not None:
            self._published()
        return sorted(self._rolling.prepared())

    def abort(self, batch_id: int) -> None:
        """Drop a prepared batch."""
        with self._turn:
            path = self._rolling.prepared().get(batch_id)
            if path is not None:
                self._directory.filesystem.delete_file(path)

    def claimed(self, claim: str) -> None:
        """Prepare batches under this claim from now on."""
        if self._stored is not None:
            self._stored.folders.claimed(claim)

    def succeed(self, claim: str, last: int | None, *, is_copied: bool) -> None:
        """Continue a former process, of whose prepared batches those up to `last` count (None: none).

        In an object store it may still run: nothing that it prepares or decides from now on counts.
        """
        if self._stored is None:
            abort_after(self, last)
            return
        with self._turn:
            self._published()
            last = max(NONE if last is None else last, self._stored.counted)
            self._stored.take_over(claim, last, is_copied=is_copied)

    def publish(
        self, txid: int, last: Mapping[str, int], sinks: Mapping[str, TransactionalSinkWriter]
    ) -> dict[str, int]:
        """Rename the prepared batches of all `sinks` up to their last ones into place, then record that."""
        shown: dict[str, int] = {}
        writers = {id: sink for id, sink in cast("Mapping[str, FileSinkWriter]", sinks).items() if id in last}

        def counted(known: Published) -> Published:
            together = dict(known.sinks)
            for id, writer in writers.items():
                together[id] = PublishedSink(writer._relative(), max(known.last_of(id), last[id]))
            return known if together == known.sinks else Published(txid, together)

        with self._explained(), self._manifest.locked():
            known = self._manifest.read()
            for id, sink in writers.items():
                with sink._turn:
                    shown[id] = sink._show(known.last_of(id), last[id])
            self._manifest.change(counted)
        return shown

    def _show(self, published: int, last: int) -> int:
        """Publish the waiting batches up to `last`; returns their number of rows."""
        rows = self._rolling.count(max(published, self._published()), last)
        if rows:
            self._last = max(rows)
        self._rolling.show()
        return sum(rows.values())

    # -- writing -------------------------------------------------------------------------------------

    def _written(self, df: DataFrame, batch_id: int, *, waits: bool) -> int:
        """Write the rows of a batch to staging, and move the file to where it waits, or into place."""
        if batch_id <= self._published():
            if self._partitions is not None:
                self._finish()
            return 0
        rendered = render(df, self._sink)
        header = b"" if self._sink.partition_by else header_of(df, self._sink)
        self._ready(one_by_one=not waits)
        staged, whole, name = self._staging.files, self._staging.whole, self.name_of(batch_id)
        try:
            rows = self._staging.stage(rendered, dataclasses.replace(self._target, header=header))
            if rows and self._partitions is not None:
                self._partitions.check(whole)
            if waits:
                self.abort(batch_id)
            if rows and not waits and self._sink.roll is None and self._partitions is not None:
                with self._publishing():
                    self._partitions.show(whole, name, staged)
            elif rows and not waits and self._sink.roll is None:
                path = f"{self._directory.path}/{name}"
                with refusals_named(path):
                    self._directory.publish(whole, path, staged)
            elif rows:
                waiting = f"{rows}.{len(header)}.{schema_checksum(df, rendered)}.{name}{WAITING}"
                if waits:
                    with refusals_named(self._directory.prepared):
                        self._rolling.prepare(whole, waiting, staged)
                else:
                    self._rolling.take(whole, waiting, staged)
        finally:
            self._staging.empty()
        if rows and not waits:
            self._last = batch_id
        return rows

    def _finish(self) -> None:
        """Finish what a process that died was dividing among partitions."""
        with self._publishing():
            self._rolling.finish()

    def _published(self) -> int:
        """The newest batch of this life that counts as published."""
        if self._last is None:
            prefix = f"part-{self._context.sink_id}-{self._life}"
            if not self._is_ours():
                self._last = NONE
                return NONE
            seen = last_published(self._directory.filesystem, self._directory.path, prefix)
            if self._stored is not None:
                self._stored.counted = self._manifest.read().last_of(self._context.sink_id)
                seen = max(seen, self._stored.counted)
            self._last = max(seen, self._rolling.last_of(self._life))
        return self._last

    def _is_time_to_look(self) -> bool:
        """Whether to list what waits: in an object store not with each batch, since listings cost money."""
        now_s = time.monotonic()
        if self._staging.is_elsewhere and now_s - self._looked_s < STORE_LOOK_S:
            return False
        self._looked_s = now_s
        return True

    def _is_ours(self) -> bool:
        return self._claimed or self._directory.is_claimed()

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Raise TakenOverError instead of an error that follows from it: files are gone."""
        try:
            yield
        except (FileNotFoundError, OutputError) as error:
            if self._stored is not None and is_missing(error):
                self._stored.require_own()
            raise

    @contextlib.contextmanager
    def _publishing(self) -> Iterator[None]:
        with self._manifest.locked(), self._turn:
            yield

    def _ready(self, *, one_by_one: bool) -> None:
        filesystem = self._directory.filesystem
        is_first = not self._claimed
        with refusals_named(self._directory.path):
            if is_first:
                if not self._directory.is_claimed():
                    self._begin_anew()
                    self._last = NONE
                elif self._partitions is not None:
                    self._finish()
                joins = self._sink.roll is not None and self._stored is None
                if one_by_one and not joins and self._rolling.waiting():
                    with self._publishing():
                        # Left from a run that rolled files, or published sinks together.
                        self._rolling.show(ends=self._stored is not None)
                self._claimed = True
            if self._one_by_one != one_by_one:
                self._count(one_by_one=one_by_one)
            self._staging.begin(is_first=is_first)
            if not one_by_one:
                filesystem.create_dir(self._directory.prepared, recursive=True)

    def _begin_anew(self) -> None:
        """Claim the directory. What the manifest has of this sink is of a deleted state."""
        owner, claim = self._directory.owner(), ""
        noted = self._manifest.read().sinks.get(self._context.sink_id)
        if self._stored is not None:
            self._stored.begin_anew()
            claim = self._stored.folders.claim
        self._manifest.exchange(self._context.sink_id, noted, None)
        self._directory.claim(owner, claim)

    def _count(self, *, one_by_one: bool) -> None:
        """Have the manifest count every file, or only those that exist now."""
        known = self._manifest.read().sinks.get(self._context.sink_id)
        if one_by_one:
            if known is not None or self._sink.together is not None:
                self._manifest.note(self._context.sink_id, PublishedSink(self._relative(), None))
        elif known is None or known.last is None:
            last = last_published(self._directory.filesystem, self._directory.path)
            self._manifest.exchange(self._context.sink_id, known, PublishedSink(self._relative(), last))
        self._one_by_one = one_by_one

    def _relative(self) -> str:
        """The sink's directory, relative to the manifest's."""
        return self._directory.path.removeprefix(self._manifest.root).strip("/") or "."


def _absolute(place: str) -> str:
    return place if "://" in place else os.path.abspath(os.path.expanduser(place))

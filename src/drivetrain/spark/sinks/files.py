"""The file sink: one file per batch in one flat directory, exactly once.

The problem: Spark may run a batch again after a crash, tasks may run twice, readers look at any moment,
and a batch may have ten rows or ten million.

The design: the file of batch n of a sink has one possible name. A batch whose file is there was
published, and is skipped. Otherwise it is written aside, in `_drivetrain/` (names that start with `_`
are ignored by Spark, pyarrow and pandas), synced, and renamed into place in one step. A batch that must wait
for its transaction is renamed to a place where nobody looks, and from there into place when it is published;
the manifest says how far that has come (see `manifest`).

    out/part-<sink id>-<batch>.<extension>      what readers see: only batches that had rows
    out/part-<sink id>-life<n>-<batch>.…        the same, of the application's n-th life (see `core.replay`)
    out/_drivetrain/owner.json                  whose directory this is: see `ownership`
    out/_drivetrain/staging/…                   files being written
    out/_drivetrain/prepared/<rows>.<name>      a batch that waits, and the name it will have

Invariants:

1. A reader sees a batch whole or not at all; a published file never changes.
2. A batch is published at most once, whatever is killed, and at least once before Spark commits it.
3. When `write` raises, nothing of the batch is visible, and nothing written aside is left behind.
4. When `prepare` returns, the batch survives a crash of the machine, and nobody sees it.

Whether the driver writes or the workers do follows from the size of the batch before, since a batch's
own size is known only when it is computed; and the workers do when Spark refuses to hand the driver so
much. Called by the engine. Source: the file layout of Spark's own sink, without its metadata log.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

import pyarrow.fs as pafs

from drivetrain.api.sinks import FileSink, Guarantee
from drivetrain.core.replay import FIRST_LIFE
from drivetrain.errors import DrivetrainError
from drivetrain.spark.at_driver import SmallBatches
from drivetrain.spark.failures import recovered
from drivetrain.spark.sinks.context import SinkContext, TransactionalSinkWriter
from drivetrain.spark.sinks.manifest import (
    NONE,
    Manifest,
    Published,
    PublishedSink,
    batch_of,
    last_published,
)
from drivetrain.spark.sinks.ownership import OutputDirectory, refusals_named
from drivetrain.spark.sinks.render import EXTENSIONS, header_of, render
from drivetrain.spark.sinks.staging import Target, join_parts, stage_parts, stage_table
from drivetrain.spark.sources.durable import publish_file

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class FileSinkWriter:
    """Writes the batches of one file sink; see the module's docstring."""

    guarantee: Guarantee = "exactly once"

    def __init__(self, sink: FileSink, context: SinkContext) -> None:
        self._sink = sink
        self._context = context
        self._uri = _absolute(sink.path)
        self._directory = OutputDirectory(self._uri, context.app_id, context.state_dir)
        self._manifest = Manifest(_absolute(sink.together or sink.path), context.app_id)
        self._claimed = False
        self._small = SmallBatches()
        self._one_by_one: bool | None = None
        """Whether the manifest counts every file; None before the first batch."""

    @property
    def group(self) -> str:
        """The directory with the manifest."""
        return f"files:{self._manifest.filesystem.type_name}:{self._manifest.root}"

    def validate(self) -> None:
        """Raise OutputError unless the directory is ours or empty, and can be written."""
        self._directory.check()

    def check_fresh(self) -> None:
        """Files can always be removed."""

    def fresh(self) -> None:
        """Remove the files that this application published here, and its claim."""
        self._manifest.note(self._context.sink_id, None)
        self._directory.clear()
        self._claimed, self._one_by_one = False, None

    def path_of(self, batch_id: int) -> str:
        """The one name that the file of a batch can have."""
        packed = ".gz" if self._sink.compression == "gzip" and self._sink.format != "parquet" else ""
        life = "" if self._context.life == FIRST_LIFE else f"life{self._context.life}-"
        name = f"part-{self._context.sink_id}-{life}{batch_id:08d}.{EXTENSIONS[self._sink.format]}{packed}"
        return f"{self._directory.path}/{name}"

    def write(self, df: DataFrame, batch_id: int) -> int:
        """Publish the rows of a batch and return how many they are; 0 if it was published before."""
        return self._written(df, batch_id, waits=False)

    # -- batches that wait ---------------------------------------------------------------------------

    def prepare(self, df: DataFrame, batch_id: int) -> int:
        """Keep the rows of a batch unseen, in place of what was prepared under its id; how many they are."""
        return self._written(df, batch_id, waits=True)

    def prepared(self) -> list[int]:
        """The batches that wait, growing."""
        return sorted(self._waiting())

    def abort(self, batch_id: int) -> None:
        """Forget a prepared batch."""
        waiting = self._waiting().get(batch_id)
        if waiting is not None:
            self._directory.filesystem.delete_file(f"{self._directory.prepared}/{waiting}")

    def publish(
        self, txid: int, last: Mapping[str, int], sinks: Mapping[str, TransactionalSinkWriter]
    ) -> dict[str, int]:
        """Give the prepared batches of all `sinks` up to their last ones their names, then say so."""
        shown: dict[str, int] = {}
        with self._manifest.locked():
            known = self._manifest.read()
            counted = dict(known.sinks)
            for id, sink in cast("Mapping[str, FileSinkWriter]", sinks).items():
                if id in last:
                    before = counted.get(id)
                    published = before.last if before is not None and before.last is not None else NONE
                    shown[id] = sink._show(published, last[id])
                    counted[id] = PublishedSink(sink._relative(), max(published, last[id]))
            if counted != known.sinks:
                self._manifest.replace(Published(txid, counted))
        return shown

    def _show(self, published: int, last: int) -> int:
        """Give the batches that wait, up to `last`, their names; how many rows they have."""
        filesystem, rows = self._directory.filesystem, 0
        for batch, waiting in sorted(self._waiting().items()):
            if batch > last:
                break
            aside = f"{self._directory.prepared}/{waiting}"
            count, _, name = waiting.partition(".")
            path = f"{self._directory.path}/{name}"
            if batch <= published or filesystem.get_file_info(path).type == pafs.FileType.File:
                filesystem.delete_file(aside)
                continue
            with refusals_named(path):
                publish_file(filesystem, aside, path)
            rows += int(count)
        return rows

    def _waiting(self) -> dict[int, str]:
        """The names of the files that wait, by batch."""
        selector = pafs.FileSelector(self._directory.prepared, allow_not_found=True)
        found = self._directory.filesystem.get_file_info(selector)
        return {batch_of(info.base_name): info.base_name for info in found}

    # -- writing -------------------------------------------------------------------------------------

    def _written(self, df: DataFrame, batch_id: int, *, waits: bool) -> int:
        """Write the rows of a batch aside, and put the file where it waits, or into place."""
        path = self.path_of(batch_id)
        filesystem = self._directory.filesystem
        if filesystem.get_file_info(path).type == pafs.FileType.File:
            return 0
        rendered = render(df, self._sink)
        target = Target(self._uri, self._sink.format, header_of(df, self._sink), self._compression())
        staging = f"{self._directory.staging}/{self._context.sink_id}"
        self._ready(staging, one_by_one=not waits)
        try:
            rows = self._stage(rendered, target, staging)
            if waits:
                self.abort(batch_id)
                path = f"{self._directory.prepared}/{rows}.{os.path.basename(path)}"
            if rows:
                with refusals_named(path):
                    publish_file(filesystem, f"{staging}/whole", path)
        finally:
            filesystem.delete_dir(staging)
        return rows

    def _compression(self) -> str | None:
        chosen = self._sink.compression or ("snappy" if self._sink.format == "parquet" else None)
        return None if chosen == "none" else chosen

    def _ready(self, staging: str, *, one_by_one: bool) -> None:
        filesystem = self._directory.filesystem
        with refusals_named(self._directory.path):
            if not self._claimed:
                if not self._directory.is_claimed():
                    self._manifest.note(self._context.sink_id, None)  # of a state that is gone
                    self._directory.claim()
                self._claimed = True
            if self._one_by_one != one_by_one:
                self._count(one_by_one=one_by_one)
            if filesystem.get_file_info(staging).type == pafs.FileType.Directory:
                filesystem.delete_dir(staging)  # what a killed run had not finished
            filesystem.create_dir(staging, recursive=True)
            if not one_by_one:
                filesystem.create_dir(self._directory.prepared, recursive=True)

    def _count(self, *, one_by_one: bool) -> None:
        """Have the manifest count every file, or those that are there and no more."""
        known = self._manifest.read().sinks.get(self._context.sink_id)
        if one_by_one:
            if known is not None or self._sink.together is not None:
                self._manifest.note(self._context.sink_id, PublishedSink(self._relative(), None))
        elif known is None or known.last is None:
            last = last_published(self._directory.filesystem, self._directory.path)
            self._manifest.note(self._context.sink_id, PublishedSink(self._relative(), last))
        self._one_by_one = one_by_one

    def _relative(self) -> str:
        """The sink's directory, seen from the manifest's."""
        return self._directory.path.removeprefix(self._manifest.root).strip("/") or "."

    def _stage(self, rendered: DataFrame, target: Target, staging: str) -> int:
        """Write the batch to `<staging>/whole`, if it has rows, and return how many."""
        whole = f"{staging}/whole"
        table = self._small.table(rendered)
        if table is not None:
            self._small.wrote(table.nbytes)
            return stage_table(table, target, whole).rows if table.num_rows else 0
        try:
            parts = stage_parts(rendered, target, staging)
        except Exception as error:
            ours = recovered(str(error))
            if isinstance(ours, DrivetrainError):
                raise ours from error
            raise
        self._small.wrote(sum(part.size_bytes for part in parts))
        if parts:
            join_parts(parts, target, whole)
        return sum(part.rows for part in parts)


def _absolute(place: str) -> str:
    return place if "://" in place else os.path.abspath(os.path.expanduser(place))

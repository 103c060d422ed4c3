"""The file sink: one file per batch in one flat directory, exactly once.

The problem: Spark may run a batch again after a crash, tasks may run twice, readers look at any moment,
and a batch may have ten rows or ten million.

The design: the file of batch n of a sink has one possible name. A batch whose file is there was
published, and is skipped. Otherwise it is written aside, in `_drivetrain/` (names that start with `_`
are ignored by Spark, pyarrow and pandas), synced, and renamed into place in one step.

    out/part-<sink id>-<batch>.<extension>      what readers see: only batches that had rows
    out/part-<sink id>-life<n>-<batch>.…        the same, of the application's n-th life (see `core.replay`)
    out/_drivetrain/owner.json                  whose directory this is: see `ownership`
    out/_drivetrain/staging/…                   files being written

Invariants:

1. A reader sees a batch whole or not at all; a published file never changes.
2. A batch is published at most once, whatever is killed, and at least once before Spark commits it.
3. When `write` raises, nothing of the batch is visible, and nothing written aside is left behind.

Whether the driver writes or the workers do follows from the size of the batch before, since a batch's
own size is known only when it is computed; and the workers do when Spark refuses to hand the driver so
much. Called by the engine. Source: the file layout of Spark's own sink, without its metadata log.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pyarrow.fs as pafs

from drivetrain.api.sinks import FileSink, Guarantee
from drivetrain.core.replay import FIRST_LIFE
from drivetrain.errors import DrivetrainError
from drivetrain.spark.failures import recovered
from drivetrain.spark.sinks.context import SinkContext
from drivetrain.spark.sinks.ownership import OutputDirectory, refusals_named
from drivetrain.spark.sinks.render import EXTENSIONS, header_of, render
from drivetrain.spark.sinks.staging import Target, join_parts, stage_parts, stage_table
from drivetrain.spark.sources.durable import publish_file

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DRIVER_BYTES = 64 * 1024 * 1024
_REFUSED = "maxResultSize"


class FileSinkWriter:
    """Writes the batches of one file sink; see the module's docstring."""

    guarantee: Guarantee = "exactly once"

    def __init__(self, sink: FileSink, context: SinkContext) -> None:
        self._sink = sink
        self._context = context
        self._uri = sink.path if "://" in sink.path else os.path.abspath(os.path.expanduser(sink.path))
        self._directory = OutputDirectory(self._uri, context.app_id, context.state_dir)
        self._claimed = False
        self._last_bytes = 0

    def validate(self) -> None:
        """Raise OutputError unless the directory is ours or empty, and can be written."""
        self._directory.check()

    def check_fresh(self) -> None:
        """Files can always be removed."""

    def fresh(self) -> None:
        """Remove the files that this application published here, and its claim."""
        self._directory.clear()
        self._claimed = False

    def path_of(self, batch_id: int) -> str:
        """The one name that the file of a batch can have."""
        packed = ".gz" if self._sink.compression == "gzip" and self._sink.format != "parquet" else ""
        life = "" if self._context.life == FIRST_LIFE else f"life{self._context.life}-"
        name = f"part-{self._context.sink_id}-{life}{batch_id:08d}.{EXTENSIONS[self._sink.format]}{packed}"
        return f"{self._directory.path}/{name}"

    def write(self, df: DataFrame, batch_id: int) -> int:
        """Publish the rows of a batch and return how many they are; 0 if it was published before."""
        path = self.path_of(batch_id)
        filesystem = self._directory.filesystem
        if filesystem.get_file_info(path).type == pafs.FileType.File:
            return 0
        rendered = render(df, self._sink)
        target = Target(self._uri, self._sink.format, header_of(df, self._sink), self._compression())
        staging = f"{self._directory.staging}/{self._context.sink_id}"
        self._prepare(staging)
        try:
            rows = self._stage(rendered, target, staging)
            if rows:
                with refusals_named(path):
                    publish_file(filesystem, f"{staging}/whole", path)
        finally:
            filesystem.delete_dir(staging)
        return rows

    def _compression(self) -> str | None:
        chosen = self._sink.compression or ("snappy" if self._sink.format == "parquet" else None)
        return None if chosen == "none" else chosen

    def _prepare(self, staging: str) -> None:
        filesystem = self._directory.filesystem
        with refusals_named(self._directory.path):
            if not self._claimed:
                self._directory.claim()
                self._claimed = True
            if filesystem.get_file_info(staging).type == pafs.FileType.Directory:
                filesystem.delete_dir(staging)  # what a killed run had not finished
            filesystem.create_dir(staging, recursive=True)

    def _stage(self, rendered: DataFrame, target: Target, staging: str) -> int:
        """Write the batch to `<staging>/whole`, if it has rows, and return how many."""
        whole = f"{staging}/whole"
        if self._last_bytes <= DRIVER_BYTES:
            try:
                table = rendered.toArrow()
            except Exception as error:
                if _REFUSED not in str(error):
                    raise
            else:
                self._last_bytes = table.nbytes
                return stage_table(table, target, whole).rows if table.num_rows else 0
        try:
            parts = stage_parts(rendered, target, staging)
        except Exception as error:
            ours = recovered(str(error))
            if isinstance(ours, DrivetrainError):
                raise ours from error
            raise
        self._last_bytes = sum(part.size_bytes for part in parts)
        if parts:
            join_parts(parts, target, whole)
        return sum(part.rows for part in parts)

"""Bounded text and Parquet files through Spark's own reader, with Drivetrain's file log in control.

The problem: Spark reads uncompressed text and Parquet several times faster than any Python process can pass
it rows. But its file source lists directories itself: it takes files that arrive after the start, forgets old
files, has no end, and checks neither UTF-8 nor whether a file has changed.

The design: the file log lists the input, once, as for every source. Spark's source gets the files by a list
of ours (`native_listing`) instead of listing directories, in our order, and the log that Spark keeps in its
checkpoint shows how far a batch came.

Text is looked through by `text_check` before a batch reads it: that costs a fifth of checking each line in
Spark. The reader is chosen with the files, so they are looked through then, if they are not too large: if no
file has a CR, Spark's own line ends are the same as ours, and Spark finds those faster.

Files are read like this only if it is faster: local, bounded, uncompressed files, none larger than a batch
(Spark does not divide a file between batches), text under the policy `fail`, Parquet whose files have exactly
the types of the stream, unless our reader delivers few groups in place of its messages. Everything else goes
through `file_reader`. The choice is made once and stored in the state directory.

A batch always takes at most `max_batch_bytes`: Spark asks for the limit once, when the query starts, so it
does not follow the duration of batches.

A Parquet source with an end row has one more file at the end of the list, with one row of nulls; and
another one when a query that has taken it restarts. Spark does not keep watermarks of single inputs, and
does not rerun a batch without data that a crash prevented.

Invariants:

1. The files, and their order, are those of the file log.
2. A file that has changed since it was logged stops the application before a batch reads it.
3. Text is UTF-8; otherwise the application stops before the batch, with an error that names the first line
   that is not.
4. Only LF and CRLF end a line.

Called by `opened_files`. Source: Spark's FileStreamSource and MetadataLogFileIndex.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.types import StructType

from drivetrain.api.sources import FileSource, ParquetFiles, TextFiles
from drivetrain.connectors.files.blocks import refuse_changed
from drivetrain.connectors.files.file_log import FileLog
from drivetrain.connectors.files.native_listing import END_FILE, NativeListing
from drivetrain.connectors.files.parquet_groups import first_rows, read_schema
from drivetrain.connectors.files.text_check import TextCheck, ends_with_return
from drivetrain.connectors.schema import to_arrow
from drivetrain.runtime.channel.columns import PUNCT
from drivetrain.runtime.file_locations import FoundFile, compression_of, locate
from drivetrain.runtime.whole_files import is_local
from drivetrain.spark.channel.reduced_batches import is_much_reduced
from drivetrain.spark.connector.reduction import Reduction
from drivetrain.spark.connector.source import OpenedSource, Position, SourceContext

MAX_FILES = 1_000
"""Spark lists every file of a batch again, one by one."""


def open_native(
    source: FileSource,
    struct: StructType,
    log: FileLog,
    context: SourceContext,
    *,
    has_end_row: bool,
    new: bool,
) -> NativeFiles | None:
    """Open `source` for Spark's own reader; returns None if it is not suitable.

    `new`: nothing has run, so the choice is made now. Later starts keep it.
    """
    listing = NativeListing(Path(context.state_dir) / "listing")
    text = TextCheck(listing.path) if isinstance(source, TextFiles) else None
    if new and _gains(source, struct, log, context, has_end_row=has_end_row):
        listing.prepare()
        if text is not None:
            text.choose(log)
        listing.write(log, to_arrow(struct) if has_end_row else None)
    if not listing.exists():
        return None
    listing.follow_move(log, context.spark_log)
    if text is not None and text.has_no_returns:
        df = _read(context, "text", struct, listing.path)
    elif text is not None:
        df = _read(context, "text", struct, listing.path, lineSep="\n").select(_line().alias("value"))
    else:
        df = _read(context, "parquet", struct, listing.path, datetimeRebaseMode="CORRECTED")
        if has_end_row:
            df = df.select("*", F.col("_metadata.file_name").startswith(END_FILE).alias(PUNCT))
    opened = NativeFiles(df, log, context.spark_log, text, has_end_row=has_end_row)
    if has_end_row and opened.newest() >= listing.count():
        listing.add_end(to_arrow(struct))
    return opened


def _gains(
    source: FileSource, struct: StructType, log: FileLog, context: SourceContext, *, has_end_row: bool
) -> bool:
    filesystem, _ = locate(source.path, context.stores)
    if source.partition_columns is not None:
        return False
    if source.watch or not is_local(filesystem) or context.spark_log is None or len(log) > MAX_FILES:
        return False
    if not all(_readable_by_spark(file, context.max_batch_bytes) for file in log.files()):
        return False
    if isinstance(source, TextFiles):
        if source.on_bad_record != "fail" or has_end_row:
            return False
        return not any(ends_with_return(file.path) for file in log.files())  # which no LF follows
    if not isinstance(source, ParquetFiles) or "_metadata" in struct.names:
        return False
    if has_end_row and _is_reduced(log, context.reduction, struct):
        return False
    target = to_arrow(struct)
    return all(_same_types(read_schema(filesystem, file.path), target) for file in log.files())


def _is_reduced(log: FileLog, reduction: Reduction | None, struct: StructType) -> bool:
    """Whether our reader makes few groups of the messages, as those at the beginning of the input show."""
    if reduction is None or not reduction.fits(struct):
        return False
    needed = to_arrow(reduction.needed(struct))
    read = (first_rows(pafs.LocalFileSystem(), file.path, needed) for file in log.files())
    sample = next((rows for rows in read if rows is not None), None)
    return sample is not None and is_much_reduced(sample, reduction, struct)


def _readable_by_spark(file: FoundFile, max_bytes: int) -> bool:
    return compression_of(file.path) is None and file.size_bytes <= max_bytes


def _same_types(found: pa.Schema, target: pa.Schema) -> bool:
    names = found.names
    return all(names.count(f.name) == 1 and _same_type(found.field(f.name).type, f.type) for f in target)


def _same_type(found: pa.DataType, target: pa.DataType) -> bool:
    if found == target:
        return True
    if pa.types.is_dictionary(found):
        return _same_type(found.value_type, target)
    if pa.types.is_timestamp(found) and pa.types.is_timestamp(target):
        return found.unit in ("ms", "us") and (found.tz is None) == (target.tz is None)
    if pa.types.is_string(target):
        return pa.types.is_large_string(found) or pa.types.is_string_view(found)
    return False


def _read(context: SourceContext, form: str, struct: StructType, listing: Path, **options: str) -> DataFrame:
    reader = context.spark.readStream.format(form).schema(struct).options(**options)
    return reader.option("maxBytesPerTrigger", context.max_batch_bytes).load(str(listing))


def _line() -> Column:
    """A line in the form of `TextDecoder`: without the CR of a CRLF."""
    value = F.col("value")
    return F.when(value.endswith("\r"), F.expr("left(value, char_length(value) - 1)")).otherwise(value)


class NativeFiles(OpenedSource):
    """Files that Spark reads itself; its progress is in the log that it keeps in its checkpoint.

    A batch has a file there, whose newest entry is the last file taken, since the order is ours. Now and then
    that file is a compact one with all entries so far, `9.compact`, and older ones are deleted.
    """

    reader = "native"
    how_read = "read by Spark's own reader"
    limited_by = "bytes"
    unit = "bytes"

    def __init__(
        self,
        df: DataFrame,
        log: FileLog,
        spark_log: str | None,
        text: TextCheck | None = None,
        *,
        has_end_row: bool,
    ) -> None:
        assert spark_log is not None
        self.df = df
        self.bounded = True
        self.total = log.total_bytes
        self.has_end_row = has_end_row
        self.reads_columns = text is None
        self._log = log
        self._listed = len(log) + has_end_row
        self._directory = Path(spark_log)
        self._text = text
        self._checked = 0
        self._rows = [0]
        """The messages in the first files, by how many files; only of those that were checked."""
        self._committed = 0
        self._taken: dict[int, int] = {}

    def position(self, offset: str | None) -> Position:
        """The bytes of all files up to those of `offset`; the file with the end row counts as none."""
        files = self._files_until(offset)
        done = self._log.end_of(min(files, len(self._log)))
        return Position(done, self._log.total_bytes, finished=files >= self._listed)

    def messages(self, before: str | None, offset: str | None) -> int:
        """As the footers of the files said when their batch began: afterwards they may be deleted."""
        done, end = (min(self._files_until(each), len(self._rows) - 1) for each in (before, offset))
        return self._rows[end] - self._rows[done]

    def history_start(self, from_ms: int, end: str) -> str | None:
        """Before the first file: it is unknown which of them have messages of that time."""
        return None

    def history_part(self, start: str | None, end: str, fraction: float) -> str:
        """The files of one batch."""
        next_one = (json.loads(start)["logOffset"] if start else -1) + 1
        return end if next_one >= json.loads(end)["logOffset"] else json.dumps({"logOffset": next_one})

    def newest(self) -> int:
        """How many files Spark has planned to take so far."""
        names = [path.name.removesuffix(".compact") for path in self._directory.glob("[0-9]*")]
        return self._files_until(json.dumps({"logOffset": max(map(int, names))})) if names else 0

    def check(self, offset: str | None) -> None:
        """Raise InputError unless the files up to `offset` are as logged, and UTF-8; each is checked once."""
        files = min(self._files_until(offset), len(self._log))
        filesystem = pafs.LocalFileSystem()
        for number, file in enumerate(self._log.files(self._checked, files), self._checked):
            refuse_changed(filesystem, file.path, file.size_bytes)
            if self.reads_columns and not self.has_end_row:
                self._rows[number + 1 :] = [self._rows[number] + pq.read_metadata(file.path).num_rows]
            if self._text is not None and number >= self._committed:
                self._text.require(file)
        self._checked = max(self._checked, files)

    def committed(self, offset: str | None) -> None:
        """After a restart, the files of batches that were committed before are not looked through again."""
        self._committed = max(self._committed, self._files_until(offset))

    def _files_until(self, offset: str | None) -> int:
        """How many files the batches up to `offset` took; stateless, since two threads call it."""
        taken = json.loads(offset) if offset else None  # Spark reports no offset as null
        batch = -1 if taken is None else taken["logOffset"]
        if batch not in self._taken:
            taken = (int(e["timestamp"]) + 1 for e in self._entries(batch) if e["batchId"] <= batch)
            self._taken[batch] = max(taken, default=0)
        return self._taken[batch]

    def _entries(self, batch: int) -> Iterator[dict[str, int]]:
        """Spark's entries for the files of a batch, perhaps with those of other batches."""
        own, compact = self._directory / str(batch), self._directory / f"{batch}.compact"
        paths = [path for path in (own, compact) if path.exists()]
        if not paths and batch >= 0:  # compacted since, and deleted
            paths = list(self._directory.glob("*.compact"))
        for path in paths:
            yield from (json.loads(line) for line in path.read_text().splitlines()[1:] if line)

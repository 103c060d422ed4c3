"""The file sink: one file per batch in a flat directory, exactly once.

A small batch goes through the driver as one Arrow table (no Spark file commit, which costs more than
the writing). A large one is written by the tasks in parallel, and the parts are joined into the
batch's file: bytes one after the other for lines, row groups for Parquet. Which it is follows from
the batch before; Spark refuses results that are too large for the driver, and then the tasks write.

CSV and JSON lines are made by Spark's own functions, so both ways give the same bytes.
"""

from __future__ import annotations

import csv
import io
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.pandas.types import to_arrow_schema

from drivetrain.api.sinks import FileSink, Guarantee
from drivetrain.errors import OutputError
from drivetrain.spark.sinks.context import SinkContext
from drivetrain.spark.sinks.target import Target

SMALL_ROWS = 100_000
_TOO_LARGE = "bigger than spark.driver.maxResultSize"
_LINE = "value"
_EXTENSIONS = {"parquet": "parquet", "csv": "csv", "json": "json", "text": "txt"}


class FileSinkWriter:
    """Writes batches of one sink."""

    guarantee: Guarantee = "exactly once"

    def __init__(self, sink: FileSink, context: SinkContext) -> None:
        self.sink = sink
        self.context = context
        self.target = Target(sink.path)
        self._rows_before: int | None = None

    def validate(self) -> None:
        """Claim the directory; raises `OutputError`."""
        self.target.claim(self.context.app_id)

    def fresh(self) -> None:
        """Delete what this application published here."""
        if self.target.owner() == self.context.app_id:
            self.target.forget(f"part-{self.context.sink_id}-")

    def name(self, batch_id: int) -> str:
        """The file of a batch."""
        gzip = ".gz" if self.sink.compression == "gzip" and self.sink.format != "parquet" else ""
        return f"part-{self.context.sink_id}-{batch_id:08d}.{_EXTENSIONS[self.sink.format]}{gzip}"

    def write(self, df: DataFrame, batch_id: int) -> int:
        """Publish a batch, unless it is there already; returns its rows."""
        name = self.name(batch_id)
        if self.target.exists(name):
            return 0
        shaped = df if self.sink.format == "parquet" else self._lines(df)
        rows = None
        if self._rows_before is not None and self._rows_before <= SMALL_ROWS:
            rows = self._write_small(shaped, df.columns, name)
        if rows is None:
            rows = self._write_large(shaped, df.columns, name)
        self._rows_before = rows
        return rows

    # -- small batches -----------------------------------------------------------------------------

    def _write_small(self, df: DataFrame, columns: list[str], name: str) -> int | None:
        try:
            table = df.toArrow()
        except Exception as error:
            if _TOO_LARGE in str(error):
                return None
            raise
        if table.num_rows:
            with self.target.writing(name, compression=self._compression()) as stream:
                self._write_batches(stream, columns, table.schema, table.to_batches())
        return int(table.num_rows)

    def _write_batches(
        self, stream: Any, columns: list[str], schema: pa.Schema, batches: Iterable[pa.RecordBatch]
    ) -> None:
        if self.sink.format == "parquet":
            with pq.ParquetWriter(stream, schema, compression=self.sink.compression or "snappy") as writer:
                for batch in batches:
                    writer.write_batch(batch)
            return
        stream.write(self._header(columns))
        for batch in batches:
            stream.write(_joined(batch))

    # -- large batches -----------------------------------------------------------------------------

    def _write_large(self, df: DataFrame, columns: list[str], name: str) -> int:
        attempt = uuid.uuid4().hex[:8]
        parts = PartWriter(
            self.target,
            f"{name}.{attempt}",
            to_arrow_schema(df.schema, timezone="UTC") if self.sink.format == "parquet" else None,
            self.sink.compression or "snappy",
        )
        written = df.mapInArrow(parts, "path string, rows bigint").collect()
        staged = [row["path"] for row in written]
        rows = sum(row["rows"] for row in written)
        try:
            if self.sink.format == "parquet" and len(staged) == 1:
                self.target.publish(staged[0], name)
            elif staged:
                with self.target.writing(name, compression=self._compression()) as stream:
                    self._join(stream, columns, staged)
        finally:
            for path in staged:
                self.target.discard(path)
        return int(rows)

    def _join(self, stream: Any, columns: list[str], staged: list[str]) -> None:
        fs = self.target.fs
        if self.sink.format != "parquet":
            stream.write(self._header(columns))
            for path in staged:
                with fs.open_input_stream(path) as part:
                    while chunk := part.read(1 << 20):
                        stream.write(chunk)
            return
        schema = pq.read_schema(staged[0], filesystem=fs)
        with pq.ParquetWriter(stream, schema, compression=self.sink.compression or "snappy") as writer:
            for path in staged:
                with fs.open_input_file(path) as file:
                    parquet = pq.ParquetFile(file)
                    for group in range(parquet.num_row_groups):
                        writer.write_table(parquet.read_row_group(group))

    # -- lines -------------------------------------------------------------------------------------

    def _lines(self, df: DataFrame) -> DataFrame:
        if self.sink.format == "json":
            return df.select(F.to_json(F.struct(*df.columns), {"ignoreNullFields": "false"}).alias(_LINE))
        if self.sink.format == "csv":
            nested = [
                f for f in df.schema.fields if f.dataType.typeName() in ("array", "struct", "map", "binary")
            ]
            if nested:
                raise OutputError(
                    f"CSV has no way to write the column {nested[0].name}",
                    where=self.sink.path,
                    expected="numbers, text, booleans, dates and timestamps",
                    got=nested[0].dataType.simpleString(),
                    remedy="write Parquet or JSON, or make text of it with select(...)",
                )
            return df.select(F.to_csv(F.struct(*df.columns)).alias(_LINE))
        if len(df.columns) != 1 or df.schema.fields[0].dataType.simpleString() != "string":
            raise OutputError(
                "text is one column of strings",
                where=self.sink.path,
                got=", ".join(f"{f.name} {f.dataType.simpleString()}" for f in df.schema.fields),
                remedy='make one: select(value=F.concat_ws(" ", ...))',
            )
        return df.select(F.col(df.columns[0]).alias(_LINE))

    def _header(self, columns: list[str]) -> bytes:
        if self.sink.format != "csv" or not self.sink.header:
            return b""
        line = io.StringIO()
        csv.writer(line, lineterminator="\n").writerow(columns)
        return line.getvalue().encode()

    def _compression(self) -> str | None:
        return "gzip" if self.sink.compression == "gzip" and self.sink.format != "parquet" else None


@dataclass(frozen=True)
class PartWriter:
    """Writes one task's rows under `_drivetrain` and says where; pickled to Spark's workers.

    `schema` is that of Parquet parts; None for lines. A task that Spark runs again writes another
    file: only the paths that reach the driver count, and the sink deletes them after joining.
    """

    target: Target
    stem: str
    schema: pa.Schema | None
    compression: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the batches of a partition; yields one row, or none for an empty partition."""
        path = self.target.staged(f"{self.stem}.{uuid.uuid4().hex[:8]}.part")
        rows, sink, stream = 0, None, None
        for batch in batches:
            if not batch.num_rows:
                continue
            if stream is None:
                stream = self.target.fs.open_output_stream(path)
                if self.schema is not None:
                    sink = pq.ParquetWriter(stream, self.schema, compression=self.compression)
            if sink is not None:
                sink.write_batch(batch.cast(self.schema))
            else:
                stream.write(_joined(batch))
            rows += batch.num_rows
        if stream is not None:
            if sink is not None:
                sink.close()
            stream.close()
            yield pa.RecordBatch.from_pydict({"path": [path], "rows": [rows]})


def _joined(batch: pa.RecordBatch) -> bytes:
    lines = batch.column(0).to_pylist()
    return ("\n".join("" if line is None else line for line in lines) + "\n").encode()

"""Which file format should a channel's segments have? Arrow IPC or Parquet, compressed or not.

Each format is written by Spark tasks in Arrow batches and read back by Spark through a Python data
source, as channels do it, with the whole-file checksum that channels keep. Rows are 100-byte messages,
or narrow rows of numbers. Formats take turns within a round, and the figures are medians over rounds.
Beside the wall clock it reports rows per second of CPU, over Spark and its Python workers: that figure
hardly depends on what else the machine does.

    python -m benchmarks.segment_format [--quick] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
import uuid
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.ipc as ipc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema

FORMATS = ["arrow-none", "arrow-lz4", "arrow-zstd", "parquet-none", "parquet-snappy", "parquet-zstd"]
BASE = "arrow-none"


def encode(table: pa.Table, format_name: str) -> pa.Buffer:
    kind, codec = format_name.split("-")
    sink = pa.BufferOutputStream()
    if kind == "arrow":
        options = ipc.IpcWriteOptions(compression=None if codec == "none" else codec)
        with ipc.new_file(sink, table.schema, options=options) as writer:
            writer.write_table(table)
    else:
        pq.write_table(table, sink, compression=codec)
    return sink.getvalue()


def decode(content: pa.Buffer, format_name: str) -> Iterator[pa.RecordBatch]:
    if format_name.startswith("arrow"):
        reader = ipc.open_file(content)
        for index in range(reader.num_record_batches):
            yield reader.get_batch(index)
    else:
        yield from pq.ParquetFile(pa.BufferReader(content)).iter_batches(batch_size=10_000)


class SegmentFiles(DataSource):
    """All segments of a folder, one partition each."""

    @classmethod
    def name(cls) -> str:
        return "benchmark_segments"

    def reader(self, schema: Any) -> SegmentFilesReader:
        return SegmentFilesReader(
            self.options["folder"], self.options["format"], to_arrow_schema(schema, timezone="UTC")
        )


class SegmentFilesReader(DataSourceReader):
    def __init__(self, folder: str, format_name: str, schema: pa.Schema) -> None:
        self.folder, self.format_name, self.schema = folder, format_name, schema

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(str(path)) for path in sorted(Path(self.folder).iterdir())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with pa.memory_map(partition.value) as mapped:
            content = mapped.read_buffer()
        zlib.crc32(content)
        for batch in decode(content, self.format_name):
            yield pa.RecordBatch.from_arrays(batch.columns, schema=self.schema)


def write(df: DataFrame, folder: str, format_name: str) -> int:
    """Write the rows as segments; returns their bytes."""
    schema = to_arrow_schema(df.schema, timezone="UTC")

    def write_partition(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        kept = [
            pa.RecordBatch.from_arrays(
                [c.cast(f.type) for c, f in zip(b.columns, schema, strict=True)], schema=schema
            )
            for b in batches
        ]
        content = encode(pa.Table.from_batches(kept, schema), format_name)
        with open(f"{folder}/{uuid.uuid4().hex}", "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        zlib.crc32(content)
        yield pa.record_batch([pa.array([content.size])], names=["bytes"])

    return sum(row.bytes for row in df.mapInArrow(write_partition, "bytes long").collect())


def messages(spark: SparkSession, rows: int) -> DataFrame:
    """100 bytes a row: half of it random, half repetitive, as text with identifiers tends to be."""
    text = F.concat(F.substring(F.sha2(F.col("id").cast("string"), 256), 1, 50), F.lit("x" * 50))
    return spark.range(0, rows, 1, 2).select(text.alias("message"), F.timestamp_millis("id").alias("__ts"))


def numbers(spark: SparkSession, rows: int) -> DataFrame:
    return spark.range(0, rows, 1, 2).select(
        (F.col("id") % 1000).cast("int").alias("key"),
        F.col("id").alias("sequence"),
        F.rand(seed=1).alias("value"),
        F.timestamp_millis("id").alias("__ts"),
    )


def cpu_s() -> float:
    """CPU seconds of this process and everything it started, so far."""
    me = psutil.Process()
    times = [process.cpu_times() for process in [me, *me.children(recursive=True)]]
    return sum(t.user + t.system for t in times)


def timed(action: Callable[[], Any]) -> tuple[float, float, Any]:
    """Seconds on the clock, seconds of CPU, and the result."""
    begin, begin_cpu = time.perf_counter(), cpu_s()
    result = action()
    return time.perf_counter() - begin, cpu_s() - begin_cpu, result


def measure(
    spark: SparkSession, data: DataFrame, rows: int, rounds: int, scratch: str
) -> dict[str, dict[str, float]]:
    data = data.cache()
    data.count()
    runs: dict[str, list[tuple[float, float, float]]] = {name: [] for name in FORMATS}
    size: dict[str, float] = {}
    for _ in range(rounds + 1):
        for name in FORMATS:
            folder = tempfile.mkdtemp(dir=scratch)
            write_s, write_cpu_s, size[name] = timed(partial(write, data, folder, name))
            source = spark.read.format("benchmark_segments").schema(data.schema)
            sink = source.options(folder=folder, format=name).load().write.format("noop").mode("overwrite")
            read_s, read_cpu_s, _ = timed(sink.save)
            runs[name].append((write_s, read_s, write_cpu_s + read_cpu_s))
            shutil.rmtree(folder)
    data.unpersist()
    found = {}
    for name in FORMATS:
        kept = runs[name][1:]  # the first round warms up
        found[name] = {
            "write_rows_per_s": rows / statistics.median(w for w, _, _ in kept),
            "read_rows_per_s": rows / statistics.median(r for _, r, _ in kept),
            "both_rows_per_s": rows / statistics.median(w + r for w, r, _ in kept),
            "rows_per_cpu_s": rows / statistics.median(c for _, _, c in kept),
            "bytes_per_row": size[name] / rows,
        }
    for name in FORMATS:
        found[name]["ratio"] = found[name]["both_rows_per_s"] / found[BASE]["both_rows_per_s"]
        found[name]["cpu_ratio"] = found[name]["rows_per_cpu_s"] / found[BASE]["rows_per_cpu_s"]
    return found


COLUMNS = [
    ("write M/s", "write_rows_per_s", 1e6),
    ("read M/s", "read_rows_per_s", 1e6),
    ("both M/s", "both_rows_per_s", 1e6),
    ("ratio", "ratio", 1),
    ("M/cpu s", "rows_per_cpu_s", 1e6),
    ("cpu ratio", "cpu_ratio", 1),
    ("bytes/row", "bytes_per_row", 1),
]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="few rows, two rounds")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    rows, rounds = (100_000, 2) if arguments.quick else (arguments.rows, arguments.rounds)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.memory", "2g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.adaptive.enabled", "false")
        .getOrCreate()
    )
    spark.dataSource.register(SegmentFiles)
    with tempfile.TemporaryDirectory() as scratch:
        found = {
            "messages": measure(spark, messages(spark, rows), rows, rounds, scratch),
            "numbers": measure(spark, numbers(spark, rows), rows, rounds, scratch),
        }
    spark.stop()
    if arguments.json:
        print(json.dumps(found, indent=2))
        return
    for workload, formats in found.items():
        print(f"\n{workload}: {rows:,} rows, median of {rounds}")
        print(f"{'format':<16}" + "".join(f"{title:>11}" for title, _, _ in COLUMNS))
        for name, figures in formats.items():
            print(f"{name:<16}" + "".join(f"{figures[key] / unit:>11.2f}" for _, key, unit in COLUMNS))


if __name__ == "__main__":
    main()

"""Who should read files: Spark's own sources, or native parsers behind a Python data source?

For each format the same streaming query over the same files, once with Spark's file source and once with
Drivetrain's: reading alone, and with a windowed count behind it. Both read the same number of batches,
take turns within a round in one tuned session, and are compared by medians over rounds: of the wall
clock, which other work on the machine disturbs, and of CPU seconds over Spark and its Python workers, which
it hardly does. A query's start is part of it, so more rows favour whoever reads faster.

Before that, the parsers alone, on one core and without Spark: Arrow's, and Polars' if it is installed.

    python -m benchmarks.parsers [--quick] [--json] [--rows N] [--rounds N] [--format json]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from benchmarks import data
from benchmarks.measure import Timed, machine
from drivetrain.connectors.files.blocks import Block, read_blocks
from drivetrain.connectors.files.csv_decoder import CsvDecoder
from drivetrain.connectors.files.file_log import FileSplit
from drivetrain.connectors.files.json_decoder import JsonDecoder
from drivetrain.connectors.files.text_decoder import TextDecoder
from drivetrain.runtime.file_locations import locate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMATS = ("json", "csv", "parquet", "text")
FILES = 4
SCHEMA = "ts timestamp, key string, value bigint, kind string"
TYPES = {"ts": "timestamp", "key": "string", "value": "bigint", "kind": "string"}
TARGET = pa.schema(
    [("ts", pa.timestamp("us", tz="UTC")), ("key", pa.string()), ("value", pa.int64()), ("kind", pa.string())]
)
LINE = pa.schema([("value", pa.string())])


def make(directory: Path, rows: int) -> None:
    """The same events in every format, in `FILES` files each."""
    for number in range(FILES):
        rng = np.random.default_rng(data.SEED + number)
        count = rows // FILES
        arrival_ms = data.START_MS + (number * count + np.arange(count, dtype=np.int64)) // 5
        ts_ms = np.maximum(arrival_ms - rng.integers(0, data.DISORDER_MS, count), data.START_MS)
        table = pa.table(
            {
                "ts": pc.binary_join_element_wise(
                    pc.strftime(pa.array(ts_ms, pa.timestamp("ms")), "%Y-%m-%dT%H:%M:%S"), "Z", ""
                ),
                "key": pc.binary_join_element_wise(
                    "key-", pc.cast(pa.array(rng.integers(0, 200, count)), pa.string()), ""
                ),
                "value": rng.integers(0, 1_000_000, count),
                "kind": pa.array(["view", "click", "buy"]).take(pa.array(rng.integers(0, 3, count))),
            }
        )
        for kind in FORMATS:
            (directory / kind).mkdir(parents=True, exist_ok=True)
        pacsv.write_csv(table, directory / "csv" / f"{number}.csv")
        typed = table.set_column(0, "ts", pc.cast(table["ts"], pa.timestamp("us", tz="UTC")))
        pq.write_table(typed, directory / "parquet" / f"{number}.parquet", row_group_size=count // 4 or 1)
        value = pc.cast(table["value"], pa.string())
        pieces = ['{"ts":"', table["ts"], '","key":"', table["key"], '","value":', value]
        lines = pc.binary_join_element_wise(*pieces, ',"kind":"', table["kind"], '"}\n', "")
        text = b"".join(memoryview(chunk.buffers()[2]) for chunk in lines.chunks)
        (directory / "json" / f"{number}.json").write_bytes(text)
        (directory / "text" / f"{number}.txt").write_bytes(text)


# -- parsers alone -----------------------------------------------------------------------------------


def blocks(path: Path) -> Iterator[Block]:
    filesystem, inside = locate(str(path))
    size = path.stat().st_size
    return read_blocks(filesystem, FileSplit(inside, 0, size, size, whole=False))


def alone(directory: Path, rows: int) -> dict[str, float]:
    """Million rows per second of each parser on one file; the best of three."""
    count = rows // FILES
    json_file, csv_file, text_file = (
        directory / kind / f"0.{suffix}"
        for kind, suffix in (("json", "json"), ("csv", "csv"), ("text", "txt"))
    )
    from drivetrain.api import sources

    csv_source = sources.csv(csv_file, schema=SCHEMA)
    contenders: dict[str, Callable[[], int]] = {
        "json: arrow": lambda: decoded(JsonDecoder(TARGET, TYPES, None), json_file),
        "csv: arrow": lambda: decoded(
            CsvDecoder(TARGET, TYPES, csv_source, TARGET.names), csv_file, header=True
        ),
        "text: numpy": lambda: decoded(TextDecoder(LINE), text_file),
    }
    try:
        import polars as pl
    except ImportError:
        print("polars is not installed: left out", file=sys.stderr)
    else:
        types: Any = {"ts": pl.String, "key": pl.String, "value": pl.Int64, "kind": pl.String}
        contenders["json: polars"] = lambda: in_polars(pl.read_ndjson(json_file.read_bytes(), schema=types))
        contenders["csv: polars"] = lambda: in_polars(pl.read_csv(csv_file.read_bytes(), schema=types))
    found = {}
    for name, contender in contenders.items():
        seconds = []
        for _ in range(3):
            began_s = time.process_time()
            if contender() != count:
                raise RuntimeError(f"{name} read another number of rows")
            seconds.append(time.process_time() - began_s)
        found[name] = count / min(seconds) / 1e6
    return found


def decoded(decoder: Any, path: Path, *, header: bool = False) -> int:
    rows = 0
    for block in blocks(path):
        base = int(block.ends[0]) + 1 if header else 0
        header = False
        rows += decoder.decode(block.data[base:], block.ends[1 if base else 0 :] - base).num_rows
    return rows


def in_polars(frame: Any) -> int:
    table = frame.to_arrow()
    pc.cast(pc.cast(table["ts"], pa.string()), TARGET.field("ts").type)
    return int(table.num_rows)


# -- in Spark ----------------------------------------------------------------------------------------


def native(spark: SparkSession, kind: str, directory: Path, _state: Path) -> DataFrame:
    reader = spark.readStream.schema("value string" if kind == "text" else SCHEMA).option(
        "maxFilesPerTrigger", 1
    )
    if kind == "csv":
        reader = reader.option("header", "true")
    return reader.format(kind).load(str(directory / kind))


def ours(spark: SparkSession, kind: str, directory: Path, state: Path) -> DataFrame:
    from drivetrain.api import sources
    from drivetrain.connectors.opening import open_source
    from drivetrain.spark.connector.source import SourceContext

    path = directory / kind
    source = {
        "json": sources.json(path, schema=SCHEMA),
        "csv": sources.csv(path, schema=SCHEMA),
        "parquet": sources.parquet(path, schema=SCHEMA),
        "text": sources.text(path),
    }[kind]
    size = sum(file.stat().st_size for file in path.iterdir())
    context = SourceContext(spark, str(state), "benchmark", kind, max_batch_bytes=size // FILES + FILES)
    return open_source(source, context).df


def windowed(events: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812 - PySpark's convention

    if events.columns == ["value"]:
        return events.groupBy(F.substring("value", 37, 8).alias("key")).count()
    return events.withWatermark("ts", "10 seconds").groupBy(F.window("ts", "10 seconds"), "key").count()


def once(spark: SparkSession, reader: Any, kind: str, directory: Path, *, count: bool) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as scratch:
        with Timed() as timed:
            events = reader(spark, kind, directory, Path(scratch) / "state")
            query = (
                (windowed(events) if count else events)
                .writeStream.format("noop")
                .outputMode("update" if count else "append")
                .option("checkpointLocation", f"{scratch}/checkpoint")
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
        batches = [progress for progress in query.recentProgress if progress.numInputRows]
        return timed.figures(batches=len(batches), rows=sum(p.numInputRows for p in batches))


def compared(
    spark: SparkSession, directory: Path, kind: str, rows: int, rounds: int, *, count: bool
) -> dict[str, Any]:
    """Medians of both readers and the ratio of ours over Spark's."""
    runs: dict[str, list[dict[str, float]]] = {"spark": [], "ours": []}
    for number in range(rounds + 1):
        for name, reader in (("spark", native), ("ours", ours)):
            figures = once(spark, reader, kind, directory, count=count)
            if figures["rows"] != rows:
                raise RuntimeError(f"{name} read {figures['rows']:.0f} of {rows} rows of {kind}")
            if number:  # the first round warms up
                runs[name].append(figures)
    medians = {
        name: {key: statistics.median(run[key] for run in of) for key in of[0]} for name, of in runs.items()
    }
    return {
        "format": kind,
        "query": "windowed count" if count else "reading alone",
        "median": medians,
        "wall_ratio": medians["spark"]["seconds"] / medians["ours"]["seconds"],
        "cpu_ratio": medians["spark"]["cpu_s"] / medians["ours"]["cpu_s"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="little data, one round")
    parser.add_argument("--json", action="store_true", help="print the figures as one JSON object")
    parser.add_argument("--rows", type=int, help="rows per format (4,000,000; with --quick 200,000)")
    parser.add_argument("--rounds", type=int, help="timed rounds (5; with --quick 1)")
    parser.add_argument("--format", action="append", choices=FORMATS, help="only these formats")
    given = parser.parse_args()
    rows = (given.rows or (200_000 if given.quick else 4_000_000)) // FILES * FILES
    rounds = given.rounds or (1 if given.quick else 5)

    from benchmarks import peers
    from drivetrain.spark.session.python_launcher import worker_python

    data.root().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=data.root()) as made:
        directory = Path(made)
        make(directory, rows)
        parsers = alone(directory, rows)
        spark, _ = peers.start_pyspark(peers.TUNED)
        spark.sparkContext.pythonExec = worker_python()
        results = [
            compared(spark, directory, kind, rows, rounds, count=count)
            for kind in given.format or FORMATS
            for count in (False, True)
        ]
        spark.stop()
    if given.json:
        print(json.dumps({"rows": rows, "machine": machine(), "parsers": parsers, "queries": results}))
        return
    print(f"{rows:,} rows per format, {FILES} batches, medians of {rounds}\n")
    print("Parsers alone, one core, M rows per CPU second:")
    for name, speed in parsers.items():
        print(f"  {name:14s}{speed:6.2f}")
    print(f"\n{'':26s}{'M rows/s':>20s}{'ours / Spark':>14s}{'M rows per CPU s':>20s}{'ours / Spark':>14s}")
    print(f"{'':26s}{'Spark':>10s}{'ours':>10s}{'':14s}{'Spark':>10s}{'ours':>10s}")
    for result in results:
        line = f"{result['format']:9s}{result['query']:17s}"
        for key, ratio in (("seconds", "wall_ratio"), ("cpu_s", "cpu_ratio")):
            speeds = (rows / result["median"][name][key] / 1e6 for name in ("spark", "ours"))
            line += "".join(f"{speed:10.2f}" for speed in speeds) + f"{result[ratio]:14.2f}"
        print(line)


if __name__ == "__main__":
    main()

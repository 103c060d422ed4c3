"""What a channel between two fragments costs: windows over 100-byte messages, with and without a hop.

Messages come from Parquet files, are cut off into a channel (`cut()`), and are counted per key and minute in
a fragment of their own. *fused* is the same application without the cut: one query. The peers are plain
PySpark: one query, and two queries that hand over by a directory of Parquet files, as one would chain them.

`log, bytes per message` is what addresses, clock, counts and checksums of a channel take, spread over its
messages; what it adds to a batch's latency is measured by `hop_latency`.

    python -m benchmarks.hop [--quick] [--json] [--rounds N] [--only CONTENDER]
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks import data, peers
from benchmarks.measure import OURS, Contender, Job, Scale, Timed, main
from benchmarks.results import expect_equal, milliseconds, read_output

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FUSED = "drivetrain, fused"
TWO_QUERIES = "pyspark, two queries"
FILES = 16
WARM_FILES = 2
PAYLOAD_BYTES = 84
SCHEMA = "ts timestamp, key string, payload string"
PATIENCE_S = 600.0


def messages(scale: Scale) -> int:
    return (200_000 if scale.quick else 4_000_000) * scale.times


def directory(scale: Scale) -> Path:
    """Messages of about 100 bytes in files, five milliseconds apart and in order; made once."""
    return data.made(f"hop-{messages(scale)}", lambda made: write(made, messages(scale)))


def write(made: Path, count: int) -> None:
    """Make so many messages below `made`."""
    rng = np.random.default_rng(11)
    letters = rng.integers(97, 123, size=(997, PAYLOAD_BYTES), dtype=np.uint8)
    payloads = pa.array([bytes(row).decode() for row in letters])
    for part, folder in ((FILES, "messages"), (WARM_FILES, "warm")):
        (made / folder).mkdir(parents=True)
        for number in range(part):
            ids = np.arange(number * count // FILES, (number + 1) * count // FILES, dtype=np.int64)
            table = pa.table(
                {
                    "ts": pa.array(1_700_000_000_000_000 + ids * 5_000).cast(pa.timestamp("us", "UTC")),
                    "key": pa.array(np.char.add("k", (ids % 100).astype(str))),
                    "payload": payloads.take(pa.array(ids % 997)),
                }
            )
            pq.write_table(table, made / folder / f"part-{number:02}.parquet")


def expected(made: Path) -> pa.Table:
    """Messages and characters per key and minute, by Arrow alone."""
    table = pq.read_table(made / "messages")
    minute = pc.multiply(pc.divide(milliseconds(table["ts"]), 60_000), 60_000)
    sizes = pa.table(
        {"key": table["key"], "window": minute, "size": pc.utf8_length(table["payload"]).cast(pa.int64())}
    )
    counted = sizes.group_by(["key", "window"]).aggregate([("size", "count"), ("size", "sum")])
    return counted.rename_columns(["key", "window", "n", "total"])


def check(scale: Scale, work: Path) -> None:
    check_output(directory(scale), work)


def check_output(made: Path, work: Path) -> None:
    """Compare what a contender wrote with what Arrow counts."""
    got = read_output(work / "out", [])
    windows = got["window_start"] if "window_start" in got.column_names else got["window"]
    table = pa.table(
        {"key": got["key"], "window": milliseconds(windows), "n": got["n"], "total": got["total"]}
    )
    expect_equal(table, expected(made), ["key", "window"])


# -- ours ------------------------------------------------------------------------------------------------


def application(source: Path, out: Path, *, cut: bool) -> Any:
    """The job as a Drivetrain application of one fragment, or of two."""
    from drivetrain import Application, agg, sinks, sources, windows

    app = Application("hop")
    read = app.read(sources.parquet(source)).event_time("ts", max_disorder="1 s")
    sized = read.with_columns(size="length(payload)")
    sized = sized.cut() if cut else sized
    grouped = sized.group_by("key").window(windows.tumbling("1 min"))
    grouped.aggregate(step="counts", n=agg.count(), total=agg.sum("size")).sink(sinks.parquet(out))
    return app


def run_drivetrain(scale: Scale, work: Path, *, cut: bool) -> dict[str, float]:
    from drivetrain import run

    _, start_s = peers.start_drivetrain(work)
    source = directory(scale)
    run(application(source / "warm", work / "warm-out", cut=cut), peers.config(work / "warm"))
    overhead = Overhead(work / "state", messages(scale))
    with Timed() as timed, overhead:
        run(application(source / "messages", work / "out", cut=cut), peers.config(work))
    taken = {"message_bytes": overhead.bytes_per_message} if cut else {}
    return timed.figures(start_s=start_s, **taken)


class Overhead(threading.Thread):
    """Adds up the sizes of log entries while a channel lives: they are trimmed as they are taken."""

    def __init__(self, state: Path, count: int) -> None:
        super().__init__(daemon=True)
        self._state = state
        self._count = count
        self._sizes: dict[Path, int] = {}
        self._done = threading.Event()

    @property
    def bytes_per_message(self) -> float:
        """Bytes of log per message."""
        return sum(self._sizes.values()) / self._count

    def run(self) -> None:
        while not self._done.wait(0.05):
            for path in self._state.glob("**/channels/*/log/*.json"):
                if path not in self._sizes:
                    try:
                        self._sizes[path] = path.stat().st_size
                    except FileNotFoundError:  # trimmed between the listing and the look
                        continue

    def __enter__(self) -> None:
        self.start()

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self.join()


# -- plain PySpark -------------------------------------------------------------------------------------------


def run_pyspark(scale: Scale, work: Path) -> dict[str, float]:
    spark, start_s = peers.start_pyspark(peers.TUNED)
    source = directory(scale)
    _one_query(spark, source / "warm", work / "warm-out", work / "warm")
    with Timed() as timed:
        _one_query(spark, source / "messages", work / "out", work / "checkpoint")
    return timed.figures(start_s=start_s)


def run_two_queries(scale: Scale, work: Path) -> dict[str, float]:
    spark, start_s = peers.start_pyspark(TWO_QUERIES)
    source = directory(scale)
    _two_queries(spark, source / "warm", work / "warm-out", work / "warm", _count(source / "warm"))
    with Timed() as timed:
        _two_queries(spark, source / "messages", work / "out", work / "checkpoint", messages(scale))
    return timed.figures(start_s=start_s)


def _sized(spark: SparkSession, source: Path) -> DataFrame:
    read = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 4).parquet(str(source))
    return read.selectExpr("ts", "key", "payload", "length(payload) AS size")


def _counts(sized: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

    window = F.window("ts", "1 minute").start.alias("window")
    grouped = sized.groupBy("key", window).agg(F.count("*").alias("n"), F.sum("size").alias("total"))
    return grouped.select("key", "window", "n", "total")


def _one_query(spark: SparkSession, source: Path, out: Path, checkpoint: Path) -> None:
    # Append mode never emits the last windows of an input that ends: so the whole result, as one would.
    peers.overwrite_until_done(_counts(_sized(spark, source)), out, checkpoint)


def _two_queries(spark: SparkSession, source: Path, out: Path, work: Path, count: int) -> None:
    first = (
        _sized(spark, source)
        .writeStream.option("checkpointLocation", str(work / "first"))
        .format("parquet")
        .start(str(work / "between"))
    )
    try:
        _wait_for_first_file(first, work / "between")
        between = spark.readStream.schema(f"{SCHEMA}, size int").parquet(str(work / "between"))
        taken = [0]

        def write(batch: DataFrame, _batch_id: int) -> None:
            batch.write.mode("overwrite").parquet(str(out))
            taken[0] = batch.agg({"n": "sum"}).first()[0] or 0

        second = (
            _counts(between)
            .writeStream.outputMode("complete")
            .option("checkpointLocation", str(work / "second"))
            .foreachBatch(write)
            .start()
        )
        deadline = time.monotonic() + PATIENCE_S
        while taken[0] < count and second.isActive and time.monotonic() < deadline:
            second.awaitTermination(0.02)
        second.stop()
    finally:
        first.stop()


def _wait_for_first_file(query: Any, between: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not (between / "_spark_metadata" / "0").exists() and time.monotonic() < deadline:
        if not query.isActive:
            raise RuntimeError(f"the first query failed: {query.exception()}")
        time.sleep(0.01)


def _count(folder: Path) -> int:
    return sum(pq.ParquetFile(path).metadata.num_rows for path in folder.glob("*.parquet"))


JOB = Job(
    name="hop",
    title="A channel hop: windows over 100-byte messages in two fragments",
    unit="messages/s",
    contenders=(
        Contender(OURS, lambda scale, work: run_drivetrain(scale, work, cut=True)),
        Contender(FUSED, lambda scale, work: run_drivetrain(scale, work, cut=False)),
        Contender(TWO_QUERIES, run_two_queries),
        Contender(peers.TUNED, run_pyspark),
    ),
    prepare=lambda scale: data.read_files(directory(scale)),
    units=messages,
    check=check,
    goals={TWO_QUERIES: 1.0},
    columns=(
        ("seconds", "seconds"),
        ("message_bytes", "log, bytes per message"),
        ("peak_mib", "peak memory, MiB"),
    ),
    grows=True,
)

if __name__ == "__main__":
    raise SystemExit(main(JOB, __doc__))

"""The number of windows that are open for a key: windows that slide, in all of which a message is counted."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks import data
from benchmarks.curves.batch_rows import write_files
from benchmarks.curves.curve import Curve, Figure
from benchmarks.curves.few_batches import Batches, file_batches
from benchmarks.measure import cpu_s

SLIDE_S = 10
ROWS = 500_000
"""In each batch, whatever the point: a batch costs something for each open window of each key, too."""
WARM, COUNT = 2, 2
MOST_OF_SPARKS_OWN = 50
"""With more windows of Spark's own a point takes minutes."""


def application(source: Path, out: Path, windows_open: int) -> Any:
    """Counts and sums in windows of `windows_open` × 10 seconds, one every ten seconds."""
    from drivetrain import Application, agg, sinks, sources, windows

    app = Application("open-windows")
    schema = data.EVENT_SCHEMA
    events = app.read(sources.json(source, schema=schema, event_time="ts", max_disorder="5 s"))
    sliding = windows.sliding(f"{windows_open * SLIDE_S} s", f"{SLIDE_S} s")
    counted = events.group_by("key").window(sliding).aggregate(n=agg.count(), total=agg.sum("value"))
    counted.sink(sinks.parquet(out))
    return app


def of_sparks_own(source: Path, work: Path, windows_open: int) -> float:
    """CPU ms of a batch of the same job with Spark's `window(ts, size, slide)`, in the session that runs."""
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

    spark, ended = SparkSession.active(), [0.0]

    def write(df: DataFrame, _number: int) -> None:
        df.write.mode("append").parquet(str(work / "spark-out"))
        ended.append(cpu_s())

    reader = spark.readStream.schema(data.EVENT_SCHEMA).option("maxFilesPerTrigger", 1)
    events = reader.json(str(source)).withWatermark("ts", "5 seconds")
    window = F.window("ts", f"{windows_open * SLIDE_S} seconds", f"{SLIDE_S} seconds")
    counted = events.groupBy("key", window).agg(F.count("*").alias("n"), F.sum("value").alias("total"))
    flat = counted.select("key", F.col("window.start").alias("start"), "n", "total")
    query = flat.writeStream.foreachBatch(write).option("checkpointLocation", str(work / "spark-state"))
    query.trigger(availableNow=True).start().awaitTermination()
    return (ended[WARM + COUNT] - ended[WARM]) * 1000 / COUNT


def measure(windows_open: int, work: Path) -> Mapping[str, float]:
    """Both, one after the other; the figures are for a million messages."""
    from drivetrain import run

    write_files(work / "in", ROWS, WARM + COUNT)
    batches = Batches()
    config = file_batches(work / "in", work)
    run(application(work / "in", work / "out", windows_open), config, batches)
    taken, million = batches.figures(WARM, COUNT), 1e6 / ROWS
    figures = {"cpu_s": taken["cpu_ms"] / 1000 * million, "seconds": taken["ms"] / 1000 * million}
    if windows_open <= MOST_OF_SPARKS_OWN:
        figures["spark_cpu_s"] = of_sparks_own(work / "in", work, windows_open) / 1000 * million
    return figures


CURVE = Curve(
    name="open_windows",
    title="A million JSON events, by the number of windows that each is in",
    quantity="open windows of a key",
    points=(1, 2, 5, 10, 20, 50, 100, 200, 500),
    quick_points=(1, 5, 20),
    figures=(
        Figure("cpu_s", "CPU s for a million"),
        Figure("seconds", "seconds for a million"),
        Figure("spark_cpu_s", "with Spark's own windows, CPU s for a million"),
    ),
    measure=measure,
)

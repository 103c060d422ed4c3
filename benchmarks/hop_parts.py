"""Where the CPU seconds of a channel hop go: each part alone and warm, Java and Python apart.

The messages are those of `hop`. Each part is an ordinary Spark job over all of them, done once to warm up and
then measured: what a part costs beyond the one before it is what its step costs.

    python -m benchmarks.hop_parts [--millions N]
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from pyspark.sql.types import StructType

from benchmarks import data, hop, peers
from benchmarks.measure import Scale

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def cpu_of_java_and_python() -> tuple[float, float]:
    """CPU seconds of all Java processes below this one so far, and of all others."""
    java = python = 0.0
    me = psutil.Process()
    for process in [me, *me.children(recursive=True)]:
        try:
            times, is_java = process.cpu_times(), process.name() == "java"
        except psutil.NoSuchProcess:
            continue
        spent = times.user + times.system + times.children_user + times.children_system
        java, python = (java + spent, python) if is_java else (java, python + spent)
    return java, python


def dropped(batches: Iterator[Any]) -> Iterator[Any]:
    """Nothing of any batch."""
    for _ in batches:
        pass
    yield from ()


def parts(times: int, work: Path) -> dict[str, Callable[[], Any]]:
    """The parts by name, as functions that do them."""
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

    from drivetrain.runtime.channel.store import ChannelStore
    from drivetrain.spark.channel.source import read_channel, read_partial_results
    from drivetrain.spark.channel.watermark import SHIFT_MS
    from drivetrain.spark.channel.writer import _by_python, write_segments
    from drivetrain.spark.connector.reduction import END, PartialValue, Reduction, name_of

    spark, _ = peers.start_drivetrain(work)
    source = hop.directory(Scale(quick=False, times=times))
    read = spark.read.schema(hop.SCHEMA).parquet(str(source / "messages"))
    sized = read.selectExpr("key", "payload", "length(payload) AS size", "ts", "ts AS __ts")
    store = ChannelStore(str(work / "channel"), fragment="read")
    numbers, parquet = itertools.count(), str(work / "parquet")
    minute = "unix_micros(__ts) div 60000000 AS minute"
    values = PartialValue("count"), PartialValue("sum", "size")
    by = Reduction(("key",), values, "__ts", 60_000, SHIFT_MS % 60_000, 0, "", moves_clock=False)

    def noop(df: DataFrame) -> None:
        df.write.format("noop").mode("overwrite").save()

    def segments() -> None:
        """Write one channel; later calls write another."""
        number = next(numbers)
        made = store if not number else ChannelStore(str(work / f"channel-{number}"), fragment="read")
        made.append(0, write_segments(sized, made, 0), 0)

    def counted(df: DataFrame) -> DataFrame:
        grouped = df.selectExpr("key", "size", minute).groupBy("key", "minute")
        return grouped.agg(F.expr("count(1) AS n"), F.expr("sum(size) AS total"))

    def streamed(df: DataFrame) -> None:
        query = df.writeStream.format("noop").outputMode("complete").trigger(availableNow=True)
        query.option("checkpointLocation", str(work / f"query-{next(numbers)}")).start().awaitTermination()

    def messages(*columns: str) -> DataFrame:
        fields = [field for field in sized.schema.fields if not columns or field.name in columns]
        return read_channel(spark, store.uri, StructType(fields)).where("not __punct")

    def partial_results() -> DataFrame:
        grouped = read_partial_results(spark, store.uri, sized.schema, by).groupBy("key", END)
        return grouped.agg(*(F.sum(name_of(number)) for number in range(len(values))))

    return {
        "read from Parquet, and dropped": lambda: noop(sized),
        "and counted in windows": lambda: noop(counted(sized)),
        "and handed to Python, which drops them": lambda: noop(sized.mapInArrow(dropped, sized.schema)),
        "and written to segments by Python": lambda: _by_python(sized, store.files, "p", "by-python"),
        "and written to segments": segments,
        "read and written as Parquet by Spark": lambda: sized.write.mode("overwrite").parquet(parquet),
        "segments, counted message by message": lambda: streamed(counted(messages())),
        "segments, only the columns that are used": lambda: streamed(
            counted(messages("key", "size", "__ts"))
        ),
        "segments, grouped by the reader": lambda: streamed(partial_results()),
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--millions", type=int, default=4, help="messages (4 million)")
    times = max(1, parser.parse_args().millions // 4)
    data.root().mkdir(parents=True, exist_ok=True)
    print(f"{'CPU s per million messages:':45} {'Java':>6} {'Python':>6} {'wall':>6}")
    with tempfile.TemporaryDirectory(dir=data.root()) as work:
        for name, part in parts(times, Path(work)).items():
            part()
            java_s, python_s = cpu_of_java_and_python()
            began_s = time.perf_counter()
            part()
            seconds = time.perf_counter() - began_s
            after = cpu_of_java_and_python()
            spent = [value / (4 * times) for value in (after[0] - java_s, after[1] - python_s, seconds)]
            print(f"{name:45} {spent[0]:6.2f} {spent[1]:6.2f} {spent[2]:6.2f}", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

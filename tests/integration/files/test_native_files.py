"""Text and Parquet through Spark's own reader: what it gives must be what our own reader gives."""

from __future__ import annotations

import datetime as dt
import os
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from drivetrain import Application, F, agg, col, run, sinks, sources, windows
from drivetrain.api.sources import FileSource
from drivetrain.config import Config
from drivetrain.connectors.opening import open_source
from drivetrain.errors import InputError
from drivetrain.spark.connector.source import SourceContext
from nightly_run import is_nightly

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LINES = [
    b"\xef\xbb\xbffirst after a byte order mark\nsecond\r\n\r\n\n",
    b"a lone \r stays\nno break at the end",
    b"",
    b"\n",
    "größer, 漢字, \U0001f600\r\n".encode() * 3,
]


def config(tmp_path: Path, **given: str) -> Config:
    return Config.load(None, {}, {"state.dir": str(tmp_path / "state"), **given})


def opened_as(spark: SparkSession, tmp_path: Path, source: FileSource, *, has_end_row: bool = False) -> str:
    context = SourceContext(spark, str(tmp_path / "look"), "app", "s", spark_log=str(tmp_path / "none"))
    return open_source(source, context, has_end_row=has_end_row).reader


def lines_of(spark: SparkSession, tmp_path: Path, source: FileSource, *, native: bool) -> list[str]:
    name = "native" if native else "ours"
    log = str(tmp_path / name / "checkpoint" / "sources" / "0") if native else None
    opened = open_source(
        source, SourceContext(spark, str(tmp_path / name / "state"), "app", "s", spark_log=log)
    )
    assert opened.reader == ("native" if native else "arrow")
    rows: list[str] = []
    query = (
        opened.df.writeStream.foreachBatch(lambda df, _id: rows.extend(r.value for r in df.collect()))
        .option("checkpointLocation", str(tmp_path / name / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(60)
    return rows


@pytest.mark.parametrize("returns", [True, False], ids=["returns", "no returns"])
def test_lines_are_those_of_our_own_reader(spark: SparkSession, tmp_path: Path, returns: bool) -> None:
    where = tmp_path / "in" / "day=1"  # a path that Spark would read a column from
    where.mkdir(parents=True)
    for number, content in enumerate(LINES):
        (where / f"{number}.txt").write_bytes(
            content if returns else content.replace(b"\r", b"\v\xe2\x80\xa8")
        )
    source = sources.text(tmp_path / "in")
    ours = lines_of(spark, tmp_path, source, native=False)
    assert sorted(lines_of(spark, tmp_path, source, native=True)) == sorted(ours)
    assert (tmp_path / "native" / "state" / "listing" / "no-returns").exists() is not returns
    assert len(ours) == 10


@pytest.mark.parametrize(
    "returns",
    [
        pytest.param(True, id="returns"),
        pytest.param(False, id="no returns", marks=pytest.mark.nightly("the lines with returns")),
    ],
)
def test_every_division_of_files_gives_the_same_lines(
    spark: SparkSession, tmp_path: Path, returns: bool
) -> None:
    """Spark divides files anywhere: in a character, between CR and LF, before and after a line end."""
    (tmp_path / "in").mkdir()
    drawn = random.Random(5)
    pieces = ["\n", "\n\n", "a", "ß", "漢", "\U0001f600", "word "] + ["\r\n", "\r", "\r\r\n"] * returns
    expected: list[str] = []
    for number in range(30 if is_nightly() else 8):
        text = "".join(drawn.choices(pieces, k=drawn.randrange(1, 80)))
        text += "." * text.endswith("\r")
        (tmp_path / "in" / f"{number:02}.txt").write_bytes(text.encode())
        lines = text.replace("\r\n", "\n").split("\n")
        expected += lines if lines[-1] else lines[:-1]
    for part_bytes in (1, 3, 7, 64) if is_nightly() else (1, 7):
        spark.conf.set("spark.sql.files.maxPartitionBytes", part_bytes)
        try:
            got = lines_of(spark, tmp_path / str(part_bytes), sources.text(tmp_path / "in"), native=True)
        finally:
            spark.conf.unset("spark.sql.files.maxPartitionBytes")
        assert sorted(got) == sorted(expected)


@pytest.mark.parametrize("batch_bytes", ["1 KiB", "512 MiB"])
def test_all_batches_are_taken_and_counted(tmp_path: Path, batch_bytes: str) -> None:
    (tmp_path / "in").mkdir()
    for number in range(12):
        (tmp_path / "in" / f"{number:02}.txt").write_text("".join(f"{number} {i}\n" for i in range(50)))
    app = Application("native_text")
    app.read(sources.text(tmp_path / "in")).sink(sinks.parquet(tmp_path / "out"))
    told = run(app, config(tmp_path, **{"run.max-batch-bytes": batch_bytes}))
    assert told.batches == (1 if batch_bytes == "512 MiB" else 4)
    assert told.processors[0].messages_out == 600
    rows = pq.read_table(tmp_path / "out", columns=["value"])["value"].to_pylist()
    assert sorted(rows) == sorted(f"{n} {i}" for n in range(12) for i in range(50))


def test_text_that_is_not_utf8_stops_the_application_and_names_the_line(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("fine\n")
    (tmp_path / "in" / "b.txt").write_bytes(b"fine\nfine\nn\xe4sty\nfine\n")
    app = Application("native_bad")
    app.read(sources.text(tmp_path / "in")).sink(sinks.csv(tmp_path / "out"))
    with pytest.raises(InputError) as caught:
        run(app, config(tmp_path))
    assert f"{tmp_path}/in/b.txt, line 3" in str(caught.value)
    assert "0xe4" in str(caught.value)
    assert not list((tmp_path / "out").glob("part-*"))


@pytest.mark.parametrize("damage", ["longer", "gone"])
def test_file_that_changed_after_it_was_listed_is_found_before_it_is_read(
    tmp_path: Path, damage: str
) -> None:
    (tmp_path / "in").mkdir()
    for number in range(3):
        (tmp_path / "in" / f"{number}.txt").write_text("x" * 2000 + "\n")
    last = tmp_path / "in" / "2.txt"
    seen: list[int] = []

    def take(batch: pa.Table, _id: int) -> None:
        seen.append(batch.num_rows)
        if damage == "gone":
            last.unlink(missing_ok=True)
        else:
            with open(last, "a") as file:
                file.write("more\n")

    app = Application("native_changed")
    app.read(sources.text(tmp_path / "in")).sink(sinks.batches(take))
    with pytest.raises(InputError, match="changed after the application first saw it"):
        run(app, config(tmp_path, **{"run.max-batch-bytes": "2 KiB"}))
    assert sum(seen) < 3


@pytest.mark.nightly("random applications draw Parquet")
def test_windows_over_parquet_end_with_their_input(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    start = dt.datetime(2013, 1, 1, tzinfo=dt.UTC)
    for part in range(4):
        at = [start + dt.timedelta(seconds=part * 100 + i) for i in range(100)]
        table = pa.table({"at": pa.array(at, pa.timestamp("us", "UTC")), "n": list(range(100))})
        pq.write_table(table, tmp_path / "in" / f"{part}.parquet")
    app = Application("native_windows")
    flow = app.read(sources.parquet(tmp_path / "in")).event_time("at", max_disorder="5 s")
    counts = flow.window(windows.tumbling("60 s")).aggregate(n=agg.count(), total=agg.sum(col("n")))
    counts.sink(sinks.parquet(tmp_path / "out"))
    told = run(app, config(tmp_path, **{"run.max-batch-bytes": "4 KiB"}))
    rows = pq.read_table(tmp_path / "out")
    assert sum(rows["n"].to_pylist()) == 400
    assert sum(rows["total"].to_pylist()) == 4 * sum(range(100))
    assert rows.num_rows == 7
    assert told.processors[0].messages_out == 400
    assert told.late == 0


def test_what_spark_reads_otherwise_is_left_to_our_own_reader(spark: SparkSession, tmp_path: Path) -> None:
    def parquet(name: str, column: pa.Array) -> Path:
        (tmp_path / name).mkdir()
        pq.write_table(pa.table({"v": column}), tmp_path / name / "a.parquet")
        return tmp_path / name

    def reader(source: FileSource, **options: Any) -> str:
        look = tmp_path / "look"
        if look.exists():
            look.rename(tmp_path / f"looked-{os.urandom(4).hex()}")
        return opened_as(spark, tmp_path, source, **options)

    nanoseconds = pa.array([1], pa.timestamp("ns"))
    assert reader(sources.parquet(parquet("us", pa.array([1], pa.timestamp("us", "UTC"))))) == "native"
    assert reader(sources.parquet(parquet("ns", nanoseconds), schema="v timestamp")) == "arrow"
    assert reader(sources.parquet(parquet("int", pa.array([1], pa.int32())), schema="v bigint")) == "arrow"
    (tmp_path / "gz").mkdir()
    (tmp_path / "gz" / "a.txt.gz").write_bytes(b"")
    assert reader(sources.text(tmp_path / "gz")) == "arrow"
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "a.txt").write_text("x\n")
    assert reader(sources.text(tmp_path / "plain")) == "native"
    assert reader(sources.text(tmp_path / "plain", watch=True)) == "arrow"
    assert reader(sources.text(tmp_path / "plain", on_bad_record="dead_letter")) == "arrow"
    (tmp_path / "plain" / "b.txt").write_bytes(b"x\r")  # which is not a line end
    assert reader(sources.text(tmp_path / "plain")) == "arrow"


@pytest.mark.nightly("test_a_stopped_run_goes_on_where_it_stopped")
def test_word_count_is_the_same_after_a_run_that_was_stopped(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number in range(6):
        (tmp_path / "in" / f"{number}.txt").write_text("a b\n" * (number + 1))

    class Stopper:
        batches = 0

        def on_event(self, event: Any) -> None:
            self.batches += type(event).__name__ == "FragmentProgressed"

        def stop_requested(self) -> bool:
            return self.batches >= 2

    def app() -> Application:
        made = Application("native_again")
        words = made.read(sources.text(tmp_path / "in")).select(word=F.explode(F.split(F.col("value"), " ")))
        words.group_by("word").aggregate(n=agg.count()).sink(sinks.parquet(tmp_path / "out"))
        return made

    limits = {"run.max-batch-bytes": "1 KiB"}
    for number in range(6):
        with open(tmp_path / "in" / f"{number}.txt", "a") as file:
            file.write("a b\n" * 200)
    run(app(), config(tmp_path, **limits), Stopper())
    run(app(), config(tmp_path, **limits))
    rows = pq.read_table(tmp_path / "out").to_pylist()
    assert {row["word"]: row["n"] for row in rows} == {"a": 1221, "b": 1221}

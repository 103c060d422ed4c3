"""The file sink on real Spark: both ways of writing, ownership, crashes, full disks, readers."""

from __future__ import annotations

import csv
import datetime as dt
import gzip
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from drivetrain.api import sinks
from drivetrain.connectors.files import staging
from drivetrain.connectors.in_process.memory_sink import collected
from drivetrain.connectors.opening import open_sink
from drivetrain.errors import DiskFullError, OutputError
from drivetrain.spark.connector.sink import SinkContext
from drivetrain.spark.measure import small_batches
from nightly_run import is_nightly

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMATS = ["parquet", "csv", "json", "text"]
ODD = ["plain", "", None, ' "quoted", ', "two\nlines", "back\\slash", "ünïcode", " padded "]
MOMENT = dt.datetime(2024, 1, 1, 12, 0, 0, 123456, tzinfo=dt.UTC)


def context(tmp_path: Path, app_id: str = "app-1") -> SinkContext:
    return SinkContext(app_id, "sink-1", str(tmp_path / "state"))


def odd_rows(spark: SparkSession) -> DataFrame:
    rows = [(number, text, MOMENT, float(number), [text]) for number, text in enumerate(ODD)]
    return spark.createDataFrame(rows, "n long, text string, at timestamp, x double, tags array<string>")


def numbers(spark: SparkSession, low: int, high: int) -> DataFrame:
    return spark.range(low, high, 1, 3).selectExpr("cast(id as string) as value")


def visible(path: Path) -> list[str]:
    return sorted(p.name for p in path.iterdir() if not p.name.startswith(("_", ".")))


def staged(out: Path) -> list[Path]:
    """What a sink has left where it prepares its files; the directory itself stays."""
    return [path for path in (out / "_drivetrain").rglob("staging/*/*") if path.is_file()]


def values_in(path: Path, kind: str) -> list[str]:
    """The values as a stranger's reader sees the directory."""
    if kind == "parquet":
        return sorted(ds.dataset(path).to_table()["value"].to_pylist())
    found = []
    for name in visible(path):
        if kind == "csv":
            found += pd.read_csv(path / name, dtype=str)["value"].tolist()
        elif kind == "json":
            found += [json.loads(line)["value"] for line in (path / name).read_text().splitlines()]
        else:
            found += (path / name).read_text().splitlines()
    return sorted(found)


@pytest.fixture(params=["driver", "workers"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "workers":
        monkeypatch.setattr(small_batches, "small_table", lambda _: None)
        monkeypatch.setattr(staging, "java_parts", lambda *_: None)
    return str(request.param)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_batch_becomes_one_file_and_a_replay_adds_nothing(
    spark: SparkSession, tmp_path: Path, kind: Any, way: str
) -> None:
    out = tmp_path / "out"
    writer = open_sink(sinks.files(out, kind), context(tmp_path))
    writer.validate()
    assert not out.exists(), "validating changes nothing"
    assert writer.write(numbers(spark, 0, 100), 0) == 100
    assert writer.write(numbers(spark, 0, 0), 1) == 0
    assert writer.write(numbers(spark, 100, 150), 2) == 50
    assert writer.write(numbers(spark, 7, 9), 2) == 0
    extension = {"text": "txt"}.get(kind, kind)
    assert visible(out) == [f"part-sink-1-00000000.{extension}", f"part-sink-1-00000002.{extension}"]
    assert values_in(out, kind) == sorted(str(n) for n in range(150))
    assert staged(out) == []


def test_csv_follows_rfc_4180_with_utc_timestamps(spark: SparkSession, tmp_path: Path, way: str) -> None:
    writer = open_sink(sinks.csv(tmp_path / "out"), context(tmp_path))
    assert writer.write(odd_rows(spark).coalesce(1), 0) == len(ODD)
    with open(tmp_path / "out" / "part-sink-1-00000000.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["text"] for row in rows] == [text or "" for text in ODD]
    assert {row["at"] for row in rows} == {"2024-01-01T12:00:00.123456Z"}
    assert [json.loads(row["tags"]) for row in rows] == [[text] for text in ODD]
    raw = (tmp_path / "out" / "part-sink-1-00000000.csv").read_text()
    assert '\n1,"",' in raw, "an empty string is not null"
    assert "\n2,,2024" in raw, "null is an empty field"


def test_a_csv_of_one_column_keeps_a_record_for_every_null(
    spark: SparkSession, tmp_path: Path, way: str
) -> None:
    writer = open_sink(sinks.csv(tmp_path / "out"), context(tmp_path))
    rows = spark.createDataFrame([("a",), (None,), ("b",)], "text string").coalesce(1)
    assert writer.write(rows, 0) == 3
    text = (tmp_path / "out" / "part-sink-1-00000000.csv").read_text()
    assert text == 'text\na\n""\nb\n'


def test_json_is_one_object_per_line_with_utc_timestamps(
    spark: SparkSession, tmp_path: Path, way: str
) -> None:
    writer = open_sink(sinks.json(tmp_path / "out"), context(tmp_path))
    writer.write(odd_rows(spark).coalesce(1), 0)
    text = (tmp_path / "out" / "part-sink-1-00000000.json").read_text(encoding="utf-8")
    rows = [json.loads(line) for line in text.splitlines()]
    assert [row["text"] for row in rows] == ODD
    assert {row["at"] for row in rows} == {"2024-01-01T12:00:00.123456Z"}


def test_parquet_keeps_types_and_says_utc(spark: SparkSession, tmp_path: Path, way: str) -> None:
    writer = open_sink(sinks.parquet(tmp_path / "out"), context(tmp_path))
    writer.write(odd_rows(spark).coalesce(1), 0)
    table = ds.dataset(tmp_path / "out").to_table()
    assert table.schema.field("at").type == pa.timestamp("us", tz="UTC")
    assert table["text"].to_pylist() == ODD
    assert spark.read.parquet(str(tmp_path / "out")).count() == len(ODD)


def test_lines_may_be_compressed(spark: SparkSession, tmp_path: Path, way: str) -> None:
    writer = open_sink(sinks.csv(tmp_path / "out", compression="gzip"), context(tmp_path))
    writer.write(numbers(spark, 0, 10), 0)
    text = gzip.decompress((tmp_path / "out" / "part-sink-1-00000000.csv.gz").read_bytes()).decode()
    assert text.splitlines() == ["value", *map(str, range(10))]


@pytest.mark.parametrize("kind", FORMATS)
def test_spark_finds_the_partitions_of_files(
    spark: SparkSession, tmp_path: Path, way: str, kind: Any
) -> None:
    out = tmp_path / "out"
    columns = ["country", "day"]
    packed = None if kind == "parquet" else "gzip"
    writer = open_sink(sinks.files(out, kind, partition_by=columns, compression=packed), context(tmp_path))
    text = "cast(id as string) as text"
    ids = [] if kind == "text" else ["id"]
    country = "if(id % 3 = 0, null, concat('é/', id % 3)) as country"
    for number in range(2):
        rows = spark.range(number * 30, number * 30 + 30, 1, 3)
        day = "date_add(date'2024-05-01', cast(id % 2 as int)) as day"
        assert writer.write(rows.selectExpr(country, text, day, *ids), number) == 30
    assert len(list(out.rglob("part-*"))) == 2 * 6
    found = spark.read.options(header=True).format(kind).load(str(out))
    assert found.columns[-2:] == columns
    assert dict(found.dtypes)["day"] == "date"
    read = {
        (row[0], row["country"], row["day"]) for row in found.select(found.columns[0], *columns).collect()
    }
    as_read = int if kind == "json" else str  # its columns come in the order of the alphabet
    assert read == {
        (as_read(n), f"é/{n % 3}" if n % 3 else None, dt.date(2024, 5, 1 + n % 2)) for n in range(60)
    }


def test_a_batch_that_is_too_large_for_the_driver_is_written_by_the_workers(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drivetrain.spark.measure.small_batches.LIMIT_BYTES", 50)
    writer = open_sink(sinks.parquet(tmp_path / "out"), context(tmp_path))
    assert writer.write(numbers(spark, 0, 20), 0) == 20
    assert values_in(tmp_path / "out", "parquet") == sorted(str(n) for n in range(20))


def test_a_batch_that_fails_leaves_nothing(spark: SparkSession, tmp_path: Path, way: str) -> None:
    writer = open_sink(sinks.csv(tmp_path / "out"), context(tmp_path))
    broken = spark.range(0, 1000, 1, 2).selectExpr("if(id = 900, raise_error('no'), id) as n")
    with pytest.raises(Exception, match="no"):
        writer.write(broken, 0)
    assert visible(tmp_path / "out") == []
    assert staged(tmp_path / "out") == []


@pytest.mark.parametrize("what", ["file", "file above", "strangers", "another application", "state gone"])
def test_a_target_that_is_not_ours_is_refused_with_a_remedy(
    spark: SparkSession, tmp_path: Path, what: str
) -> None:
    out = tmp_path / "out"
    if what == "file":
        out.write_text("in the way")
    elif what == "file above":
        out.write_text("in the way")
        out = out / "deeper"
    elif what == "strangers":
        out.mkdir()
        (out / "thesis.docx").write_text("precious")
    elif what == "another application":
        open_sink(sinks.csv(out), context(tmp_path, "other")).write(numbers(spark, 0, 1), 0)
    else:
        open_sink(sinks.csv(out), SinkContext("app-1", "sink-1", str(tmp_path / "lost"))).write(
            numbers(spark, 0, 1), 0
        )
    writer = open_sink(sinks.csv(out), context(tmp_path))
    with pytest.raises(OutputError) as caught:
        writer.validate()
    assert caught.value.where == str(out)
    assert caught.value.remedy
    if what == "strangers":
        assert "thesis.docx" in str(caught.value.got)
        writer.fresh()
        assert (out / "thesis.docx").exists()


@pytest.mark.skipif(not os.path.exists("/proc/sys"), reason="needs a directory nobody can write to")
def test_an_unwritable_place_is_found_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="cannot be written") as caught:
        open_sink(sinks.csv("/proc/sys/out"), context(tmp_path)).validate()
    assert caught.value.remedy


def test_fresh_removes_what_we_published_and_nothing_else(spark: SparkSession, tmp_path: Path) -> None:
    out = tmp_path / "out"
    writer = open_sink(sinks.csv(out), context(tmp_path))
    writer.write(numbers(spark, 0, 5), 0)
    (out / "README.md").write_text("mine")
    again = open_sink(sinks.csv(out), context(tmp_path))
    again.validate()
    again.fresh()
    assert [p.name for p in out.iterdir()] == ["README.md"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "none", str(disk)], check=False)
    if mounted.returncode != 0:
        pytest.skip("mounting a small disk is not allowed here")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.mark.parametrize("kind", ["text", "parquet"])
def test_a_full_disk_stops_with_nothing_visible_and_goes_on_later(
    spark: SparkSession, tmp_path: Path, small_disk: Path, way: str, kind: Any
) -> None:
    out = small_disk / "out"
    writer = open_sink(sinks.files(out, kind, compression="none"), context(tmp_path))
    writer.write(numbers(spark, 0, 5), 0)
    filler = small_disk / "filler"
    filler.write_bytes(bytes(300_000))
    with pytest.raises(DiskFullError) as caught:
        writer.write(numbers(spark, 0, 20_000), 1)
    assert caught.value.remedy
    assert len(visible(out)) == 1
    assert staged(out) == []
    filler.unlink()
    assert writer.write(numbers(spark, 0, 15_000), 1) == 15_000
    assert len(values_in(out, kind)) == 15_005


CRASHING = """
import os, signal, sys
import pyarrow as pa
from drivetrain.api import sinks
from drivetrain.connectors.files import file_sink, staging
from drivetrain.connectors.opening import open_sink
from drivetrain.runtime import whole_files
from drivetrain.spark.measure import small_batches
from drivetrain.spark.connector.sink import SinkContext

out, state, point, kind = sys.argv[1:]

class Batch:
    # What the driver's way needs of a DataFrame, so that a crash test needs no JVM.
    columns = ["value"]
    def toArrow(self):
        return pa.table({"value": [str(n) for n in range(50_000)]})

def die(*args, **kwargs):
    os.kill(os.getpid(), signal.SIGKILL)

file_sink.render = lambda df, sink: df
file_sink.header_of = lambda df, sink: b""
small_batches.small_table = Batch.toArrow
writer = open_sink(sinks.files(out, kind), SinkContext("app-1", "sink-1", state))
if point == "claim":
    real = whole_files.publish_file
    file_sink.OutputDirectory.claim = die
elif point == "writing":
    lines, written = staging.lines_of, staging.pq.ParquetWriter.write_table
    staging.lines_of = lambda batch: [die()]
    staging.pq.ParquetWriter.write_table = die
elif point == "before rename":
    file_sink.OutputDirectory.publish = die
elif point == "after rename":
    real = file_sink.OutputDirectory.publish
    def publish(*args):
        real(*args)
        die()
    file_sink.OutputDirectory.publish = publish
writer.validate()
print(writer.write(Batch(), 3))
"""


@pytest.mark.nightly("test_publishing and test_rolled_files die at every step")
@pytest.mark.parametrize(
    "kind", ["parquet", pytest.param("text", marks=pytest.mark.nightly("Parquet, by the same steps"))]
)
def test_a_run_killed_at_any_point_and_started_again_has_published_once(tmp_path: Path, kind: str) -> None:
    script = tmp_path / "crashing.py"
    script.write_text(CRASHING)
    out, state = tmp_path / "out", tmp_path / "state"

    def run(point: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(script), str(out), str(state), point, kind]
        return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)

    for point in ("claim", "writing", "before rename") if is_nightly() else ("before rename",):
        assert run(point).returncode == -signal.SIGKILL
        assert not out.exists() or visible(out) == []
    assert run("after rename").returncode == -signal.SIGKILL
    assert len(visible(out)) == 1
    again = run("none")
    assert again.stdout == "0\n", again.stderr
    assert values_in(out, kind) == sorted(str(n) for n in range(50_000))
    assert [p.name for p in (out / "_drivetrain").rglob("*") if p.is_file()] == ["owner.json"]


@pytest.mark.parametrize(
    "kind", ["parquet", pytest.param("json", marks=pytest.mark.nightly("Parquet is published the same way"))]
)
def test_a_reader_never_sees_half_a_batch(spark: SparkSession, tmp_path: Path, kind: Any) -> None:
    out = tmp_path / "out"
    writer = open_sink(sinks.files(out, kind), context(tmp_path))
    seen: list[int] = []
    failed: list[BaseException] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            try:
                seen.append(len(values_in(out, kind)) if out.exists() and visible(out) else 0)
            except Exception as error:  # noqa: BLE001 - any failure of the reader fails the test
                failed.append(error)
                return

    reader = threading.Thread(target=read)
    reader.start()
    for batch_id in range(8):
        writer.write(numbers(spark, batch_id * 1000, batch_id * 1000 + 1000), batch_id)
    done.set()
    reader.join(30)
    assert failed == []
    assert {count % 1000 for count in seen} == {0}
    assert seen == sorted(seen)
    assert len(values_in(out, kind)) == 8000


def test_text_takes_one_string_column_only(spark: SparkSession, tmp_path: Path) -> None:
    writer = open_sink(sinks.text(tmp_path / "out"), context(tmp_path))
    with pytest.raises(OutputError, match="one string"):
        writer.write(spark.range(3), 0)


def test_a_uri_is_written_like_a_path(spark: SparkSession, tmp_path: Path, way: str) -> None:
    writer = open_sink(sinks.parquet(f"file://{tmp_path}/out"), context(tmp_path))
    writer.validate()
    assert writer.write(numbers(spark, 0, 10), 0) == 10
    assert len(values_in(tmp_path / "out", "parquet")) == 10


def test_console_batches_memory_and_none(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ctx = context(tmp_path)
    assert open_sink(sinks.console(rows=2), ctx).write(numbers(spark, 0, 5), 3) == 5
    shown = capsys.readouterr().out
    assert "batch 3" in shown
    assert "3 more" in shown
    got: list[tuple[Any, int]] = []
    pandas = sinks.batches(lambda frame, batch_id: got.append((frame, batch_id)), frame="pandas")
    assert open_sink(pandas, ctx).write(numbers(spark, 0, 5), 4) == 5
    assert (list(got[0][0]["value"]), got[0][1]) == (["0", "1", "2", "3", "4"], 4)
    memory = open_sink(sinks.memory("test-sinks"), ctx)
    memory.fresh()
    assert memory.write(numbers(spark, 0, 2), 0) == 2
    assert memory.write(numbers(spark, 5, 9), 0) == 0
    assert collected("test-sinks")["value"].to_pylist() == ["0", "1"]
    assert open_sink(sinks.none(), ctx).write(numbers(spark, 0, 7), 0) == 7

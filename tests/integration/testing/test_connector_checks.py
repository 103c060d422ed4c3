"""The checks for connectors pass for those that keep their promises, and name the promise that one breaks."""

from __future__ import annotations

import importlib
import itertools
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from connector_package import guide_connector, installing
from drivetrain import sinks, sources
from drivetrain.testing import check_sink, check_source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def numbers(tmp_path: Path) -> Iterator[Any]:
    """The connector of the guide, installed."""
    code, value = guide_connector()
    packages = tmp_path / "packages"
    packages.mkdir()
    with installing(packages) as install:
        install("numbers_connector", code, value)
        yield importlib.import_module("numbers_connector")


def parquet_rows(folder: Path) -> list[tuple[Any, ...]]:
    files = sorted(folder.glob("*.parquet"))
    return [(row["key"], row["n"]) for file in files for row in pq.ParquetFile(file).read().to_pylist()]


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def test_sinks_of_drivetrain_and_of_the_guide_keep_their_promises(
    spark: SparkSession, tmp_path: Path, numbers: Any
) -> None:
    out = tmp_path / "out"
    check_sink(lambda: sinks.parquet(str(out)), lambda: parquet_rows(out), spark=spark)

    def in_table() -> list[Any]:
        with closing(sqlite3.connect(tmp_path / "out.db")) as db:
            is_there = db.execute("SELECT 1 FROM sqlite_master WHERE name = 't'").fetchone()
            return db.execute("SELECT key, n FROM t").fetchall() if is_there else []

    check_sink(lambda: sinks.sqlite(str(tmp_path / "out.db"), "t"), in_table, spark=spark)
    file = tmp_path / "lines"
    check_sink(lambda: numbers.LinesFile(path=str(file)), lambda: lines(file), spark=spark)


def test_a_sink_that_breaks_a_promise_is_named(
    spark: SparkSession, tmp_path: Path, numbers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "lines"

    def check() -> None:
        check_sink(lambda: numbers.LinesFile(path=str(file)), lambda: lines(file), spark=spark)

    monkeypatch.setattr(numbers.LinesWriter, "guarantee", "exactly once")
    with pytest.raises(AssertionError, match="adds nothing when it is written again"):
        check()
    file.unlink()
    monkeypatch.setattr(numbers.LinesWriter, "guarantee", "at least once")
    monkeypatch.setattr(numbers.LinesWriter, "validate", lambda writer: writer.path.write_text('{"n": 1}\n'))
    with pytest.raises(AssertionError, match=r"validate shows nothing"):
        check()


def test_sources_of_drivetrain_and_of_the_guide_keep_their_promises(
    spark: SparkSession, tmp_path: Path, numbers: Any
) -> None:
    (tmp_path / "in.jsonl").write_text("".join(f'{{"n": {n}}}\n' for n in range(50)))
    check_source(
        lambda: sources.json(str(tmp_path / "in.jsonl"), schema="n bigint"),
        [(n,) for n in range(50)],
        spark=spark,
    )
    check_source(lambda: numbers.Numbers(rows=120), [{"value": n} for n in range(120)], spark=spark)


def test_a_source_that_reads_other_rows_again_is_named(
    spark: SparkSession, numbers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, times = numbers.OpenedNumbers.__init__, itertools.count()

    def changing(source: Any, declared: Any, context: Any) -> None:
        opened(source, declared, context)
        source.df = source.df.withColumn("value", F.col("value") + 1000 * next(times))

    monkeypatch.setattr(numbers.OpenedNumbers, "__init__", changing)
    with pytest.raises(Exception, match="has the same rows when it runs again"):
        check_source(lambda: numbers.Numbers(rows=120), [(n,) for n in range(120)], spark=spark)

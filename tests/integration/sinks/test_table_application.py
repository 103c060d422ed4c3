"""Tables that real batches are written to: values of every type, and an application that is killed."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import polars as pl
import pytest
from killed_runs import run_killed_at
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from drivetrain.api import sinks
from drivetrain.cli.main import app
from drivetrain.connectors.opening import open_sink
from drivetrain.crash_points import CrashPoint
from drivetrain.errors import OutputError
from drivetrain.spark.connector.sink import SinkContext
from drivetrain.spark.measure import small_batches

UTC = dt.UTC
EVERY_TYPE = """
    select cast(1 as byte) as tiny, cast(2 as short) as small, 3 as whole, 4L as large,
        cast(1.5 as float) as narrow, 2.5D as wide, cast(12.340 as decimal(10, 3)) as exact,
        'naïve "quoted", \\n' as text, '' as empty, unhex('00ff5c') as bytes, true as yes,
        timestamp '2024-02-29T23:59:59.123456Z' as instant, timestamp_ntz '2024-02-29T12:00:00' as wall,
        date '1969-12-31' as day, array(1, null) as several,
        named_struct('a', 1, 'b', array(named_struct('c', 'x'))) as record, map('k', 1.5D) as pairs
    union all select null, null, null, null, null, null, null, null, null, null, null, null, null, null,
        null, null, null
"""


def opened(directory: Path, table: str = "table", **how: Any) -> Any:
    return open_sink(
        sinks.delta(directory / table, **how), SinkContext("app-1", "a", str(directory / "state" / table))
    )


def opened_iceberg(directory: Path, **how: Any) -> Any:
    lake = {"uri": f"sqlite:///{directory}/lake.db", "warehouse": f"file://{directory}/lake"}
    sink = sinks.iceberg("bank.table", catalog="lake", options=lake, **how)
    return open_sink(sink, SinkContext("app-1", "a", str(directory / "state" / "lake")))


@pytest.mark.parametrize("by", ["the driver", "tasks"])
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_values_of_every_type_arrive(
    spark: SparkSession, tmp_path: Path, kind: str, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if by == "tasks":
        monkeypatch.setattr(small_batches, "small_table", lambda _: None)
    writer = opened(tmp_path) if kind == "delta" else opened_iceberg(tmp_path)
    writer.validate()
    assert writer.write(spark.sql(EVERY_TYPE), 0) == 2
    read = {"delta": lambda: pl.read_delta(str(tmp_path / "table"))}
    found = read.get(kind, lambda: _read_iceberg(tmp_path, "table"))()
    first, second = found.sort("whole", nulls_last=True).rows()
    instant = dt.datetime(2024, 2, 29, 23, 59, 59, 123456, UTC)
    wall, day = dt.datetime(2024, 2, 29, 12), dt.date(1969, 12, 31)  # noqa: DTZ001 - a time without a zone
    wanted = [1, 2, 3, 4, 1.5, 2.5, Decimal("12.340"), 'naïve "quoted", \n', "", b"\x00\xff\\", True]
    wanted += [instant, wall, day, [1, None], {"a": 1, "b": [{"c": "x"}]}]
    assert list(first[:-1]) == wanted
    assert first[-1] in ([{"key": "k", "value": 1.5}], {"k": 1.5})
    assert all(value is None for value in second)
    by_duckdb = _delta_by_duckdb(tmp_path) if kind == "delta" else _iceberg_by_duckdb(tmp_path, "table")
    assert by_duckdb.order("whole nulls last").fetchall() == [(*wanted, {"k": 1.5}), second]


def test_a_large_batch_is_written_by_the_workers_in_partitions(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small_batches, "small_table", lambda _: None)
    writer = opened(tmp_path, partition_by=["p", "at"])
    df = spark.range(0, 20_000, numPartitions=2).selectExpr(
        "id", "if(id % 3 = 0, null, concat('p ', id % 3)) as p", "timestamp_millis(id % 2 * 1500) as at"
    )
    assert writer.write(df, 0) == 20_000
    assert writer.write(df, 0) == 0
    found = pl.read_delta(str(tmp_path / "table"))
    assert found["id"].n_unique() == 20_000
    start = dt.datetime(1970, 1, 1, tzinfo=UTC)
    wanted = [
        (i, f"p {i % 3}" if i % 3 else None, start + dt.timedelta(seconds=1.5 * (i % 2))) for i in range(9)
    ]
    assert found.select("id", "p", "at").sort("id").head(9).rows() == wanted
    lake = opened_iceberg(tmp_path, partition_by=["p", "hour(at)"])
    assert lake.write(df, 0) == 20_000
    assert _read_iceberg(tmp_path, "table").sort("id").equals(found.select("id", "p", "at").sort("id"))
    with pytest.raises(OutputError, match="no equivalent for the type of the column span"):
        writer.write(spark.sql("select 'x' as p, timestamp '2024-01-01' as at, interval '1' day as span"), 1)


def test_a_null_that_tasks_meet_where_the_table_has_none_is_an_error(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyarrow as pa

    monkeypatch.setattr(small_batches, "small_table", lambda _: None)
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    deltalake.DeltaTable.create(str(tmp_path / "table"), columns)
    with pytest.raises(OutputError, match="accepts no null in the column id"):
        opened(tmp_path).write(spark.sql("select if(id = 3, null, id) as id from range(9)"), 0)
    assert pl.read_delta(str(tmp_path / "table")).height == 0


ROWS = 2_000
APPLICATION = f"""
from pathlib import Path
from drivetrain import Application, F, agg, sinks, sources

here = Path(__file__).parent
app = Application("bank")
transfers = app.read(
    sources.generate(
        rows={ROWS}, every="1 s",
        columns={{"account": "concat('a', id % 5)", "cents": "cast(id % 7 as long)"}},
    )
)
totals = transfers.group_by("account").aggregate(step="totals", cents=agg.sum("cents"))
transfers.sink(sinks.delta(here / "ledger", partition_by="account"), name="to_ledger")
totals.sink(sinks.delta(here / "totals", mode="upsert", key="account"), name="to_totals")
lake = {{"uri": f"sqlite:///{{here}}/lake.db", "warehouse": f"file://{{here}}/lake"}}
by = ["account", "hour(ts)"]
transfers.sink(sinks.iceberg("bank.ledger", catalog="lake", options=lake, partition_by=by), name="to_lake")
last = sinks.iceberg("bank.totals", catalog="lake", options=lake, mode="upsert", key="account")
totals.sink(last, name="to_lake_totals")
"""


@pytest.mark.nightly("test_table_sinks dies at every step; other tests of this module fill tables")
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("spark")
def test_an_application_that_is_killed_after_a_commit_fills_its_tables_exactly(tmp_path: Path) -> None:
    file = tmp_path / "bank.py"
    file.write_text(APPLICATION)
    more = ["--state-dir", str(tmp_path / "state"), "--set", "run.max-batch-rows=500"]
    with run_killed_at(file, tmp_path, CrashPoint.AFTER_TRANSACTION, *more[2:], times=3):
        pass
    done = CliRunner().invoke(app, ["run", str(file), *more])
    assert done.exit_code == 0, done.output
    ledger = pl.read_delta(str(tmp_path / "ledger"))
    assert sorted(ledger["id"].to_list()) == list(range(ROWS))
    assert ledger.select((pl.col("account") == pl.format("a{}", pl.col("id") % 5)).all()).item()
    wanted = {f"a{k}": sum(n % 7 for n in range(k, ROWS, 5)) for k in range(5)}
    totals = pl.read_delta(str(tmp_path / "totals"))
    assert dict(totals.select("account", "cents").rows()) == wanted
    assert totals.height == 5
    assert sorted(_delta_by_duckdb(tmp_path, "ledger").select("id").fetchall()) == [(n,) for n in range(ROWS)]
    ledger, totals = (_read_iceberg(tmp_path, name) for name in ("ledger", "totals"))
    assert sorted(ledger["id"].to_list()) == list(range(ROWS))
    assert ledger.select((pl.col("account") == pl.format("a{}", pl.col("id") % 5)).all()).item()
    assert sorted(totals.select("account", "cents").rows()) == sorted(wanted.items())
    found = _iceberg_by_duckdb(tmp_path, "totals").select("account", "cents").fetchall()
    assert sorted(found) == sorted(wanted.items())
    _requires_rows_of_the_ledger_as_a_stream(tmp_path)
    refused = CliRunner().invoke(app, ["run", str(file), *more, "--fresh"])
    assert refused.exit_code == 2
    assert "cannot be distinguished" in refused.output


def _read_iceberg(directory: Path, name: str) -> pl.DataFrame:
    """The rows of a table, by Polars' own reader."""
    place = _iceberg(directory, name).metadata_location
    return pl.scan_iceberg(place, reader_override="native").collect()


def _iceberg_by_duckdb(directory: Path, name: str) -> duckdb.DuckDBPyRelation:
    """The rows of a table as pyiceberg hands them to DuckDB."""
    return _iceberg(directory, name).scan().to_duckdb("found").table("found")


def _iceberg(directory: Path, name: str) -> Any:
    from pyiceberg.catalog import load_catalog

    catalog = load_catalog("lake", uri=f"sqlite:///{directory}/lake.db", warehouse=f"file://{directory}/lake")
    return catalog.load_table(f"bank.{name}")


def _delta_by_duckdb(directory: Path, name: str = "table") -> duckdb.DuckDBPyRelation:
    """The rows of a table as DuckDB reads its files, which the Delta library names."""
    return duckdb.from_arrow(deltalake.DeltaTable(str(directory / name)).to_pyarrow_dataset())


READING = """
from pathlib import Path
from drivetrain import Application, agg, sinks, sources, windows

here = Path(__file__).parent
app = Application("reading")
ledger = app.read(sources.delta(here / "ledger", event_time="ts", max_disorder="1 h"))
by_account = ledger.group_by("account").window(windows.tumbling("100 s"))
sums = by_account.aggregate(step="sums", cents=agg.sum("cents"))
sums.sink(sinks.delta(here / "sums"), name="to_sums")
"""


def _requires_rows_of_the_ledger_as_a_stream(directory: Path) -> None:
    """Another application reads the table to its end; its windows have the sums of all rows."""
    file = directory / "reading.py"
    file.write_text(READING)
    more = ["--state-dir", str(directory / "reading-state")]
    done = CliRunner().invoke(app, ["run", str(file), *more])
    assert done.exit_code == 0, done.output
    found = pl.read_delta(str(directory / "sums"))
    rows = pl.read_delta(str(directory / "ledger"))
    wanted = rows.group_by("account", pl.col("ts").dt.truncate("100s")).agg(pl.col("cents").sum())
    assert sorted(found.select("account", "window_start", "cents").rows()) == sorted(wanted.rows())
    assert "DeltaRows" in CliRunner().invoke(app, ["plan", str(file)]).stdout

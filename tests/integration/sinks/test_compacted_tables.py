"""Tables that are compacted while an application writes to them, and compactions that are killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import deltalake
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import drivetrain
from drivetrain import Application, agg, sinks, sources
from drivetrain.cli.main import app as command_line
from drivetrain.config import Config
from drivetrain.core.job.run_progress import RunOutcome
from drivetrain.crash_points import VARIABLE, CrashPoint

ROWS = 1_500
BATCHES = 15


def lake_of(directory: Path) -> dict[str, str]:
    return {"uri": f"sqlite:///{directory}/lake.db", "warehouse": f"file://{directory}/lake"}


def read_iceberg(directory: Path, name: str) -> pl.DataFrame:
    """The rows of a table, by Polars' own reader."""
    from pyiceberg.catalog import load_catalog

    place = load_catalog("lake", **lake_of(directory)).load_table(name).metadata_location
    return pl.scan_iceberg(place, reader_override="native").collect()


def compact(directory: Path, name: str) -> int:
    """How many files the command has replaced."""
    where = [str(directory / name)]
    if "." in name:
        where = [name, "--catalog", "lake"]
        where += [word for pair in lake_of(directory).items() for word in ("--option", "=".join(pair))]
    done = CliRunner().invoke(command_line, ["compact", *where, "--json"])
    assert done.exit_code == 0, done.output
    return int(json.loads(done.stdout)["replaced_files"])


@pytest.mark.timeout(900)
@pytest.mark.usefixtures("spark")
def test_tables_are_exact_though_they_are_compacted_while_an_application_writes(tmp_path: Path) -> None:
    app = Application("bank")
    transfers = app.read(
        sources.generate(
            rows=ROWS,
            every="1 s",
            columns={"account": "concat('a', id % 5)", "cents": "cast(id % 7 as long)"},
        )
    )
    totals = transfers.group_by("account").aggregate(step="totals", cents=agg.sum("cents"))
    lake = lake_of(tmp_path)
    transfers.sink(sinks.delta(tmp_path / "ledger"), name="ledger")
    totals.sink(sinks.delta(tmp_path / "totals", mode="upsert", key="account"), name="totals")
    transfers.sink(sinks.iceberg("bank.ledger", catalog="lake", options=lake), name="lake_ledger")
    upserted = sinks.iceberg("bank.totals", catalog="lake", options=lake, mode="upsert", key="account")
    totals.sink(upserted, name="lake_totals")
    config = Config.load(
        None, {}, {"state.dir": str(tmp_path / "state"), "run.max-batch-rows": str(ROWS // BATCHES)}
    )
    replaced = dict.fromkeys(("ledger", "totals", "bank.ledger", "bank.totals"), 0)
    with drivetrain.start(app, config) as running:
        while running.is_running:
            time.sleep(0.2)
            for name in replaced:
                if _is_there(tmp_path, name):
                    replaced[name] += compact(tmp_path, name)
        assert running.wait().outcome is RunOutcome.FINISHED
    assert replaced["ledger"] >= 2
    assert replaced["bank.ledger"] >= 2
    wanted = {f"a{k}": sum(n % 7 for n in range(k, ROWS, 5)) for k in range(5)}
    for ledger in (pl.read_delta(str(tmp_path / "ledger")), read_iceberg(tmp_path, "bank.ledger")):
        assert sorted(ledger["id"].to_list()) == list(range(ROWS))
        assert ledger.select((pl.col("account") == pl.format("a{}", pl.col("id") % 5)).all()).item()
    for found in (pl.read_delta(str(tmp_path / "totals")), read_iceberg(tmp_path, "bank.totals")):
        assert sorted(found.select("account", "cents").rows()) == sorted(wanted.items())


def _is_there(directory: Path, name: str) -> bool:
    if "." not in name:
        return deltalake.DeltaTable.is_deltatable(str(directory / name))
    return (directory / "lake" / name.replace(".", "/") / "metadata").is_dir()


def _killed(words: list[str], **more: str) -> subprocess.Popen[bytes]:
    line = [sys.executable, "-m", "drivetrain.cli", "compact", *words]
    return subprocess.Popen(line, stderr=subprocess.DEVNULL, env={**os.environ, **more})


def test_a_delta_table_whose_compaction_is_killed_reads_the_same(tmp_path: Path) -> None:
    place, numbers = str(tmp_path / "table"), np.random.default_rng(1)
    for part in range(8):
        columns = {"part": np.full(400_000, part), "number": numbers.integers(0, 2**62, 400_000)}
        deltalake.write_deltalake(place, pa.table(columns), mode="append")
    before = pl.read_delta(place).sort("part", "number")
    names = set(os.listdir(place))
    process = _killed([place])
    try:
        until_s = time.monotonic() + 120
        while set(os.listdir(place)) == names and process.poll() is None and time.monotonic() < until_s:
            time.sleep(0.001)
    finally:
        process.send_signal(signal.SIGKILL)
    assert process.wait(60) == -signal.SIGKILL
    assert set(os.listdir(place)) > names
    assert deltalake.DeltaTable(place).version() == 7
    assert pl.read_delta(place).sort("part", "number").equals(before)
    assert drivetrain.compact(sinks.delta(place)).written_files == 1
    assert pl.read_delta(place).sort("part", "number").equals(before)


@pytest.mark.parametrize("point", [CrashPoint.IN_TRANSACTION, CrashPoint.AFTER_TRANSACTION])
def test_an_iceberg_table_whose_compaction_is_killed_reads_the_same(
    tmp_path: Path, point: CrashPoint
) -> None:
    from pyiceberg.catalog import load_catalog

    catalog = load_catalog("lake", **lake_of(tmp_path))
    catalog.create_namespace("bank")
    table = catalog.create_table("bank.table", pa.schema([("id", pa.int64())]))
    for number in range(4):
        table.append(pa.table({"id": [number]}))
    words = ["bank.table", "--catalog", "lake"]
    words += [word for pair in lake_of(tmp_path).items() for word in ("--option", "=".join(pair))]
    assert _killed(words, **{VARIABLE: f"{point}:1"}).wait(120) == -signal.SIGKILL
    assert read_iceberg(tmp_path, "bank.table")["id"].sort().to_list() == [0, 1, 2, 3]
    files = len(list(catalog.load_table("bank.table").scan().plan_files()))
    assert files == (1 if point is CrashPoint.AFTER_TRANSACTION else 4)
    assert (
        drivetrain.compact(sinks.iceberg("bank.table", catalog="lake", options=lake_of(tmp_path))).files
        == files
    )
    assert read_iceberg(tmp_path, "bank.table")["id"].sort().to_list() == [0, 1, 2, 3]

"""Compactions that are killed leave tables that read the same."""

from __future__ import annotations

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

import drivetrain
from drivetrain import sinks
from drivetrain.crash_points import VARIABLE, CrashPoint


def lake_of(directory: Path) -> dict[str, str]:
    return {"uri": f"sqlite:///{directory}/lake.db", "warehouse": f"file://{directory}/lake"}


def read_iceberg(directory: Path, name: str) -> pl.DataFrame:
    """The rows of a table, by Polars' own reader."""
    from pyiceberg.catalog import load_catalog

    place = load_catalog("lake", **lake_of(directory)).load_table(name).metadata_location
    return pl.scan_iceberg(place, reader_override="native").collect()


def _killed(words: list[str], **more: str) -> subprocess.Popen[bytes]:
    line = [sys.executable, "-m", "drivetrain.cli", "compact", *words]
    return subprocess.Popen(line, stderr=subprocess.DEVNULL, env={**os.environ, **more})


@pytest.mark.nightly("an Iceberg table, below; test_compaction_beside_an_application")
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


@pytest.mark.parametrize(
    "point",
    [
        CrashPoint.IN_TRANSACTION,
        pytest.param(CrashPoint.AFTER_TRANSACTION, marks=pytest.mark.nightly("the point before the commit")),
    ],
)
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

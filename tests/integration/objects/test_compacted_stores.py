"""Tables in a real object store that are compacted beside a sink, by processes of which some are killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from stored_table import StoredTable

import drivetrain
from drivetrain.crash_points import VARIABLE, CrashPoint
from drivetrain.spark.measure import small_batches
from object_store import S3Server

sys.path.insert(0, str(Path(__file__).parents[2] / "unit" / "spark" / "sinks"))
from arrow_frame import ArrowFrame, rows

LEAST_BATCHES, MOST_BATCHES = 12, 400
PAUSE_S = {"delta": 0.0, "iceberg": 1.0}
"""Between two batches: a sink that commits all the time is before any compaction of Iceberg's library."""


@pytest.fixture(params=["delta", "iceberg"])
def table(
    request: pytest.FixtureRequest, s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> StoredTable:
    monkeypatch.setattr(small_batches, "small_table", ArrowFrame.toArrow)
    return StoredTable(request.param, s3, f"c{abs(hash(request.node.name)):x}"[:40], tmp_path)


class Writer:
    """A sink that writes a row with each batch, in a thread, until it is told to stop."""

    def __init__(self, table: StoredTable) -> None:
        self.batches = 0
        self.errors: list[Exception] = []
        self._table = table
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def stop(self) -> None:
        self._ends.set()
        self._thread.join(120)
        assert self.errors == []

    def wait_for(self, batches: int) -> None:
        until_s = time.monotonic() + 120
        while self.batches < batches and not self.errors:
            assert time.monotonic() < until_s
            time.sleep(0.01)

    def _write(self) -> None:
        try:
            sink = self._table.open(timeout="120 s")
            while self.batches < LEAST_BATCHES or (self.batches < MOST_BATCHES and not self._ends.is_set()):
                assert sink.write(rows(self.batches), self.batches) == 1
                self.batches += 1
                self._ends.wait(PAUSE_S[self._table.kind])
        except Exception as error:  # noqa: BLE001 - the test looks at it
            self.errors.append(error)


def compaction(table: StoredTable, **more: str) -> subprocess.Popen[bytes]:
    line = [sys.executable, "-m", "drivetrain.cli", "compact", *table.command()]
    return subprocess.Popen(line, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=os.environ | more)


def compacted(table: StoredTable) -> Any:
    return drivetrain.compact(table.declared(timeout="120 s"), config=table.config())


@pytest.mark.nightly(
    "the unit tests of compaction and of repeated requests; other tests of this module use a store"
)
def test_a_table_is_exact_though_it_is_compacted_while_a_sink_writes(table: StoredTable) -> None:
    writer, replaced = Writer(table), []
    try:
        for batches in (4, 8, LEAST_BATCHES):
            writer.wait_for(batches)
            replaced.append(compacted(table).replaced_files)
    finally:
        writer.stop()
    assert replaced[0] >= 4
    assert min(replaced[1:]) >= 2
    assert table.ids() == list(range(writer.batches))
    compacted(table)
    assert compacted(table).files == 1
    assert table.ids() == list(range(writer.batches))


@pytest.mark.parametrize(
    "point",
    [
        CrashPoint.AFTER_TRANSACTION,
        pytest.param(CrashPoint.IN_TRANSACTION, marks=pytest.mark.nightly("the tests of a local table")),
    ],
)
@pytest.mark.nightly("a compaction that is killed, on a local disk")
def test_a_compaction_that_dies_at_its_commit_changes_no_row(table: StoredTable, point: CrashPoint) -> None:
    if table.kind == "delta" and point is CrashPoint.IN_TRANSACTION:
        pytest.skip("the library does both in one call")
    writer = Writer(table)
    try:
        writer.wait_for(6)
        assert compaction(table, **{VARIABLE: f"{point}:1"}).wait(240) == -signal.SIGKILL
    finally:
        writer.stop()
    assert table.ids() == list(range(writer.batches))
    assert compacted(table).replaced_files >= 2
    assert table.ids() == list(range(writer.batches))


@pytest.mark.nightly("each compaction is a process")
@pytest.mark.parametrize("seed", [1, 2])
def test_compactions_that_are_killed_at_any_time_change_no_row(table: StoredTable, seed: int) -> None:
    chance, writer, killed = random.Random(seed), Writer(table), 0
    try:
        writer.wait_for(4)
        began_s = time.monotonic()
        assert compaction(table).wait(240) == 0
        whole_s = time.monotonic() - began_s
        for _ in range(6):
            process = compaction(table)
            try:
                process.wait(whole_s * chance.uniform(0.5, 1.1))
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                killed += process.wait(60) == -signal.SIGKILL
    finally:
        writer.stop()
    print(f"seed {seed}: {killed} killed, {writer.batches} batches")
    assert killed
    assert table.ids() == list(range(writer.batches))
    compacted(table)
    assert compacted(table).files == 1
    assert table.ids() == list(range(writer.batches))

"""Transfers between accounts, killed again and again: no reader ever sees money made or lost.

In the nightly run (`DRIVETRAIN_SEEDS`) it is killed 20 times; `DRIVETRAIN_SEED=n` draws other moments.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from money import WRONG, Query, Reader, Run, of_mariadb, of_postgresql, of_sqlite, run_here

from drivetrain.core.job.run_progress import RunOutcome
from nightly_run import is_nightly

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mariadb_server import MariadbServer
    from postgres_server import PostgresServer

NIGHTLY = is_nightly()
SEED = int(os.environ.get("DRIVETRAIN_SEED", "1"))
KILLS = 20 if NIGHTLY else 1
TRANSFERS = 16_000 if NIGHTLY else 600
PATIENCE_S = 240


def killed_and_finished(directory: Path, database: str, query: Query) -> None:
    """Run it, kill it `KILLS` times at random moments, let it finish; all reads must have been right."""
    draw = random.Random(SEED)
    reader = Reader(query)
    reader.start()
    try:
        for kills in range(1, KILLS + 1):
            goal = reader.ledger + draw.randint(1, max(1, TRANSFERS // (2 * KILLS)))
            run = Run(directory, database, TRANSFERS)
            deadline = time.monotonic() + PATIENCE_S
            while reader.ledger < goal and run.process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.01)
            is_early = reader.ledger < goal
            time.sleep(draw.random())  # not waiting for anything: a random moment to die at
            run.kill()
            assert not is_early, f"before {kills} kills, seed {SEED}\n{run.output}"
            assert not reader.wrong, f"after {kills} kills, seed {SEED}: {reader.wrong[:3]}"
        outcome = run_here(directory, database, TRANSFERS)
        assert outcome in (RunOutcome.FINISHED, RunOutcome.ALREADY_FINISHED)
    finally:
        reader.stop()
    assert not reader.wrong, f"seed {SEED}: {reader.wrong[:3]}"
    assert reader.reads > 10
    assert query("select count(*), count(distinct id), max(id) from ledger") == [
        (TRANSFERS, TRANSFERS, TRANSFERS - 1)
    ]
    assert query(WRONG) == []


@pytest.mark.nightly("the same as with PostgreSQL")
def test_a_reader_of_sqlite_sees_ledger_and_balances_agree_whatever_is_killed(
    tmp_path: Path, spark: SparkSession
) -> None:
    path = tmp_path / "bank.db"
    killed_and_finished(tmp_path, str(path), of_sqlite(path))


@pytest.mark.nightly("the same as with PostgreSQL")
def test_a_reader_of_mariadb_sees_ledger_and_balances_agree_whatever_is_killed(
    tmp_path: Path, mariadb: MariadbServer, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BANK_PASSWORD", mariadb.password)
    mariadb.run("create database bank")
    url = mariadb.url("bank", "BANK_PASSWORD", scheme="mariadb")
    killed_and_finished(tmp_path, url, of_mariadb(mariadb, "bank"))


@pytest.mark.nightly("test_publishing and test_restore, with fewer deaths")
def test_a_reader_of_postgresql_sees_ledger_and_balances_agree_whatever_is_killed(
    tmp_path: Path, postgres: PostgresServer, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BANK_PASSWORD", postgres.password)
    postgres.create_database("bank")
    query = of_postgresql(postgres.dsn("bank"))
    url = postgres.url("bank", "BANK_PASSWORD")
    killed_and_finished(tmp_path, url, query)

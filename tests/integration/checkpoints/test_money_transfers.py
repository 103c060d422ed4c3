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
from money import WRONG, Query, Reader, Run, of_postgresql, of_sqlite

if TYPE_CHECKING:
    from postgres_server import PostgresServer

NIGHTLY = "DRIVETRAIN_SEEDS" in os.environ
SEED = int(os.environ.get("DRIVETRAIN_SEED", "1"))
KILLS = 20 if NIGHTLY else 1
TRANSFERS = 12_000 if NIGHTLY else 3_000
PATIENCE_S = 240


def killed_and_finished(directory: Path, database: str, query: Query, **environment: str) -> None:
    """Run it, kill it `KILLS` times at random moments, let it finish; all reads must have been right."""
    draw = random.Random(SEED)
    reader = Reader(query)
    reader.start()
    kills = 0
    try:
        while True:
            run = Run(directory, database, TRANSFERS, **environment)
            before, deadline = reader.ledger, time.monotonic() + PATIENCE_S
            goal = before + draw.randint(1, max(1, TRANSFERS // (2 * KILLS)))
            while run.process.poll() is None and time.monotonic() < deadline:
                if kills < KILLS and reader.ledger >= goal:
                    time.sleep(draw.random())  # not waiting for anything: a random moment to die at
                    run.kill()
                    kills += 1
                    break
                time.sleep(0.01)
            assert not reader.wrong, f"after {kills} kills, seed {SEED}: {reader.wrong[:3]}\n{run.output}"
            if run.process.poll() == 0:
                break
            assert run.process.poll() == -9, f"seed {SEED}\n{run.output}"
    finally:
        run.kill() if run.process.poll() is None else None
        reader.stop()
    assert kills > 0
    assert reader.reads > 10
    assert query("select count(*), count(distinct id), max(id) from ledger") == [
        (TRANSFERS, TRANSFERS, TRANSFERS - 1)
    ]
    assert query(WRONG) == []


@pytest.mark.skipif(not NIGHTLY, reason="the same with another database: for the nightly run")
def test_a_reader_of_sqlite_sees_ledger_and_balances_agree_whatever_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "bank.db"
    killed_and_finished(tmp_path, str(path), of_sqlite(path))


def test_a_reader_of_postgresql_sees_ledger_and_balances_agree_whatever_is_killed(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    postgres.create_database("bank")
    query = of_postgresql(postgres.dsn("bank"))
    url = postgres.url("bank", "BANK_PASSWORD")
    killed_and_finished(tmp_path, url, query, BANK_PASSWORD=postgres.password)

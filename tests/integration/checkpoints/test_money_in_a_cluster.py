"""Transfers in a cluster, whose executor, application master, leader and all at once are killed.

No reader of the PostgreSQL database ever sees money made or lost. For the nightly run (`DRIVETRAIN_SEEDS`);
`DRIVETRAIN_SEED=n` draws other moments and victims.
"""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from money import TRANSFERS, WRONG, Reader, of_postgresql

from drivetrain.cluster.messages.applications import ApplicationState
from drivetrain.errors import DrivetrainError
from whole_cluster import APP_MASTER, EXECUTOR, WholeCluster, wait_for, whole_cluster

if TYPE_CHECKING:
    from postgres_server import PostgresServer

SEED = int(os.environ.get("DRIVETRAIN_SEED", "1"))
KILLS = 20
COUNT = 40_000
WAYS = ("executor", "application master", "leader", "everything")


def kill(cluster: WholeCluster, way: str) -> None:
    """SIGKILL to one of them, or to all: what a box was is started again."""
    leader = cluster.leader() if way in ("leader", "everything") else None
    pids: list[int] = []
    if way in ("executor", "everything"):
        pids += cluster.processes(EXECUTOR)
    if way in ("application master", "everything"):
        pids += cluster.processes(APP_MASTER)
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    if leader is not None:
        cluster.kill(leader)
        cluster.restart(leader)


@pytest.mark.timeout(7200)
@pytest.mark.nightly("a whole cluster, killed again and again")
def test_no_reader_sees_money_made_or_lost_whatever_is_killed_in_a_cluster(
    tmp_path: Path, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BANK_PASSWORD", postgres.password)
    monkeypatch.setenv("DRIVETRAIN_MASTER_APP_MASTER_RESTARTS", "1000")
    postgres.create_database("cluster_bank")
    query = of_postgresql(postgres.dsn("cluster_bank"))
    draw = random.Random(SEED)
    reader = Reader(query)
    reader.start()
    settings = {
        "database": postgres.url("cluster_bank", "BANK_PASSWORD"),
        "transfers": str(COUNT),
        "per-second": "250",
        "checkpoint.interval": "300 ms",
        "run.max-batch-rows": "100",  # however slow the machine is, it goes on in small steps
        "app.executors": "2",
        "restart.strategy": "fixed-delay",
        "restart.delay": "100 ms",
        "restart.attempts": "1000",
        "restart.job-attempts": "1000",
    }
    given = [text for name, value in settings.items() for text in ("--set", f"{name}={value}")]
    with whole_cluster(tmp_path, masters=3) as cluster:

        def came_to(goal: int) -> bool:
            if reader.ledger >= goal:
                return True
            with suppress(DrivetrainError):  # no master answers while they elect one
                view, _ = cluster.status("transfers")
                assert not view.state.is_over, view.why
            return False

        submitted = cluster.submit(str(TRANSFERS), "--detached", *given)
        assert submitted.returncode == 0, submitted.stderr
        for number in range(KILLS):
            goal = reader.ledger + draw.randint(1, COUNT // (2 * KILLS))
            wait_for(lambda goal=goal: came_to(goal), "transfers to go on", 300)
            time.sleep(draw.random())  # not waiting for anything: a random moment to die at
            way = draw.choice(WAYS)
            print(f"{reader.ledger} transfers, {reader.reads} reads; kill {number + 1}: {way}")
            kill(cluster, way)
            assert not reader.wrong, f"after {number + 1} kills, seed {SEED}: {reader.wrong[:3]}"
        assert cluster.client.wait("transfers", "10 min").state is ApplicationState.SUCCEEDED
    reader.stop()
    assert not reader.wrong, f"seed {SEED}: {reader.wrong[:3]}"
    assert query("select count(*), count(distinct id), max(id) from ledger") == [(COUNT, COUNT, COUNT - 1)]
    assert query(WRONG) == []

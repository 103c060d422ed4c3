"""An application with two tables of one database, by the commands of its user: to its end, again, anew."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from drivetrain.cli.main import app

ROWS = 2_000
APPLICATION = f"""
import os
from pathlib import Path
from drivetrain import Application, agg, sinks, sources, windows

database = Path(__file__).parent / "bank.db"
app = Application("bank")
transfers = app.read(
    sources.generate(
        rows={ROWS}, every="1 s",
        columns={{"account": "concat('a', id % 5)", "cents": "cast(id % 7 as long)"}},
    )
)
by_account = transfers.group_by("account").window(windows.tumbling("50 s"))
sums = by_account.aggregate(step="sums", cents=agg.sum("cents"))
transfers.sink(sinks.sqlite(database, "ledger", on_fresh=os.environ.get("ON_FRESH")), name="to_ledger")
sums.sink(sinks.sqlite(database, "sums", mode="upsert", key=["account", "window_start"]), name="to_sums")
"""


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("spark")
def test_two_tables_hold_the_results_once_however_often_it_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bank.py").write_text(APPLICATION)

    def drivetrain(verb: str, *more: str) -> Result:
        state = ["--state-dir", str(tmp_path / "state")] if verb == "run" else []
        return CliRunner().invoke(app, [verb, str(tmp_path / "bank.py"), *more, *state])

    def both() -> list[tuple[int, int]]:
        with closing(sqlite3.connect(tmp_path / "bank.db")) as connection:
            counted = "select (select count(*) from ledger), (select sum(cents) from ledger), "
            return connection.execute(counted + "(select sum(cents) from sums)").fetchall()

    total = sum(n % 7 for n in range(ROWS))
    plan = drivetrain("plan").stdout
    assert "ledger in" in plan
    assert "published with each checkpoint" in " ".join(plan.split())
    for _ in range(2):
        done = drivetrain("run")
        assert done.exit_code == 0, done.output
        assert both() == [(ROWS, total, total)]
    refused = drivetrain("run", "--fresh")
    assert refused.exit_code == 2
    assert f"{ROWS} rows were published" in refused.output
    monkeypatch.setenv("ON_FRESH", "empty")
    anew = drivetrain("run", "--fresh")
    assert anew.exit_code == 0, anew.output
    assert both() == [(ROWS, total, total)]

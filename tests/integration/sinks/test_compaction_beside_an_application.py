"""Tables that are compacted while an application writes to them are exact."""

from __future__ import annotations

import json
import time
from pathlib import Path

import deltalake
import polars as pl
import pytest
from typer.testing import CliRunner

import drivetrain
from drivetrain import Application, agg, sinks, sources
from drivetrain.cli.main import app as command_line
from drivetrain.config import Config
from drivetrain.core.job.run_progress import RunOutcome

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


@pytest.mark.nightly("test_two_applications_and_a_compaction_on_one_table, with writers that need no Spark")
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
    transfers.sink(sinks.delta(tmp_path / "ledger"), name="to_ledger")
    totals.sink(sinks.delta(tmp_path / "totals", mode="upsert", key="account"), name="to_totals")
    transfers.sink(sinks.iceberg("bank.ledger", catalog="lake", options=lake), name="to_lake_ledger")
    upserted = sinks.iceberg("bank.totals", catalog="lake", options=lake, mode="upsert", key="account")
    totals.sink(upserted, name="to_lake_totals")
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
        return bool(deltalake.DeltaTable.is_deltatable(str(directory / name)))
    # The second description of a table is written when the catalog has the first.
    metadata = directory / "lake" / name.replace(".", "/") / "metadata"
    return len(list(metadata.glob("*.metadata.json"))) > 1

"""`drivetrain compact`: which table it means, and what it prints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from drivetrain.cli.main import app
from drivetrain.cli.running.compact import lines_of
from drivetrain.connectors.tables.compaction import Compaction


def compacted(*words: str, code: int = 0) -> Any:
    result = CliRunner().invoke(app, ["compact", *words])
    assert result.exit_code == code, result.output
    return result


def delta_table(place: Path) -> str:
    for number in range(3):
        deltalake.write_deltalake(str(place), pa.table({"id": [number]}), mode="append")
    return str(place)


def test_a_delta_table_is_planned_then_compacted(tmp_path: Path) -> None:
    place = delta_table(tmp_path / "table")
    plan = json.loads(compacted(place, "--dry-run", "--json").stdout)
    assert {name: plan[name] for name in ("table", "files", "replaced_files", "written_files")} == {
        "table": place,
        "files": 3,
        "replaced_files": 3,
        "written_files": 1,
    }
    assert plan["is_planned"] is True
    assert "3 files" in compacted(place, "--dry-run").stdout
    assert deltalake.DeltaTable(place).version() == 2
    assert ", became 1 file, " in compacted(place, "--target-size", "1 MiB").stdout
    assert deltalake.DeltaTable(place).version() == 3
    assert "nothing to join in 1 file" in compacted(place).stdout


@pytest.mark.parametrize(
    "line",
    [
        ("compact", "table"),
        ("scale", "shop", "hourly", "--partitions", "3", "--state-dir", "here"),
        ("wait", "shop"),
    ],
    ids=lambda line: line[0],
)
def test_a_duration_that_cannot_be_read_is_an_error_of_its_option(line: tuple[str, ...]) -> None:
    result = CliRunner().invoke(app, [*line, "--timeout", "soon"])
    assert result.exit_code == 2
    assert result.output.startswith("error: cannot read --timeout\n  expected: a duration")


def test_an_iceberg_table_is_found_by_its_catalog(tmp_path: Path) -> None:
    from pyiceberg.catalog import load_catalog

    lake = {"uri": f"sqlite:///{tmp_path}/lake.db", "warehouse": f"file://{tmp_path}/lake"}
    catalog = load_catalog("lake", **lake)
    catalog.create_namespace("shop")
    table = catalog.create_table("shop.orders", pa.schema([("id", pa.int64())]))
    for number in range(3):
        table.append(pa.table({"id": [number]}))
    words = [word for pair in lake.items() for word in ("--option", "=".join(pair))]
    done = json.loads(compacted("shop.orders", "--catalog", "lake", *words, "--json").stdout)
    assert (done["table"], done["replaced_files"], done["written_files"]) == ("lake: shop.orders", 3, 1)
    assert "no such table" in compacted("shop.other", "--catalog", "lake", *words, code=2).output


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["nowhere"], "there is no Delta table"),
        (["nowhere", "--option", "uri=x"], "name the catalog with --catalog"),
        (["a.b", "--catalog", "lake", "--option", "uri"], "--option needs a name and a value"),
        (["a.b", "--catalog", "lake", "--option", "s3.secret-access-key=hidden"], "has a secret in it"),
        (["a", "--catalog", "lake"], "not a table of a catalog"),
        (["ftp://a"], "not a place for a Delta table"),
        (["nowhere", "--target-size", "big"], "not a size for files"),
    ],
    ids=["missing", "no catalog", "no value", "secret", "no namespace", "scheme", "size"],
)
def test_what_cannot_be_compacted_is_an_error_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], wanted: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert wanted in compacted(*words, code=2).output


def test_files_that_others_have_replaced_are_told() -> None:
    done = Compaction("t", 9, 900, 4, 400, 2, 390, overtaken_files=3)
    assert lines_of(done) == [
        "t: 4 files, 400 B, became 2 files, 390 B; the table had 9 files, 900 B",
        "  3 files were replaced by other writers in the meantime; run the command again for others",
    ]

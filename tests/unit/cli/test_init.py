"""A new project has an application that can be planned; nothing that is there is touched."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from drivetrain.cli.main import app as command_line
from drivetrain.cli.projects.init import make_project
from drivetrain.code.application_file import load_application
from drivetrain.config import Config
from drivetrain.core.plan.planner import plan
from drivetrain.errors import OutputError, UserError


def test_a_project_is_made_and_its_application_can_be_planned(tmp_path: Path) -> None:
    result = CliRunner().invoke(command_line, ["init", "shop", "--into", str(tmp_path), "--json"])
    assert result.exit_code == 0, result.output
    made = json.loads(result.output)
    assert {"shop.py", "test_shop.py", "conftest.py", "drivetrain.toml", ".github/workflows/test.yml"} <= set(
        made["files"]
    )
    folder = Path(made["directory"])
    application = load_application(str(folder / "shop.py"), {"output": "elsewhere"})
    assert application.name == "shop"
    assert plan(application.graph()).fragments
    Config.load(folder / "drivetrain.toml")
    assert "NAME" not in "".join(f.read_text() for f in folder.rglob("*") if f.is_file())
    assert tomllib.loads((folder / "drivetrain.toml").read_text())["state"] == {"dir": ".drivetrain"}
    for line in (folder / "orders" / "orders.jsonl").read_text().splitlines():
        assert set(json.loads(line)) == {"at", "item", "amount"}
    assert [entry.name for entry in tmp_path.iterdir()] == ["shop"]


@pytest.mark.parametrize("name", ["Shop", "my-shop", "../shop", "1shop", "json", ""])
def test_a_name_must_become_a_module(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match="not a name for a project"):
        make_project(name, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_is_there_stays(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    with pytest.raises(OutputError, match="of that name exists already"):
        make_project("shop", tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot be created"):
        make_project("shop", tmp_path / "file")

"""An engine that only reports events, a file with an application, and a function that runs the command
line."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from fake_engine import FakeEngine
from typer.testing import CliRunner, Result

from drivetrain.cli.main import app
from drivetrain.cli.running import run

APPLICATION = """
from drivetrain.api import Application, sinks, sources

app = Application("count")
where = app.setting("input", default="/some/text")
app.read(sources.text(where), name="lines").sink(sinks.none(), name="out")
"""


@pytest.fixture(autouse=True)
def paths_of_this_test_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading an application puts its folder on the paths of this process and of those it starts."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    """The engine that `drivetrain run` gets in this test."""
    fake = FakeEngine()
    monkeypatch.setattr(run, "spark_engine", lambda _: fake)
    return fake


@pytest.fixture
def application_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with one application, in an otherwise empty current directory."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "count.py"
    file.write_text(APPLICATION)
    return file


@pytest.fixture
def command() -> Callable[..., Result]:
    """Runs a command line with environment variables and input."""

    def invoke(*arguments: str, env: Mapping[str, str] | None = None, input: str | None = None) -> Result:
        return CliRunner().invoke(app, arguments, env={"COLUMNS": "160", **(env or {})}, input=input)

    return invoke

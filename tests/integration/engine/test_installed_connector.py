"""The connector that the guide shows, installed, reads and writes in a run, and its state goes on."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

from harness import Harness

from connector_package import guide_connector, installing
from drivetrain import Application


def test_the_guides_connector_reads_and_writes(drive: Harness, tmp_path: Path) -> None:
    code, value = guide_connector()
    packages = tmp_path / "packages"
    packages.mkdir()
    out = drive.directory / "numbers.jsonl"
    with installing(packages) as install:
        install("numbers_connector", code, value)
        numbers = importlib.import_module("numbers_connector")
        app = Application("numbers")
        app.read(numbers.Numbers(rows=120), name="in").sink(numbers.LinesFile(path=str(out)), name="out")
        result = drive.run(app)
    assert sorted(json.loads(line)["value"] for line in out.read_text().splitlines()) == list(range(120))
    (output,) = result.outputs
    assert (output.messages, output.guarantee) == (120, "at least once")

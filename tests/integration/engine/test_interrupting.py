"""Ctrl-C at a terminal: every process of the group gets it, and the run ends at a batch boundary."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq

ENDLESS = """
from drivetrain import Application, sinks, sources

def twice(id: int) -> int:
    return 2 * id

app = Application("endless")
output = app.setting("output")
app.read(sources.generate(rate_per_s=2000)).select(id="id", twice=twice).sink(sinks.parquet(output))
"""


def start(directory: Path) -> subprocess.Popen[str]:
    app = directory / "endless.py"
    app.write_text(ENDLESS)
    line = [sys.executable, "-m", "drivetrain.cli", "run", str(app), "--json"]
    for given in (f"output={directory / 'out'}", "spark.driver-memory=512 MiB", "spark.master=local[2]"):
        line += ["--set", given]
    return subprocess.Popen(
        [*line, "--state-dir", str(directory / "state")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def interrupted(process: subprocess.Popen[str], out: Path, more_than: int) -> tuple[str, str]:
    """Press Ctrl-C when there are new files; what the command says, and what on standard error."""
    deadline = time.monotonic() + 120
    while len(list(out.glob("part-*"))) <= more_than and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    return process.communicate(timeout=100)


def test_ctrl_c_drains_and_the_same_command_goes_on(tmp_path: Path) -> None:
    out = tmp_path / "out"
    for _ in range(2):
        process = start(tmp_path)
        said, errors = interrupted(process, out, len(list(out.glob("part-*"))) + 3)
        assert process.returncode == 128 + signal.SIGINT, errors
        assert "Traceback" not in errors
        assert "Py4J" not in errors
        assert json.loads(said)["outcome"] == "stopped"
    rows = pq.read_table(out).to_pylist()
    assert sorted(row["id"] for row in rows) == list(range(len(rows)))
    assert all(row["twice"] == 2 * row["id"] for row in rows)

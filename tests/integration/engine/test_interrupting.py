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
import pytest
from harness import Harness

from drivetrain.code.application_file import load_application
from drivetrain.core.job.run_progress import RunOutcome

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


class UntilMore:
    """Stops a run when there are new files."""

    def __init__(self, out: Path) -> None:
        self._out = out
        self._before = set(out.glob("part-*"))
        self._patience_s = time.monotonic() + 120

    def on_event(self, event: object) -> None: ...

    def stop_requested(self) -> bool:
        return len(set(self._out.glob("part-*")) - self._before) > 2 or time.monotonic() > self._patience_s


@pytest.mark.nightly("test_run_command interrupts the command; many others stop a run and continue it")
def test_ctrl_c_drains_and_the_same_application_goes_on(drive: Harness) -> None:
    out = drive.directory / "out"
    process = start(drive.directory)
    said, errors = interrupted(process, out, 3)
    assert process.returncode == 128 + signal.SIGINT, errors
    assert "Traceback" not in errors
    assert "Py4J" not in errors
    assert json.loads(said)["outcome"] == "stopped"
    before = len(list(out.glob("part-*")))
    application = load_application(str(drive.directory / "endless.py"), {"output": str(out)})
    assert drive.run(application, listener=UntilMore(out)).outcome is RunOutcome.STOPPED
    assert len(list(out.glob("part-*"))) > before
    rows = pq.read_table(out).to_pylist()
    assert sorted(row["id"] for row in rows) == list(range(len(rows)))
    assert all(row["twice"] == 2 * row["id"] for row in rows)

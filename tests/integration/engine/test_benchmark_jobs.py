"""Every benchmark still runs: they call parts of the package by names that a change may have moved."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.__main__ import JOBS

ROOT = Path(__file__).parents[3]


@pytest.mark.nightly("no other test runs a whole benchmark")
@pytest.mark.parametrize("name", JOBS)
def test_a_benchmark_runs_on_little_data(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", f"benchmarks.{name}", "--quick", "--only", "drivetrain", "--json"]
    environment = {**os.environ, "BENCH_DATA": str(tmp_path / "data")}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4_000:]
    assert '"drivetrain"' in done.stdout

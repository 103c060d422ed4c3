"""The example of a supervised counter runs as its guide says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[3] / "examples" / "actors_counter.py"


def test_the_example_counts_restarts_and_ends() -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLE)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "count: 6",
        "refused: ValueError: cannot add -1",
        "count after the restart: 0",
        "counter has stopped for good, so its boss stops too",
        "done",
    ]
    assert "cannot add -1" in done.stderr  # every failure is logged

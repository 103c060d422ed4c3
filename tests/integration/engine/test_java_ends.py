"""Java has no memory left: the application ends and says so, it does not hang."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

APPLICATION = """
from drivetrain import Application, sinks, sources

def take(table, batch_id):
    pass

app = Application("greedy")
made = app.read(sources.generate(rows=2_000_000, columns={"text": "repeat(cast(id as string), 200)"}))
made.sink(sinks.batches(take))
"""


@pytest.mark.nightly("test_lost_java, with processes in the place of Java")
def test_an_application_whose_java_has_no_memory_left_ends_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "greedy.py").write_text(APPLICATION)
    command = [str(Path(sys.executable).with_name("drivetrain")), "run", "greedy.py"]
    state = f"state.dir={tmp_path / 'state'}"
    for setting in ("spark.driver-memory=512 MiB", "run.max-batch-rows=2000000", state):
        command += ["--set", setting]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 4, done.stderr
    assert "Spark's Java process has no memory left, and ended" in done.stderr
    assert "spark.driver-memory='1 GiB'" in done.stderr

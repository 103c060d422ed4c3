"""An archive of Java's classes that is damaged, or somebody else's, costs time and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
from drivetrain.config import Config
from drivetrain.spark.session.class_archive import archive_path, java_options
path = archive_path()
path.parent.mkdir(parents=True)
path.write_bytes(b"not an archive" * 1000)
assert str(path) in java_options()
from drivetrain.spark.session.spark_session import session
spark = session(Config.load(None, {}, {"spark.driver-memory": "512 MiB", "spark.master": "local[1]"}))
print("counted", spark.range(7).count())
"""


def test_spark_starts_with_a_damaged_archive(tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "counted 7"

"""Spark's Java as a process starts it: with the settings it is given, and with a damaged archive of classes.

An archive that is damaged, or somebody else's, costs time and nothing else.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
from pathlib import Path
from drivetrain.config import Config
from drivetrain.spark.session.class_archive import archive_path, java_options
from drivetrain.spark.session.lost_java import java_process
from drivetrain.spark.session.spark_session import session, stop
path = archive_path()
path.parent.mkdir(parents=True)
path.write_bytes(b"not an archive" * 1000)
assert str(path) in java_options()
reference = "${PLANTED_FOR_SPARK}"
sets = {"spark.conf.spark.hadoop.some.secret.key": reference, "spark.driver-memory": "512 MiB",
        "spark.master": "local[1]", "spark.conf.spark.some.plain": "seen"}
spark = session(Config.load(None, {}, sets))
print("counted", spark.range(7).count())
told = Path(f"/proc/{java_process().pid}/cmdline").read_text()
conf = spark.sparkContext._jsc.hadoopConfiguration()
plain = spark.conf.get("spark.some.plain")
print(conf.get("some.secret.key"), plain, "planted" in told, "-Xmx512m" in told)
stop()
"""


@pytest.mark.nightly("test_class_archive and test_session")
def test_spark_starts_with_a_damaged_archive_and_gets_secrets_without_its_command_line(
    tmp_path: Path,
) -> None:
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "PLANTED_FOR_SPARK": "planted-for-spark"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    counted, settings = done.stdout.splitlines()
    assert counted == "counted 7"
    assert settings.split() == ["planted-for-spark", "seen", "False", "True"], done.stderr[-2000:]

"""An archive of Spark's loaded Java classes, with which Java starts in about half the time.

The problem: most of the time of a small run goes into Java, which loads and verifies thousands of classes for
every session: a run, an executor, one that replaces an executor that died.

The design: when Java ends, it can write its loaded classes to an archive (class data sharing), and map it
into memory next time. `make` runs a small application that uses what applications use, in a separate process
(`spark.run.warm_up_application`), and publishes the archive in the user's cache. Sessions on this machine use
it if it exists. Java itself compares it with its own version and with Spark's jars, and starts without it
when they differ.

Invariants:

1. No process sees a half-written archive: it gets its name by a rename.
2. Without an archive, or with one that does not fit, everything works as before.
3. An archive that other users could have written is not used: it is code.

Called by `spark_session` and by `drivetrain warm-up`. Source: the JDK's application class-data sharing.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from drivetrain.durable import publish, sync
from drivetrain.errors import UnavailableError
from drivetrain.runtime.user_cache import cache_directory
from drivetrain.spark.session.cache_directory import is_usable, make_cache_directory
from drivetrain.spark.session.installed_spark import spark_folder, spark_version
from drivetrain.spark.session.java import QUIET, java_program
from drivetrain.spark.session.local_files import usable_jar

TIMEOUT_S = 300
_dump_to: Path | None = None
_APPLICATION = "drivetrain.spark.run.warm_up_application"


def archive_path() -> Path | None:
    """The path of the archive for this Java and this Spark, whether or not it exists; None without Java."""
    java = java_program()
    if java is None or not os.path.exists(java):
        return None
    real = os.path.realpath(java)
    jar = usable_jar()  # it is on the class path, and Java takes an archive for this file only
    written_ns = jar and jar.stat().st_mtime_ns
    spark = os.path.realpath(spark_folder() / "__init__.py")
    parts = (real, os.stat(real).st_mtime_ns, spark_version(), spark, jar, written_ns)
    name = hashlib.sha256(" ".join(map(str, parts)).encode()).hexdigest()[:12]
    return cache_directory() / f"spark-{name}.jsa"


def java_options() -> str:
    """The options for Spark's Java: use the archive if there is one."""
    if _dump_to is not None:
        return f"-XX:ArchiveClassesAtExit={_dump_to} {QUIET}"
    path = archive_path()
    if path is None or " " in str(path) or not is_usable(path):
        return ""
    return f"-XX:SharedArchiveFile={path} -Xshare:auto {QUIET}"


def write_at_end(path: Path) -> None:
    """Have the Java that the next session starts write an archive to `path` when it ends."""
    global _dump_to
    _dump_to = path


def make() -> Path:
    """Make the archive, which takes half a minute to a minute, and return its path.

    Raises `UnavailableError` with the output of Java or the small application, and `OutputError` when the
    cache cannot be written.
    """
    path = archive_path()
    if path is None:
        raise UnavailableError(
            "Spark needs Java, which was not found", remedy="`drivetrain doctor` shows more"
        )
    make_cache_directory()
    with tempfile.TemporaryDirectory(prefix="drivetrain-warm-up-") as scratch:
        written = Path(scratch, "spark.jsa")
        reason = _reason_of_failure([sys.executable, "-m", _APPLICATION, str(written), scratch])
        if reason is not None or not written.is_file():
            raise UnavailableError(
                "Java wrote no archive of its classes",
                got=reason,
                remedy="everything works without it; `drivetrain doctor` shows what else is missing",
            )
        aside = path.with_name(f".{path.name}.{os.getpid()}")
        shutil.move(written, aside)
        aside.chmod(0o600)
        sync(aside)
        publish(aside, path)
    return path


def _reason_of_failure(command: list[str]) -> str | None:
    """Run a command; returns why it failed, None if it did not."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return f"the small application did not end within {TIMEOUT_S} s: other work keeps this machine busy"
    return (done.stderr.strip().splitlines() or ["no output"])[-1] if done.returncode else None

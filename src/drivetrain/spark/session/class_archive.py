"""Spark's Java classes, kept as Java has them in memory, so that it starts in about half the time.

The problem: most of what a small run waits for is Java that loads and verifies thousands of classes, anew for
every session: a run, an executor, one that replaces an executor that died.

The design: Java can write what it has loaded to an archive at its end (class data sharing), and map it into
memory next time. `make` runs a small application that touches what applications use, in a process of its own
(`spark.run.warm_up_application`), and publishes the archive in the user's cache. Sessions on this machine use
it when it is there. Java itself compares it with its own version and with Spark's jars, and goes on without
it when they differ.

Invariants:

1. Nobody sees a half-written archive: it gets its name by a rename.
2. Without an archive, or with one that does not fit, everything works as before.

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

import pyspark

from drivetrain.errors import OutputError, UnavailableError
from drivetrain.runtime.durable import publish, sync
from drivetrain.spark.session.java import java_program

TIMEOUT_S = 300
_QUIET = "-Xlog:disable -Xlog:all=error:stderr"
_dump_to: Path | None = None
_APPLICATION = "drivetrain.spark.run.warm_up_application"


def archive_path() -> Path | None:
    """Where the archive for this Java and this Spark is, whether it exists or not; None without a Java."""
    java = java_program()
    if java is None or not os.path.exists(java):
        return None
    real = os.path.realpath(java)
    told = f"{real} {os.stat(real).st_mtime_ns} {pyspark.__version__} {os.path.realpath(pyspark.__file__)}"
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(cache, "drivetrain", f"spark-{hashlib.sha256(told.encode()).hexdigest()[:12]}.jsa")


def java_options() -> str:
    """What to start Spark's Java with, to use the archive if there is one."""
    if _dump_to is not None:
        return f"-XX:ArchiveClassesAtExit={_dump_to} {_QUIET}"
    path = archive_path()
    if path is None or not path.is_file() or " " in str(path):
        return ""
    return f"-XX:SharedArchiveFile={path} -Xshare:auto {_QUIET}"


def write_at_end(path: Path) -> None:
    """Have the Java that the next session starts write an archive to `path` when it ends."""
    global _dump_to
    _dump_to = path


def make() -> Path:
    """Make the archive, in half a minute to a minute, and return where it is.

    Raises `UnavailableError` with what Java or the small application said, and `OutputError` when the cache
    cannot be written.
    """
    path = archive_path()
    if path is None:
        raise UnavailableError(
            "Spark needs Java, which was not found", remedy="`drivetrain doctor` shows more"
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(
            f"the cache cannot be written: {error.strerror}",
            where=str(path.parent),
            remedy="name another directory by XDG_CACHE_HOME, for every command that is to use it",
        ) from error
    with tempfile.TemporaryDirectory(prefix="drivetrain-warm-up-") as scratch:
        written = Path(scratch, "spark.jsa")
        done = subprocess.run(
            [sys.executable, "-m", _APPLICATION, str(written), scratch],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        if done.returncode or not written.is_file():
            raise UnavailableError(
                "Java wrote no archive of its classes",
                got=(done.stderr.strip().splitlines() or ["no output"])[-1],
                remedy="everything works without it; `drivetrain doctor` shows what else is missing",
            )
        aside = path.with_name(f".{path.name}.{os.getpid()}")
        shutil.move(written, aside)
        sync(aside)
        publish(aside, path)
    return path

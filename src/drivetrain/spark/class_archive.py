"""Spark's Java classes, kept as Java has them in memory, so that it starts in about half the time.

The problem: most of what a small run waits for is Java that loads and verifies thousands of classes, anew for
every session: a run, an executor, one that replaces an executor that died.

The design: Java can write what it has loaded to an archive at its end (class data sharing), and map it into
memory next time. `make` runs a small application that touches what applications use, in a process of its own,
and publishes the archive in the user's cache. Sessions on this machine take it when it is there. Java itself
compares it with its own version and with Spark's jars, and goes on without it when they differ.

Invariants:

1. Nobody sees a half-written archive: it gets its name by a rename.
2. Without an archive, or with one that does not fit, everything works as before.

Called by `session` and by `drivetrain warm-up`. Source: the JDK's application class-data sharing.
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
from drivetrain.spark.java import java_program

TIMEOUT_S = 300
_QUIET = "-Xlog:disable -Xlog:all=error:stderr"
_dump_to: Path | None = None


def archive_path() -> Path | None:
    """Where the archive for this Java and this Spark is, whether it exists or not; None without a Java."""
    java = java_program()
    if java is None or not os.path.exists(java):
        return None
    real = os.path.realpath(java)
    told = f"{real} {os.stat(real).st_mtime_ns} {pyspark.__version__} {pyspark.__file__}"
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


def make() -> Path:
    """Make the archive, in half a minute to a minute, and return where it is.

    Raises `UnavailableError` with what Java or the small application said, and `OutputError` when the cache
    cannot be written.
    """
    path = archive_path()
    if path is None:
        raise UnavailableError("Spark needs Java, and there is none", remedy="`drivetrain doctor` says more")
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
            [sys.executable, "-m", "drivetrain.spark.class_archive", str(written), scratch],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        if done.returncode or not written.is_file():
            raise UnavailableError(
                "Java wrote no archive of its classes",
                got=(done.stderr.strip().splitlines() or ["it said nothing"])[-1],
                remedy="everything works without it; `drivetrain doctor` says what else is missing",
            )
        aside = path.with_name(f".{path.name}.{os.getpid()}")
        shutil.move(written, aside)
        os.replace(aside, path)
    return path


def _doubled(n: int) -> int:
    return max(n * 2, -n)  # Spark's transpiler leaves this to Python


def _run_and_dump(archive: Path, scratch: Path) -> None:
    """In a process of its own: run what applications run, and have Java write the archive at its end."""
    global _dump_to
    _dump_to = archive
    from drivetrain import Application, F, agg, run, sinks, sources, windows
    from drivetrain.config import Config
    from drivetrain.spark import session

    (scratch / "in").mkdir()
    (scratch / "in" / "lines.txt").write_text("one two\ntwo three\n" * 100)
    (scratch / "in" / "lines.jsonl").write_text(
        "".join(f'{{"at": "2024-01-01T00:{i % 60:02}:00Z", "n": {i}}}\n' for i in range(100))
    )
    app = Application("warm_up")
    lines = app.read(sources.text(scratch / "in", glob="*.txt"))
    words = lines.select(word=F.explode(F.split(F.col("value"), " "))).filter("word <> ''")
    words.group_by("word").aggregate(count=agg.count()).sink(sinks.parquet(scratch / "words"))
    events = app.read(
        sources.jsonl(scratch / "in", glob="*.jsonl", schema="at timestamp, n bigint", event_time="at")
    )
    doubled = events.select(n=_doubled)
    doubled.window(windows.tumbling("10 min")).aggregate(n=agg.sum("n")).sink(sinks.csv(scratch / "sums"))
    run(app, Config.load(None, {}, {"state.dir": str(scratch / "state")}))
    java = session.java_process()
    session.stop()
    if java is not None and java.stdin is not None:
        java.stdin.close()  # Spark's Java ends when it does, and writes the archive then
        java.wait(TIMEOUT_S)


if __name__ == "__main__":
    # Under its own name, so that the session sees what is set here.
    from drivetrain.spark import class_archive

    class_archive._run_and_dump(Path(sys.argv[1]), Path(sys.argv[2]))

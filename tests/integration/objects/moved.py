"""The application of `moved_application.py` with its state and results in a store, and what it must write.

Used by the tests of states in stores, in clusters and of `drivetrain run`.
"""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path

from drivetrain.crash_points import VARIABLE, CrashPoint
from stored_place import StoredPlace
from whole_cluster import WholeCluster, wait_for

FILE = str(Path(__file__).parent / "moved_application.py")
KEYS = 4


class Moved:
    """The application with its store and its settings."""

    def __init__(self, place: StoredPlace, database: Path | None = None, *, rows: int = 6_000) -> None:
        self.place, self.database, self.row_count = place, database, rows
        self.settings = {
            "rows": str(rows),
            "keys": str(KEYS),
            "bucket": place.uri,
            "database": "" if database is None else str(database),
        }
        self.sets = {
            **place.sets,
            "state.dir": f"{place.uri}/states",
            "checkpoint.interval": "500 ms",
            "run.max-batch-rows": "100",
        }

    def submit(self, cluster: WholeCluster) -> None:
        submitted = cluster.submit(FILE, "--detached", *self.given())
        assert submitted.returncode == 0, submitted.stderr

    def given(self) -> list[str]:
        """The options of `drivetrain submit`."""
        chosen = self.sets | self.settings | {"app.executors": "2"}
        return [text for key, value in chosen.items() for text in ("--set", f"{key}={value}")]

    def kill_at(self, point: CrashPoint, times: int, machine: Path) -> None:
        """Run it in a process of its own, which is killed when it comes to a point for that time."""
        command = [str(Path(sys.executable).with_name("drivetrain")), "run", FILE]
        here = {"state.work-dir": str(machine), "spark.master": "local[2]"}
        for name, value in (self.sets | self.settings | here).items():
            command += ["--set", f"{name}={value}"]
        environment = {**os.environ, VARIABLE: f"{point}:{times}"}
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == -signal.SIGKILL, done.stdout + done.stderr

    def wait_results(self, more_than: int = 0) -> int:
        """Wait until there are more files of results than so many; returns how many."""

        def look() -> int | None:
            found = len(self.place.files("each"))
            return found if found > more_than else None

        return wait_for(look, "results")

    def require_exact(self) -> None:
        rows = self.row_count
        assert sorted(row["id"] for row in self.place.rows("each")) == list(range(rows))
        assert sorted(row["id"] for row in self.place.rows("even")) == list(range(0, rows, 2))
        counts = sorted((row["key"], row["n"]) for row in self.place.rows("counts"))
        assert counts == [(str(key), rows // KEYS) for key in range(0, KEYS, 2)]
        if self.database is not None:
            with closing(sqlite3.connect(self.database)) as connection:
                found = connection.execute("select id from each_row order by id").fetchall()
            assert [id for (id,) in found] == list(range(rows))


def lose(cluster: WholeCluster, worker: str) -> None:
    """Kill everything that a worker's machine runs, and delete what is on its disk."""
    directory = cluster.directory / "boxes" / worker
    own = {cluster.pids[worker], *cluster.processes(f"{directory}/")}
    for pid in own:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not cluster.processes(f"{directory}/"), f"the end of what {worker} has started")
    shutil.rmtree(directory)

"""The last state of a run, kept for users who look at the application after its end.

Problem: a page that shows a run must not lose its figures when the run ends; and a run that was killed must
not look like one that has finished.

Design: one durable file in the state directory, written when the run ends in order and deleted when the next
one has begun. What if we die here: between the two there is no file, which means that the run was killed.

Called by `spark.run.run_reporter`, which writes it, and by the console.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from drivetrain.core.job.history import History
from drivetrain.core.job.job_status import JobStatus
from drivetrain.core.picture.placed_graph import Graph
from drivetrain.runtime.durable_file import DurableFile

NAME: Final = "last-run.json"


class LastRun(msgspec.Struct, frozen=True):
    """The end of a run: its last status, figures and graph, and the version of the graph in force."""

    status: JobStatus
    history: History
    graph: Graph
    version: int


def read_last_run(home: Path) -> LastRun | None:
    """The end of the last run of the application in `home`; None if it runs, was killed or has never run.

    Raises InputError for a damaged file.
    """
    return _file(home).read_json(LastRun)


def write_last_run(home: Path, run: LastRun) -> None:
    """Note the end of a run; raises DiskFullError, and OutputError when the file cannot be written."""
    _file(home).write(msgspec.json.encode(run))


def forget_last_run(home: Path) -> None:
    """A run has begun: from now on nothing is noted until it ends."""
    (home / NAME).unlink(missing_ok=True)


def _file(home: Path) -> DurableFile:
    return DurableFile(
        home / NAME,
        "how the last run has ended",
        if_damaged="delete the file: it is only shown",
        if_full="make room: nothing but the last figures of the run is missing",
    )

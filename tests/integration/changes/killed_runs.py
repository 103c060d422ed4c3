"""An application in a process of its own that dies at a crash point, and a change during which it may die."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from drivetrain import Application
from drivetrain.code.fingerprint import fingerprint
from drivetrain.core.change.change_options import NO_OPTIONS, ChangeOptions
from drivetrain.core.change.graph_version import version_of
from drivetrain.core.plan.planner import plan
from drivetrain.crash_points import VARIABLE, CrashPoint
from drivetrain.errors import DrivetrainError, UnavailableError
from drivetrain.runtime.control_requests import ask_change
from drivetrain.runtime.run_directory import RunDirectory
from drivetrain.spark.prepare.graph_code import graph_as_code


@contextmanager
def run_killed_at(
    file: Path, directory: Path, point: CrashPoint, *options: str, times: int = 1
) -> Iterator[subprocess.Popen[bytes]]:
    """Run the application of a file; after the block it must die when it reaches `point` for the `times`-th
    time.

    `options` are further words of the command.
    """
    line = [sys.executable, "-m", "drivetrain.cli", "run", str(file)]
    line += ["--state-dir", str(directory / "state"), "--set", "spark.master=local[2]"]
    line += ["--set", "spark.driver-memory=1 GiB", *options]
    with (directory / "output").open("ab") as output:
        process = subprocess.Popen(
            line,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, VARIABLE: f"{point}:{times}"},
            start_new_session=True,
        )
    try:
        yield process
        assert process.wait(400) == -signal.SIGKILL
    finally:
        # Also its Java process, which would plan a batch with later messages before it ends on its own.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def ask_to_change(
    rundir: RunDirectory, application: Application, options: ChangeOptions = NO_OPTIONS
) -> None:
    """Ask the application, which runs version 1, to change; it may die before it answers."""
    graph = application.graph()
    record = version_of(plan(graph), fingerprint)
    try:
        ask_change(rundir, record, graph_as_code(graph), against=1, options=options)
    except DrivetrainError as error:
        assert isinstance(error, UnavailableError), error  # noqa: PT017 - others are refusals

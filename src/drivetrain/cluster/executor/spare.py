"""A spare executor: a process that has started Spark before it is known for which application.

Problem: an executor that replaces a lost one needs several seconds for what is the same in all executors.

Design: a worker starts `python -m drivetrain.cluster.executor --spare FILE` ahead, and gives it a launch by a
line over the pipe that ties it to its worker. If the application turns out not to fit what is there, the
process becomes what the worker would have started otherwise: it executes its own program again, with the
launch file, and keeps its process id and its output.

    PREPARING ──▶ WAITING ──handover──▶ an executor
         └──────────handover──────────▶    │ does not fit
                                           ▼
                                  the program, from the start

Invariants:

1. The keys of an application come with the handover; until then the process has none.
2. A launch is served as without a spare, or by the program from the start. No code of the user's has run
   before, and the application is loaded before this executor registers.

Called by `python -m drivetrain.cluster.executor`.
"""

from __future__ import annotations

import logging
import os
import queue
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

import msgspec

from drivetrain.cluster.connection import SECRET_VARIABLE
from drivetrain.cluster.executor.executor_config import executor_config
from drivetrain.cluster.launch_file import Handover, LaunchFile, SpareFile
from drivetrain.cluster.parent import PARENT_VARIABLE, tie_to_parent
from drivetrain.config.process_log import log_to_standard_error
from drivetrain.errors import PeerViolationError

if TYPE_CHECKING:
    from drivetrain.cluster.executor.spark_work import SparkWork

log = logging.getLogger(__name__)


class Spare:
    """This process, started by a worker as a spare executor; raises what loading its file raises."""

    def __init__(self, path: str) -> None:
        self._environment: Final = dict(os.environ)
        self._directory: Final = os.getcwd()
        self._lines: Final[queue.Queue[bytes]] = queue.Queue()
        self._pipe: Final = tie_to_parent(self._lines.put)
        file = SpareFile.load(Path(path))
        config = executor_config(file)
        log_to_standard_error(config, process="executor")
        logging.getLogger("py4j").setLevel(logging.CRITICAL)  # as in every executor
        keep_temporary_files_in(file.work_directory)
        from drivetrain.cluster.executor import executor, spark_work  # noqa: F401 - imported ahead
        from drivetrain.spark.run.started_ahead import StartedAhead

        self._ahead: Final = StartedAhead(config)
        self._ahead.warm_up(self._lines.empty)
        self._handover: Handover | None = None

    def wait(self) -> LaunchFile:
        """Wait for a launch; raises UnavailableError and PeerViolationError for what is none."""
        try:
            self._handover = msgspec.json.decode(self._lines.get(), type=Handover)
        except msgspec.MsgspecError as error:
            raise PeerViolationError("a worker handed over no launch", got=str(error)) from error
        if self._handover.secret is not None:
            os.environ[SECRET_VARIABLE] = self._handover.secret
        return LaunchFile.load(Path(self._handover.launch_file))

    def take(self, work: SparkWork) -> None:
        """Load the application, and let it work with this Spark; does not return if it does not fit."""
        try:
            obstacle = self._ahead.obstacle(work.config, work.load())
        except Exception:  # noqa: BLE001 - whatever it is, the program from the start meets and reports it
            obstacle = "it cannot be loaded"
        if obstacle is not None:
            log.info("the application cannot use the Spark that was started ahead: %s", obstacle)
            self._start_over()
        self._ahead.enter()

    def _start_over(self) -> NoReturn:
        """Become the process that the worker would have started without a spare."""
        assert self._handover is not None
        environment = dict(self._environment)
        if self._handover.secret is not None:
            environment[SECRET_VARIABLE] = self._handover.secret
        environment[PARENT_VARIABLE] = str(os.getppid())
        if self._pipe is not None:
            os.dup2(self._pipe, 0)  # which ties the next program to the worker
        os.chdir(self._directory)
        arguments = [*sys.orig_argv[:-2], self._handover.launch_file]
        os.execve(sys.executable, arguments, environment)  # noqa: S606 - this very program


def keep_temporary_files_in(work_directory: str) -> None:
    """Keep temporary files in the process's own directory, which its worker deletes after its end."""
    scratch = Path(work_directory) / "tmp"
    scratch.mkdir(parents=True, exist_ok=True)
    os.environ["TMPDIR"] = tempfile.tempdir = str(scratch)

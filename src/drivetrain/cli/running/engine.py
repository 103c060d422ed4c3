"""The interface of the engine for the commands, and its implementation on Spark.

Why a protocol: tests of the commands use an engine that only sends events, without Spark; and a command that
needs no Spark does not pay for its import.

Called by `drivetrain run`.
"""

from __future__ import annotations

from typing import Protocol

from drivetrain.api import Application
from drivetrain.code.application_file import make_importable_for_workers, split_target
from drivetrain.config import Config
from drivetrain.core.job.run_progress import RunListener, RunResult
from drivetrain.runtime.graph_versions import KeptVersion


class Engine(Protocol):
    """Runs an application to its end, sending events to the listener.

    `fresh` deletes the state of earlier runs, `replay_from_ms` begins a new life with the messages from that
    timestamp on, `savepoint` is a directory to continue from, `version` the graph's version to continue with.
    """

    def __call__(
        self,
        application: Application,
        config: Config,
        listener: RunListener,
        *,
        fresh: bool,
        replay_from_ms: int | None,
        savepoint: str | None,
        version: KeptVersion | None,
    ) -> RunResult:
        """Run it; raises DrivetrainError when it fails."""


def begin_spark(config: Config, target: str) -> None:
    """Have Spark's Java process start for the application of `target`, which takes as long as imports do.

    Raises ApplicationFileError when there is no such file.
    """
    from drivetrain.spark.session import java_start

    path, _ = split_target(target)
    make_importable_for_workers(path)
    java_start.begin(config)


def spark_engine() -> Engine:
    """The engine that runs applications on Spark."""
    from drivetrain.spark.run import embedded

    return embedded.run

"""The interface of the engine for the commands, and its implementation on Spark.

Why a protocol: tests of the commands use an engine that only sends events, without Spark; and a command that
needs no Spark does not pay for its import.

Called by `drivetrain run`.
"""

from __future__ import annotations

from typing import Protocol

from drivetrain.api import Application
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


def spark_engine(config: Config) -> Engine:
    """The engine that runs applications on Spark, whose Java process starts with this configuration."""
    from drivetrain.spark.session import java_start

    java_start.begin(config)  # now, as the imports of PySpark take as long as Java does
    from drivetrain.spark.run import embedded

    return embedded.run

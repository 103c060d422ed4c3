"""What the commands need of the engine, and where they get it.

Why a protocol: the commands are tested with an engine that only tells events, without Spark; and a
command that needs no Spark does not pay for its import.

Called by `drivetrain run`.
"""

from __future__ import annotations

from typing import Protocol

from drivetrain.api import Application
from drivetrain.config import Config
from drivetrain.core.job.run_progress import RunListener, RunResult


class Engine(Protocol):
    """Runs an application to its end, telling the listener.

    `fresh` forgets what earlier runs did, `replay_from_ms` begins a new life with what is not older,
    `savepoint` is a place where it goes on from.
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
    ) -> RunResult:
        """Run it; raises DrivetrainError when it fails."""


def spark_engine() -> Engine:
    """The engine that runs applications on Spark."""
    from drivetrain.spark.run import embedded

    return embedded.run

"""The only layer that imports pyspark: fragments as queries, channels as data sources.

Spark's Python workers import parts of this package, so the package itself imports nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from drivetrain.api.application import Application
    from drivetrain.config import Config
    from drivetrain.core.plan import Plan
    from drivetrain.core.progress import RunListener, RunResult
    from drivetrain.spark.run_clock import RunClock
    from drivetrain.spark.running import RunningApplication


def run(
    application: Application,
    config: Config | None = None,
    listener: RunListener | None = None,
    *,
    fresh: bool = False,
    replay_from: str | int | datetime | None = None,
    on_clock: Callable[[RunClock], None] | None = None,
) -> RunResult:
    """Run an application embedded, then call its `when_finished` hooks; see `embedded.run`.

    `replay_from` processes again what is not older than that: ISO 8601 (UTC unless it says otherwise), a
    datetime, or ms since the epoch. Raises `UserError` for anything else, `ReplayError` when that cannot be.
    """
    from drivetrain.api.moments import moment_ms
    from drivetrain.core.progress import RunOutcome
    from drivetrain.spark import embedded

    from_ms = None if replay_from is None else moment_ms(replay_from, "replay_from")
    result = embedded.run(
        application, config, listener, fresh=fresh, replay_from_ms=from_ms, on_clock=on_clock
    )
    if result.outcome is RunOutcome.FINISHED:
        application.tell_finished(result)
    return result


def start(
    application: Application,
    config: Config | None = None,
    listener: RunListener | None = None,
    *,
    fresh: bool = False,
    replay_from: str | int | datetime | None = None,
) -> RunningApplication:
    """Run an application embedded, in a thread, and go on: the handle waits for its clock, and stops it.

    The arguments are those of `run`. Nothing is raised here: what the run raises, `wait` does.
    """
    from drivetrain.spark.running import RunningApplication

    def go(heard: RunListener, on_clock: Callable[[RunClock], None]) -> RunResult:
        return run(application, config, heard, fresh=fresh, replay_from=replay_from, on_clock=on_clock)

    return RunningApplication(go, listener)


def analysed(application: Application, config: Config | None = None) -> Plan:
    """The plan of an application with what Spark knows of it; see `drivetrain.spark.embedded.analysed`."""
    from drivetrain.spark import embedded

    return embedded.analysed(application, config)

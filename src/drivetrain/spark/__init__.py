"""The only layer that imports pyspark: fragments as queries, channels as data sources.

Spark's Python workers import parts of this package, so the package itself imports nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

    from drivetrain.api.application import Application
    from drivetrain.config import Config
    from drivetrain.core.plan import Plan
    from drivetrain.core.progress import RunListener, RunResult


def run(
    application: Application,
    config: Config | None = None,
    listener: RunListener | None = None,
    *,
    fresh: bool = False,
    replay_from: str | int | datetime | None = None,
) -> RunResult:
    """Run an application embedded, then call its `when_finished` hooks; see `embedded.run`.

    `replay_from` processes again what is not older than that: ISO 8601 (UTC unless it says otherwise), a
    datetime, or ms since the epoch. Raises `UserError` for anything else, `ReplayError` when that cannot be.
    """
    from drivetrain.api.moments import moment_ms
    from drivetrain.core.progress import RunOutcome
    from drivetrain.spark import embedded

    from_ms = None if replay_from is None else moment_ms(replay_from, "replay_from")
    result = embedded.run(application, config, listener, fresh=fresh, replay_from_ms=from_ms)
    if result.outcome is RunOutcome.FINISHED:
        application.tell_finished(result)
    return result


def analysed(application: Application, config: Config | None = None) -> Plan:
    """The plan of an application with what Spark knows of it; see `drivetrain.spark.embedded.analysed`."""
    from drivetrain.spark import embedded

    return embedded.analysed(application, config)

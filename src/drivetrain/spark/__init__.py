"""The only layer that imports pyspark: fragments as queries, channels as data sources.

Spark's Python workers import parts of this package, so the package itself imports nothing.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from pathlib import Path

    from drivetrain.api.application import Application
    from drivetrain.config import Config
    from drivetrain.core.plan import Plan
    from drivetrain.core.progress import RunListener, RunResult
    from drivetrain.spark.run_clock import RunClock
    from drivetrain.spark.running import RunningApplication
    from drivetrain.spark.state_query import States


def run(
    application: Application,
    config: Config | None = None,
    listener: RunListener | None = None,
    *,
    fresh: bool = False,
    replay_from: str | int | datetime | None = None,
    from_savepoint: str | os.PathLike[str] | None = None,
    on_clock: Callable[[RunClock], None] | None = None,
) -> RunResult:
    """Run an application embedded, then call its `when_finished` hooks; see `embedded.run`.

    `replay_from` processes again what is not older than that: ISO 8601 (UTC unless it says otherwise), a
    datetime, or ms since the epoch. Raises `UserError` for anything else, `ReplayError` when that cannot be.
    `from_savepoint` is a place that `savepoint` has written: the application goes on from there. Raises
    `SavepointError` when the savepoint is damaged or does not fit, `UserError` when there is a state already.
    """
    from drivetrain.api.moments import moment_ms
    from drivetrain.core.progress import RunOutcome
    from drivetrain.spark import embedded

    from_ms = None if replay_from is None else moment_ms(replay_from, "replay_from")
    result = embedded.run(
        application,
        config,
        listener,
        fresh=fresh,
        replay_from_ms=from_ms,
        savepoint=None if from_savepoint is None else os.fspath(from_savepoint),
        on_clock=on_clock,
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
    from_savepoint: str | os.PathLike[str] | None = None,
) -> RunningApplication:
    """Run an application embedded, in a thread, and go on: the handle waits for its clock, and stops it.

    The arguments are those of `run`. Nothing is raised here: what the run raises, `wait` does.
    """
    from drivetrain.spark.running import RunningApplication

    def go(heard: RunListener, on_clock: Callable[[RunClock], None]) -> RunResult:
        return run(
            application,
            config,
            heard,
            fresh=fresh,
            replay_from=replay_from,
            from_savepoint=from_savepoint,
            on_clock=on_clock,
        )

    def asked(processor: str) -> States:
        return state(application, processor, config)

    def saved(place: str | os.PathLike[str] | None, timeout: str) -> Path:
        return savepoint(application, place, config, timeout=timeout)

    return RunningApplication(go, listener, asked, saved)


def savepoint(
    application: Application | str,
    place: str | os.PathLike[str] | None = None,
    config: Config | None = None,
    *,
    timeout: str = "1 min",
) -> Path:
    """Write all that an application needs to go on elsewhere to a directory, and say which.

    The application is one that this process has made, or the name or id of one in the state directory of the
    configuration; it may be running, here or in another process, embedded. Without a place it is
    `<state.dir>/savepoints/<id>-<time>`. Raises `OutputError` when something is there, `UserError` when the
    application is not found, or does not run and its newest checkpoint is not all of it, `UnavailableError`
    when there is no checkpoint within `timeout`.
    """
    from pathlib import Path

    from drivetrain.spark.checkpoints.savepoint_requests import make_savepoint_of

    return make_savepoint_of(application, None if place is None else Path(place), config, timeout)


def published_files(directory: str | os.PathLike[str]) -> dict[str, list[str]]:
    """What file sinks have published under `directory`, as of one transaction: see `sinks.manifest`.

    `directory` is the one that sinks publish `together` in, or a sink's own. The files are in the order of
    batches, keyed by the directories of the sinks. Raises `InputError` when no sink publishes there.
    """
    from drivetrain.spark.sinks import manifest

    return manifest.published_files(directory)


def state(application: Application | str, processor: str, config: Config | None = None) -> States:
    """The states of a processor, for questions: `state(app, "counts").get("word", at="2013-03-01T00:00")`.

    The application is one that this process has made, with the settings that it runs with, or the name or id
    of one that has run in the state directory of the configuration; it may be running, here or elsewhere.
    Raises `UserError` when there is none, or more than one of the name.
    """
    from drivetrain.spark.asking import asked

    return asked(application, processor, config)


def analysed(application: Application, config: Config | None = None) -> Plan:
    """The plan of an application with what Spark knows of it; see `drivetrain.spark.embedded.analysed`."""
    from drivetrain.spark import embedded

    return embedded.analysed(application, config)

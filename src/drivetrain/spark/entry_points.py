"""The functions for users, exported by `drivetrain`: run an application, start it, save it, query its states.

Spark is imported when one of them is called, not before.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from drivetrain.api.graphs.graph_builder import require_application
from drivetrain.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from pyspark.sql import SparkSession

    from drivetrain.api.application import Application
    from drivetrain.api.connectors.delta_sink import DeltaSink
    from drivetrain.api.connectors.iceberg_sink import IcebergSink
    from drivetrain.config import Config
    from drivetrain.connectors.tables.compaction import Compaction
    from drivetrain.core.job.run_progress import RunListener, RunResult
    from drivetrain.core.plan.plan import Plan
    from drivetrain.runtime.graph_versions import KeptVersion
    from drivetrain.spark.run.embedded import Running
    from drivetrain.spark.run.running_application import RunningApplication
    from drivetrain.spark.state.state_query import States


def run(
    application: Application,
    config: Config | None = None,
    listener: RunListener | None = None,
    *,
    fresh: bool = False,
    replay_from: str | int | datetime | None = None,
    from_savepoint: str | os.PathLike[str] | None = None,
    version: KeptVersion | None = None,
    on_start: Callable[[Running], None] | None = None,
) -> RunResult:
    """Run an application embedded, then call its `when_finished` hooks; see `embedded.run`.

    `replay_from` processes messages again from that time on: ISO 8601 (UTC unless it has a zone), a
    datetime, or ms since the epoch. Raises `UserError` for anything else, `ReplayError` for an impossible
    replay. `from_savepoint` is a place that `savepoint` has written; the application continues from
    it. Raises `SavepointError` when the savepoint is damaged or does not fit, `UserError` when there is a
    state already. `version` continues with the graph of that version, or of the one "in-force", which
    edits such as `attach` have changed; `application` then gives its name, settings and hooks.

    >>> def copy() -> int:
    ...     app = Application("copy")
    ...     app.read(sources.text("in/")).sink(sinks.parquet("out/"))
    ...     return run(app).batches
    """
    from drivetrain.api.moments import moment_ms
    from drivetrain.core.job.run_progress import RunOutcome
    from drivetrain.spark.run import embedded

    require_application(application)
    from_ms = None if replay_from is None else moment_ms(replay_from, "replay_from")
    result = embedded.run(
        application,
        config,
        listener,
        fresh=fresh,
        replay_from_ms=from_ms,
        savepoint=None if from_savepoint is None else os.fspath(from_savepoint),
        version=version,
        on_start=on_start,
    )
    if result.outcome is RunOutcome.FINISHED:
        application.call_finish_hooks(result)
    return result


def start(
    application: Application,
    config: Config | None = None,
    listener: RunListener | None = None,
    *,
    fresh: bool = False,
    replay_from: str | int | datetime | None = None,
    from_savepoint: str | os.PathLike[str] | None = None,
    version: KeptVersion | None = None,
) -> RunningApplication:
    """Run an application embedded, in a background thread; returns a handle to wait for its clock and stop
    it.

    The arguments are those of `run`. Errors of the run are raised by `wait`, not here.

    >>> def first_hour(app: Application) -> RunResult:
    ...     with start(app) as running:
    ...         running.wait_clock("2024-01-01T01:00", timeout="1 min")
    ...         running.stop()
    ...         return running.wait()
    """
    from drivetrain.spark.run.running_application import RunningApplication

    require_application(application)

    def go(listener: RunListener, on_start: Callable[[Running], None]) -> RunResult:
        return run(
            application,
            config,
            listener,
            fresh=fresh,
            replay_from=replay_from,
            from_savepoint=from_savepoint,
            version=version,
            on_start=on_start,
        )

    def asked(processor: str) -> States:
        return state(application, processor, config)

    def saved(place: str | os.PathLike[str] | None, timeout: str) -> str:
        return savepoint(application, place, config, timeout=timeout)

    return RunningApplication(go, listener, asked, saved)


def savepoint(
    application: Application | str,
    place: str | os.PathLike[str] | None = None,
    config: Config | None = None,
    *,
    timeout: str = "1 min",
) -> str:
    """Write a savepoint of an application, from which it can continue elsewhere; returns its place.

    `application` is an object of this process, or the name or id of an application in the configured state
    directory; it may run embedded, here or in another process. `place` is a directory, or a place in an
    object store (`s3://…`); the default is `<state.dir>/savepoints/<id>-<time>`. Raises `OutputError` when
    the place is not empty, `UserError` when the application is not found, or does not run and has processed
    messages since its newest checkpoint, `UnavailableError` when no checkpoint is taken within `timeout`.

    >>> def moved(app: Application) -> RunResult:
    ...     saved = savepoint("shop", "saved/", timeout="5 min")
    ...     return run(app, from_savepoint=saved)
    """
    from drivetrain.runtime.checkpoints.savepoint_requests import make_savepoint_of

    return make_savepoint_of(application, None if place is None else os.fspath(place), config, timeout)[0]


def published_files(
    directory: str | os.PathLike[str], *, config: Config | None = None
) -> dict[str, list[str]]:
    """The files that sinks have published under `directory` at one checkpoint; see `sinks.manifest`.

    `directory` is the common directory of sinks that publish `together`, or a sink's own. The files are
    in the order of batches, keyed by the directories of the sinks. `config` determines how a directory in an
    object store is reached. Raises `InputError` when no sink publishes there.

    >>> def results() -> list[str]:
    ...     return [file for files in published_files("out/").values() for file in files]
    """
    from drivetrain.config import Config
    from drivetrain.connectors.files import publication_manifest
    from drivetrain.runtime.objects.settings import StoreSettings

    return publication_manifest.published_files(directory, StoreSettings.of(config or Config()))


def compact(
    table: DeltaSink | IcebergSink,
    *,
    target_size: str = "128 MiB",
    dry_run: bool = False,
    config: Config | None = None,
) -> Compaction:
    """Join the small files of a table, also while applications write to it; returns what was done.

    `table` is a sink's declaration, of which only the table, its catalog and `timeout` are used. Files get
    at most `target_size`; those of at least three quarters of it stay as they are; `dry_run` changes
    nothing. `config` determines how an object store is reached. Raises `InputError` when there is no table,
    `OutputError` when it has features with which it cannot be compacted, `UnavailableError` when other
    writers come first for longer than the sink's `timeout`. Needs no Spark. `drivetrain compact` does the
    same.

    >>> def nightly() -> int:
    ...     return compact(sinks.delta("tables/orders"), target_size="256 MiB").written_files
    """
    from drivetrain.config import Config
    from drivetrain.config.units import size_bytes
    from drivetrain.connectors.opening import compact_table

    size = size_bytes(1)
    try:
        target_bytes = size.read(target_size)
    except ValueError:
        raise UserError(
            "not a size for files", where="target size", expected=size.expected, got=repr(target_size)
        ) from None
    return compact_table(table, config or Config(), target_bytes, dry_run=dry_run)


def state(application: Application | str, processor: str, config: Config | None = None) -> States:
    """Query the states of a processor: `state(app, "counts").get("word", at="2013-03-01T00:00")`.

    `application` is an object of this process, with the settings of its runs, or the name or id of an
    application in the configured state directory; it may be running, here or elsewhere.
    Raises `UserError` when there is no such application, or several of that name.

    >>> def at_noon(word: str) -> int:
    ...     return state("wordcount", "counts").get(word, at="2024-01-01T12:00")
    """
    from drivetrain.config import Config
    from drivetrain.runtime.find_application import directory_of

    known = config or Config.load(None, {}, {})
    rundir = directory_of(application, known)
    from drivetrain.spark.state.state_query import states_of

    def spark() -> SparkSession:
        from drivetrain.spark.session.spark_session import session

        return session(known, "drivetrain-state")

    return states_of(rundir.home, processor, spark)


def plan(application: Application, config: Config | None = None) -> Plan:
    """How an application would run: its fragments, channels, operators and guarantees; needs no Spark.

    In a notebook it is shown as a picture. `drivetrain plan` prints it.

    >>> app = Application("copy")
    >>> app.read(sources.text("in/")).sink(sinks.parquet("out/"))
    >>> [fragment.id for fragment in plan(app).fragments]
    ['read']
    """
    from drivetrain.config import Config
    from drivetrain.core.plan.configured import configured_plan
    from drivetrain.runtime.sink_places import refuse_shared_places

    require_application(application)
    config = config or Config.load(None, {}, {})
    return refuse_shared_places(configured_plan(application.graph(), config))


def analysed(application: Application, config: Config | None = None) -> Plan:
    """The plan of an application with the results of Spark's analysis; see
    `drivetrain.spark.run.embedded.analysed`."""
    from drivetrain.spark.run import embedded

    return embedded.analysed(application, config)

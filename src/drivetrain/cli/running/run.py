"""`drivetrain run`: runs an application in this process, on Spark, until its input ends or a user stops it.

Design: load the configuration and the file, pass both to the engine with a listener that shows progress,
print the result. Messages that `Stream.log` logs go to the standard error stream, above the live table,
unless the application has configured logging itself. With `--json` all other output, even Java's, goes to the
standard error stream, and standard output contains only the one object.

Called by `cli.main`. The exit codes are listed there.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from drivetrain.api.moments import moment_ms
from drivetrain.cli.arguments import (
    ConfigOption,
    FileArgument,
    JsonOption,
    SavepointOption,
    SetOption,
    StateDirOption,
    load_config,
    parse_sets,
)
from drivetrain.cli.failure import error_as_data
from drivetrain.cli.json_output import print_json
from drivetrain.cli.running.engine import Engine, spark_engine
from drivetrain.cli.running.stop import StopSignals
from drivetrain.cli.running.watch import watch_application
from drivetrain.cli.standard_output import standard_output_reserved
from drivetrain.cli.views.run_summary import result_as_data, show_summary
from drivetrain.cli.views.run_view import LineView, LiveView, RunView
from drivetrain.code.application_file import load_application
from drivetrain.config import Config
from drivetrain.config.catalog import run as keys
from drivetrain.core.job.run_progress import ProgressEvent, RunOutcome, RunResult
from drivetrain.errors import DrivetrainError, UserError
from drivetrain.runtime.graph_versions import KeptVersion
from drivetrain.terminal import Console, print_line

_MESSAGES: Final = logging.getLogger("drivetrain.messages")
_CALLBACKS: Final = logging.getLogger("py4j")


def run_command(
    file: FileArgument,
    sets: SetOption = None,
    config_file: ConfigOption = None,
    state_dir: StateDirOption = None,
    fresh: Annotated[
        bool,
        typer.Option("--fresh", help="Delete the state and outputs of earlier runs, and start over."),
    ] = False,
    replay_from: Annotated[
        str | None,
        typer.Option(
            "--replay-from",
            metavar="TIME",
            help="Process messages from TIME on again (2013-03-01T00:00, UTC), in a new life of the "
            "application; what it has published stays.",
        ),
    ] = None,
    savepoint: SavepointOption = None,
    version: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBER|in-force",
            help="Continue with a version that `drivetrain versions` lists, not with the graph of FILE.",
        ),
    ] = None,
    watch: Annotated[
        bool,
        typer.Option(
            "--watch",
            help="Run until stopped, and restart with the state when a file of the application changes.",
        ),
    ] = False,
    with_console: Annotated[
        bool,
        typer.Option("--console", help="Show the run in a browser; the address is printed."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Run an application here until its input ends. Ctrl-C stops it cleanly; the same command resumes it."""
    with _shown(sets, config_file, state_dir) if with_console else contextlib.nullcontext():
        _run(
            file,
            sets,
            config_file,
            state_dir,
            fresh=fresh,
            replay_from=replay_from,
            savepoint=savepoint,
            version=_kept(version),
            watch=watch,
            as_json=as_json,
        )


def _kept(version: str | None) -> KeptVersion | None:
    """The version that the user names."""
    if version is None:
        return None
    if version == "in-force":
        return "in-force"
    if not version.isdecimal() or not int(version):
        raise UserError("not a version", where="--version", expected='a number, or "in-force"', got=version)
    return int(version)


def _shown(
    sets: list[str] | None, config_file: Path | None, state_dir: str | None
) -> contextlib.AbstractContextManager[None]:
    from drivetrain.cli.running.run_console import console_beside

    return console_beside(parse_sets(sets, state_dir), config_file)


def _run(
    file: str,
    sets: list[str] | None,
    config_file: Path | None,
    state_dir: str | None,
    *,
    fresh: bool,
    replay_from: str | None,
    savepoint: str | None,
    version: KeptVersion | None,
    watch: bool,
    as_json: bool,
) -> None:
    if watch:
        if version is not None:
            raise UserError("--watch runs the file", where="run", got="--watch and --version")
        first = [*(["--fresh"] if fresh else []), *_option("--replay-from", replay_from)]
        first += _option("--from", savepoint)
        plan = _arguments(file, sets, config_file, state_dir)
        raise typer.Exit(_watched(file, config_file, plan, first, as_json=as_json))
    from_ms = None if replay_from is None else moment_ms(replay_from, "--replay-from")
    if not as_json:
        live = sys.stdout.isatty() and sys.stderr.isatty()
        _, exit_code = run_file(
            file,
            parse_sets(sets, state_dir),
            config_file,
            fresh=fresh,
            replay_from_ms=from_ms,
            savepoint=savepoint,
            version=version,
            live=live,
            on_result=lambda result: show_summary(result, Console()),
        )
        raise typer.Exit(exit_code)
    raise typer.Exit(
        _run_for_json(
            file,
            sets,
            config_file,
            state_dir,
            fresh=fresh,
            replay_from_ms=from_ms,
            savepoint=savepoint,
            version=version,
        )
    )


def _run_for_json(
    file: str, sets: list[str] | None, config_file: Path | None, state_dir: str | None, **options: Any
) -> int:
    """Run an application, and print the result or the error as JSON; returns the exit code."""
    with standard_output_reserved() as output:
        try:
            given = parse_sets(sets, state_dir)
            result, exit_code = run_file(file, given, config_file, live=sys.stderr.isatty(), **options)
        except DrivetrainError as error:
            print_json({"outcome": "failed", "error": error_as_data(error)}, output)
            raise
        print_json(result_as_data(result), output)
    return exit_code


def _watched(file: str, config_file: Path | None, plan: list[str], first: list[str], *, as_json: bool) -> int:
    if as_json:
        raise UserError("--watch has no result to print", where="run", got="--watch and --json")
    return watch_application(file, config_file, plan, first)


def _arguments(
    file: str, sets: list[str] | None, config_file: Path | None, state_dir: str | None
) -> list[str]:
    """The arguments that this command shares with all commands that load an application."""
    given = [argument for each in sets or () for argument in ("--set", each)]
    config = None if config_file is None else str(config_file)
    return [file, *given, *_option("--config", config), *_option("--state-dir", state_dir)]


def _option(name: str, value: str | None) -> list[str]:
    return [] if value is None else [name, value]


def run_file(
    target: str,
    sets: Mapping[str, str],
    config_file: Path | None,
    *,
    fresh: bool,
    replay_from_ms: int | None = None,
    savepoint: str | None = None,
    version: KeptVersion | None = None,
    live: bool,
    engine: Engine | None = None,
    on_result: Callable[[RunResult], None] = lambda _: None,
) -> tuple[RunResult, int]:
    """Load and run the application of `target`; returns its result and the exit code.

    Raises what loading and the engine raise; `live` is whether standard error can show a live table.
    `on_result` is called with the result, before the application's own `when_finished` hooks.
    """
    config = load_config(config_file, sets)
    application = load_application(target, sets)
    engine = engine or spark_engine(config)
    view = _view(config, live)
    with StopSignals(view.on_stop_requested) as stop:
        with view.showing(), _messages_logged():
            listener = _Listener(view, stop)
            result = engine(
                application,
                config,
                listener,
                fresh=fresh,
                replay_from_ms=replay_from_ms,
                savepoint=savepoint,
                version=version,
            )
        result.check()
    on_result(result)
    if result.outcome is RunOutcome.FINISHED:
        application.call_finish_hooks(result)
    stopped = result.outcome is RunOutcome.STOPPED
    return result, stop.exit_code if stopped else 0


class _Listener:
    """The engine's listener: passes events to the view, and answers whether a signal has arrived."""

    def __init__(self, view: RunView, stop: StopSignals) -> None:
        self._view = view
        self._stop = stop

    def on_event(self, event: ProgressEvent) -> None:
        self._view.on_event(event)

    def stop_requested(self) -> bool:
        # The engine calls this several times a second, so lines appear on time even without events.
        self._view.tick()
        return self._stop.requested


def _view(config: Config, live: bool) -> RunView:
    if live:
        return LiveView(Console(stderr=True), redirect_stdout=sys.stdout.isatty())
    return LineView(sys.stderr, config[keys.PROGRESS_INTERVAL])


class _ToStandardError(logging.Handler):
    """Prints to the current standard error stream, which a live table replaces while it is shown."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            print_line(self.format(record), file=sys.stderr, flush=True)
        except Exception:  # noqa: BLE001 - logging's own rule: what cannot be logged stops nothing
            self.handleError(record)


@contextlib.contextmanager
def _messages_logged() -> Iterator[None]:
    """Show messages of `Stream.log` while the block runs, but no tracebacks of Spark's calls into Python.

    An error in such a call reaches the user as the error of the run; py4j would log it a second time if the
    application has configured logging.
    """
    handler = None if _MESSAGES.hasHandlers() else _ToStandardError()
    before = {logger: logger.level for logger in (_MESSAGES, _CALLBACKS)}
    if _MESSAGES.level == logging.NOTSET:
        _MESSAGES.setLevel(logging.INFO)
    if _CALLBACKS.level == logging.NOTSET:
        _CALLBACKS.setLevel(logging.CRITICAL)
    if handler is not None:
        _MESSAGES.addHandler(handler)
    try:
        yield
    finally:
        if handler is not None:
            _MESSAGES.removeHandler(handler)
        for logger, level in before.items():
            logger.setLevel(level)

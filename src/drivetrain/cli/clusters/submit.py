"""`drivetrain submit`: submits an application to a cluster.

Design: the file is loaded and planned here, so that all errors that need no Spark appear before anything is
sent. Attached (the default), the command shows the application's progress and ends with it, with the exit
code that `run` would have; Ctrl-C detaches. Detached, it returns once the application is accepted.

Called by `cli.main`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TextIO

import typer

from drivetrain.cli.arguments import (
    ConfigOption,
    FileArgument,
    JsonOption,
    SavepointOption,
    SetOption,
    load_config,
)
from drivetrain.cli.cluster_access import ConsoleOption, MastersOption, cluster_sets, connected_by
from drivetrain.cli.clusters.cluster_progress import result_of
from drivetrain.cli.clusters.follow_application import reattach_hint, watch
from drivetrain.cli.failure import error_as_data
from drivetrain.cli.json_output import print_json
from drivetrain.cli.standard_output import standard_output_reserved
from drivetrain.cli.views.run_summary import result_as_data, show_summary
from drivetrain.cluster.messages.applications import Priority
from drivetrain.config.catalog import run as run_keys
from drivetrain.core.job.run_progress import RunResult
from drivetrain.errors import DrivetrainError
from drivetrain.terminal import Console, print_line

if TYPE_CHECKING:
    from drivetrain.cluster.client import ReportEnd, Submission

_ATTACHED: Final = "Show progress until the application ends (the default), or return once it is accepted."


def submit_command(
    file: FileArgument,
    name: Annotated[
        str | None, typer.Option("--name", help="Name in the cluster; by default the one in the file.")
    ] = None,
    attached: Annotated[bool, typer.Option("--attached/--detached", help=_ATTACHED)] = True,
    sets: SetOption = None,
    config_file: ConfigOption = None,
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
    priority: Annotated[
        Priority, typer.Option("--priority", help="Priority of its requests for slots.")
    ] = Priority.NORMAL,
    directory: Annotated[
        Path | None,
        typer.Option("--directory", metavar="DIR", help="Send this whole directory, with the file in it."),
    ] = None,
    archives: Annotated[
        list[Path] | None,
        typer.Option(
            "--archive", metavar="FILE", help="Also send this archive (.zip, .whl, .tar.gz) or file."
        ),
    ] = None,
    masters: MastersOption = None,
    console: ConsoleOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run an application in a cluster. Ctrl-C only detaches: the application keeps running."""
    options = {
        "name": name,
        "directory": directory,
        "archives": archives or (),
        "fresh": fresh,
        "replay_from": replay_from,
        "from_savepoint": savepoint,
        "priority": priority,
    }
    given = cluster_sets(sets, masters, console)
    if not as_json:
        raise typer.Exit(_submit(file, given, config_file, options, attached=attached, output=None))
    with standard_output_reserved() as output:
        try:
            code = _submit(file, given, config_file, options, attached=attached, output=output)
        except DrivetrainError as error:
            _write(output, {"outcome": "failed", "error": error_as_data(error)})
            raise
    raise typer.Exit(code)


def _submit(
    file: str,
    sets: Mapping[str, str],
    config_file: Path | None,
    options: Mapping[str, Any],
    *,
    attached: bool,
    output: TextIO | None,
) -> int:
    from drivetrain.cluster.client import prepare_submission

    config = load_config(config_file, sets)
    submission = prepare_submission(file, sets, config, **options)
    with connected_by(config) as client:
        app_id = client.submit_prepared(submission)
        if not attached:
            _print_accepted(app_id, output)
            return 0
        print_line(f"accepted as {app_id}", file=sys.stderr, flush=True)
        end, code = watch(client, app_id, config[run_keys.PROGRESS_INTERVAL])
    if end is None:
        print_line(reattach_hint(app_id), file=sys.stderr)
        if output is not None:
            _write(output, {"outcome": "detached", "app_id": app_id})
        return code
    return _print_end(end, submission, output)


def _print_accepted(app_id: str, output: TextIO | None) -> None:
    if output is not None:
        _write(output, {"outcome": "accepted", "app_id": app_id})
        return
    print_line(f"accepted as {app_id}")
    print_line(f"  watch it: drivetrain show {app_id} --watch", file=sys.stderr)


def _print_end(end: ReportEnd, submission: Submission, output: TextIO | None) -> int:
    from drivetrain.cluster.client import error_of_end

    error = error_of_end(end)
    if error is not None:
        raise error
    result = _result(end, submission)
    printed = "" if end.status is None else end.status.printed
    if output is None:
        if result is None:
            print_line(f"{end.app_id} has finished")
        else:
            show_summary(result, Console())
        print_line(printed, end="")
        return 0
    data: dict[str, Any] = {"outcome": "finished"} if result is None else result_as_data(result)
    _write(output, {**data, "app_id": end.app_id, "printed": printed})
    return 0


def _result(end: ReportEnd, submission: Submission) -> RunResult | None:
    if end.status is None:
        return None
    operators = submission.plan.operators.values() if submission.plan is not None else ()
    sources = {operator.id for operator in operators if operator.how == "source"}
    return result_of(end.app_id, end.status, sources)


def _write(output: TextIO, data: Mapping[str, Any]) -> None:
    print_json(data, output)

"""`drivetrain console`: the console of a cluster, or of the runs of this machine, until Ctrl-C.

Called by `cli.main`.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Final

import typer

from drivetrain.cli.arguments import ConfigOption, JsonOption, LogFormatOption, SetOption, load_config
from drivetrain.cli.cluster_access import MastersOption, cluster_sets
from drivetrain.cli.until_signal import serve_until_signal
from drivetrain.config import split_sets
from drivetrain.config.catalog import console as keys
from drivetrain.config.catalog import log as log_keys
from drivetrain.config.catalog import run as run_keys
from drivetrain.config.process_log import log_to_standard_error
from drivetrain.console.addresses import ConsoleAddress
from drivetrain.errors import UserError
from drivetrain.terminal import print_line

TOKEN_VARIABLE: Final = "_DRIVETRAIN_CONSOLE_TOKEN"  # noqa: S105 - the name of the variable
"""Where the process that starts a console says with which token to sign in."""


def console_command(
    masters: MastersOption = None,
    state_dir: Annotated[
        str | None,
        typer.Option(
            "--state-dir",
            metavar="DIR",
            help="Show what drivetrain run runs with its state in DIR, and no cluster; sets state.dir.",
        ),
    ] = None,
    host: Annotated[
        str | None, typer.Option("--host", help="Address to listen at; sets console.host.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option("--port", min=0, max=65_535, help="Port to listen at; sets console.port."),
    ] = None,
    log_format: LogFormatOption = None,
    sets: SetOption = None,
    config_file: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run the console of a cluster, or of the runs of this machine: pages, REST, events and metrics."""
    from drivetrain.console.requirements import require_packages

    require_packages()
    if state_dir is not None and masters is not None:
        raise UserError(
            "a console shows a cluster or the runs of this machine",
            got="--masters and --state-dir",
            remedy="start one for each",
        )
    given = cluster_sets(sets, masters)
    if state_dir is not None:
        given[run_keys.STATE_DIR.name] = state_dir
    if host is not None:
        given[keys.HOST.name] = host
    if port is not None:
        given[keys.PORT.name] = str(port)
    if log_format is not None:
        given[log_keys.FORMAT.name] = log_format
    split_sets(given, ())
    from drivetrain.cluster.parent import tie_to_parent

    tie_to_parent()
    config = load_config(config_file, given)
    log_to_standard_error(config, process="console")
    from drivetrain.console.server import serve

    # The token of the command that started this console and prints its address, so that no log has it.
    token = os.environ.pop(TOKEN_VARIABLE, None)

    def ready(console: ConsoleAddress) -> None:
        if token is not None:
            print_line(f"console: {console.address}", flush=True)
        else:
            print_line(json.dumps(console.as_data) if as_json else f"console: {console.entry}", flush=True)

    of_runs, local = state_dir is not None, _local_directory()
    serve_until_signal(lambda stop: serve(config, stop, ready, token, of_runs=of_runs, local_directory=local))


def _local_directory() -> Path | None:
    """The directory of the `drivetrain local` that started this process."""
    from drivetrain.console.local_workers import DIRECTORY_VARIABLE

    named = os.environ.pop(DIRECTORY_VARIABLE, None)
    return None if named is None else Path(named)

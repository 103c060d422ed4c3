"""`drivetrain master` and `drivetrain worker`: one process of a cluster, until it is asked to stop.

They log to standard error, one line per entry, in text or JSON. When `drivetrain local` starts them, they
end with it, see `cluster.parent`.

Called by `cli.main`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated

import typer

from drivetrain.cli.arguments import ConfigOption, LogFormatOption, SetOption, load_config
from drivetrain.cli.cluster_access import MastersOption, cluster_sets
from drivetrain.cli.until_signal import serve_until_signal
from drivetrain.config import Config, split_sets
from drivetrain.config.catalog import log as log_keys
from drivetrain.config.catalog import master as master_keys
from drivetrain.config.catalog import worker as worker_keys
from drivetrain.config.process_log import log_to_standard_error
from drivetrain.config.references import scrub
from drivetrain.errors import DrivetrainError


def master_command(
    masters: MastersOption = None,
    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            min=0,
            max=65_535,
            help="Port of this master in the list of masters; needed with several on one machine.",
        ),
    ] = None,
    directory: Annotated[
        str | None,
        typer.Option("--directory", metavar="DIR", help="Directory for its state; sets master.directory."),
    ] = None,
    log_format: LogFormatOption = None,
    sets: SetOption = None,
    config_file: ConfigOption = None,
) -> None:
    """Run a master: one of those that elect a leader and keep the registry of applications."""
    given = cluster_sets(sets, masters)
    _add(given, master_keys.PORT.name, port)
    _add(given, master_keys.DIRECTORY.name, directory)
    _add(given, log_keys.FORMAT.name, log_format)
    from drivetrain.cluster.master.master_process import serve_master

    _serve("master", serve_master, given, config_file)


def worker_command(
    masters: MastersOption = None,
    name: Annotated[
        str | None,
        typer.Option("--name", help="Name of the worker, unique in the cluster; by default the host name."),
    ] = None,
    slots: Annotated[
        int | None,
        typer.Option("--slots", min=0, help="Slots that it offers; 0 means one per core that it may use."),
    ] = None,
    directory: Annotated[
        str | None,
        typer.Option("--directory", metavar="DIR", help="Directory for its files; sets worker.directory."),
    ] = None,
    log_format: LogFormatOption = None,
    sets: SetOption = None,
    config_file: ConfigOption = None,
) -> None:
    """Run a worker: it offers slots, and starts the processes of applications on this machine."""
    given = cluster_sets(sets, masters)
    _add(given, worker_keys.NAME.name, name)
    _add(given, worker_keys.SLOTS.name, slots)
    _add(given, worker_keys.DIRECTORY.name, directory)
    _add(given, log_keys.FORMAT.name, log_format)
    from drivetrain.cluster.worker import serve_worker

    _serve("worker", serve_worker, given, config_file)


def _add(given: dict[str, str], key: str, value: object) -> None:
    if value is not None:
        given[key] = str(value)


def _serve(
    process: str,
    serve: Callable[[Config, asyncio.Event], Awaitable[None]],
    given: dict[str, str],
    config_file: Path | None,
) -> None:
    from drivetrain.cli.clusters.local_secret import require_secret
    from drivetrain.cluster.parent import tie_to_parent

    tie_to_parent()
    split_sets(given, ())
    config = load_config(config_file, given)
    log_to_standard_error(config, process=process)
    try:
        require_secret(config, process)
        serve_until_signal(lambda stop: serve(config, stop))
    except DrivetrainError as error:
        if config[log_keys.FORMAT] != "json":
            raise
        scrub(error)
        logging.getLogger("drivetrain").critical("%s", error)  # one JSON object, like every other entry
        raise typer.Exit(error.exit_code) from error

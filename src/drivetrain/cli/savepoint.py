"""`drivetrain savepoint`: writes everything that an application needs to continue elsewhere to a directory.

An application that runs, or ran, on this machine is found in the state directory. With `--masters` the
application is one of a cluster; this is also the default if the configuration names a cluster and no state
directory was given.

Called by `cli.main`. Needs no Spark.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from drivetrain.cli.arguments import ConfigOption, JsonOption, SetOption, StateDirOption, load_config
from drivetrain.cli.cluster_access import (
    AppArgument,
    ConsoleOption,
    MastersOption,
    cluster_sets,
    connected_by,
    is_of_cluster,
)
from drivetrain.cli.json_output import print_json
from drivetrain.config import Config, split_sets
from drivetrain.config.catalog import client as client_keys
from drivetrain.config.catalog import run as run_keys
from drivetrain.core.figures import show_clock, show_counted, show_size
from drivetrain.errors import UserError
from drivetrain.runtime.checkpoints.savepoint_manifest import Manifest, read_manifest
from drivetrain.runtime.checkpoints.savepoint_place import savepoint_place
from drivetrain.runtime.checkpoints.savepoint_requests import make_savepoint_of
from drivetrain.runtime.checkpoints.stored_savepoint import uploaded_to
from drivetrain.runtime.objects.locations import is_in_object_store
from drivetrain.runtime.state_place import is_remote, shared_state_dir
from drivetrain.terminal import print_line


def savepoint_command(
    app: AppArgument,
    place: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="PLACE",
            help="Directory to write, or a place in an object store (s3://bucket/name); by default "
            "<state.dir>/savepoints/<id>-<time>.",
        ),
    ] = None,
    timeout: Annotated[str, typer.Option("--timeout", help="How long to wait for the checkpoint.")] = "1 min",
    masters: MastersOption = None,
    console: ConsoleOption = None,
    sets: SetOption = None,
    config_file: ConfigOption = None,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a savepoint of an application, whether or not it runs: `run` and `submit` start from it with
    --from.
    """
    given = cluster_sets(sets, masters, console)
    if state_dir is not None:
        given[run_keys.STATE_DIR.name] = state_dir
    split_sets(given, ())
    config = load_config(config_file, given)
    if is_of_cluster(config, state_dir):
        written, manifest = _of_cluster(app, place, timeout, config)
    else:
        written, manifest = make_savepoint_of(app, place, config, timeout)
    if manifest is None:
        print_line(json.dumps({"place": written}) if as_json else written)
        return
    if as_json:
        data = {
            "place": written,
            "app_id": manifest.app_id,
            "checkpoint": manifest.record.txid,
            "clock_ms": manifest.clock_ms,
            "bytes": manifest.bytes,
            "files": len(manifest.files),
        }
        print_json(data, sys.stdout)
        return
    print_line(
        f"{written}\n  checkpoint {manifest.record.txid} of {manifest.app_id}: "
        f"{show_counted(len(manifest.files), 'file')}, {show_size(manifest.bytes)}, "
        f"clock {show_clock(manifest.clock_ms)}"
    )


def _of_cluster(app: str, place: str | None, timeout: str, config: Config) -> tuple[str, Manifest | None]:
    """The place, and what was written there, if that can be read here."""
    with connected_by(config) as client:
        view = client.application(app)
        if is_remote(Config.load(None, {}, view.spec.config)):  # its application master sends it
            return str(client.savepoint(view.app_id, place, timeout)), None
        if config[client_keys.CONSOLE]:
            if place is not None and is_in_object_store(place):
                raise UserError(
                    "a savepoint in an object store is sent by this command, which must see its files",
                    where=place,
                    remedy="name a directory of the cluster, or give --masters where these can be reached",
                )
            made = Path(client.savepoint(app, place, timeout))
            return str(made), read_manifest(made) if made.is_dir() else None
        if place is not None and is_in_object_store(place):
            with uploaded_to(place, config) as directory:
                return place, read_manifest(Path(client.savepoint(view.app_id, directory, timeout)))
        chosen = savepoint_place(shared_state_dir(config), view.app_id) if place is None else Path(place)
        written = Path(client.savepoint(view.app_id, chosen, timeout))
        return str(written), read_manifest(written)

"""`drivetrain kill`: ends an application of a cluster.

Called by `cli.main`.
"""

from __future__ import annotations

import sys
from typing import Annotated, Final

import typer

from drivetrain.cli.arguments import ConfigOption, JsonOption, SetOption
from drivetrain.cli.cluster_access import AppArgument, ConsoleOption, MastersOption, connected
from drivetrain.cli.clusters.apps import view_as_data
from drivetrain.cli.json_output import print_json
from drivetrain.terminal import print_line

_GONE: Final = "1 min"


def kill_command(
    app: AppArgument,
    wait: Annotated[
        bool, typer.Option("--wait", help="Return only when all its processes have ended, within a minute.")
    ] = False,
    masters: MastersOption = None,
    console: ConsoleOption = None,
    sets: SetOption = None,
    config_file: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """End an application. Its committed batches stay, and `restart` continues after them."""
    with connected(sets, config_file, masters, console) as client:
        view = client.kill(app)
        if wait:
            client.wait_gone(view.app_id, _GONE)
    if as_json:
        print_json(view_as_data(view, ()), sys.stdout)
        return
    print_line(
        f"{view.app_id} is killed"
        if wait
        else f"{view.app_id} is killed; its processes end within some seconds"
    )

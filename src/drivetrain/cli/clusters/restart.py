"""`drivetrain restart`: starts an application of a cluster again, under its id and with its state.

Called by `cli.main`.
"""

from __future__ import annotations

import sys

from drivetrain.cli.arguments import ConfigOption, JsonOption, SetOption
from drivetrain.cli.cluster_access import AppArgument, ConsoleOption, MastersOption, connected
from drivetrain.cli.clusters.apps import view_as_data
from drivetrain.cli.json_output import print_json
from drivetrain.terminal import print_line


def restart_command(
    app: AppArgument,
    masters: MastersOption = None,
    console: ConsoleOption = None,
    sets: SetOption = None,
    config_file: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Start an application again from its last committed batches, whether or not it runs."""
    with connected(sets, config_file, masters, console) as client:
        view = client.restart(app)
    if as_json:
        print_json(view_as_data(view, ()), sys.stdout)
        return
    print_line(f"{view.app_id} starts again; `drivetrain show {view.app_id} --watch` shows how it goes")

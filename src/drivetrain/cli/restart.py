"""`drivetrain restart`: starts an application of a cluster again, under its id and with its state.

Called by `cli.main`.
"""

from __future__ import annotations

import json
import sys

from drivetrain.cli.apps import view_as_data
from drivetrain.cli.arguments import ConfigOption, JsonOption, SetOption
from drivetrain.cli.cluster_access import AppArgument, ConsoleOption, MastersOption, connected
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
        json.dump(view_as_data(view, ()), sys.stdout)
        sys.stdout.write("\n")
        return
    print_line(f"{view.app_id} starts again; `drivetrain show {view.app_id} --watch` shows how it goes")

"""`drivetrain unsubscribe`: ends subscriptions of another application to one that runs here or in a cluster.

Called by `cli.main`. Needs no Java.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from drivetrain.cli.arguments import (
    ConfigOption,
    JsonOption,
    SetOption,
    StateDirOption,
    load_config,
    parse_sets,
)
from drivetrain.cli.cluster_access import (
    AppArgument,
    ConsoleOption,
    MastersOption,
    connected_by,
    is_of_cluster,
    with_masters,
)
from drivetrain.cli.json_output import print_json
from drivetrain.runtime.control_requests import ask_to_unsubscribe
from drivetrain.runtime.find_application import directory_of
from drivetrain.terminal import print_line


def unsubscribe_command(
    app: AppArgument,
    reader: Annotated[
        str,
        typer.Argument(
            metavar="READER",
            help="The application that reads from it, by name or id, or one of its sources: READER/SOURCE.",
        ),
    ],
    masters: MastersOption = None,
    console: ConsoleOption = None,
    sets: SetOption = None,
    config_file: ConfigOption = None,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """End the subscriptions of READER to an application that runs here, or in a cluster, and delete what is
    kept for it.

    Use it for a reader that is gone for good. A running reader ends with an error; with --fresh it subscribes
    again.
    """
    config = load_config(config_file, with_masters(parse_sets(sets, state_dir), masters, console))
    name, _, source = reader.partition("/")
    if is_of_cluster(config, state_dir):
        with connected_by(config) as client:
            number = client.unsubscribe(app, reader)
    else:
        number = ask_to_unsubscribe(directory_of(app, config), name, source or None)
    if as_json:
        print_json({"version": number, "reader": name, "source": source or None}, sys.stdout)
    else:
        print_line(f"version {number} keeps nothing for {reader}")

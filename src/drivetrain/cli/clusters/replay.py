"""`drivetrain replay`: lets an application of a cluster process messages again from a timestamp on.

Called by `cli.main`.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from drivetrain.api.moments import moment_ms
from drivetrain.cli.arguments import ConfigOption, JsonOption, SetOption
from drivetrain.cli.cluster_access import AppArgument, ConsoleOption, MastersOption, connected
from drivetrain.cli.clusters.apps import view_as_data
from drivetrain.cli.json_output import print_json
from drivetrain.core.figures import show_clock
from drivetrain.terminal import print_line


def replay_command(
    app: AppArgument,
    replay_from: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="TIME",
            help="The oldest event time to process again: 2013-03-01T00:00 (UTC), or ms since 1970.",
        ),
    ],
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask before the state is replaced.")
    ] = False,
    masters: MastersOption = None,
    console: ConsoleOption = None,
    sets: SetOption = None,
    config_file: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Process messages from TIME on again, in a new life of an application, whether or not it runs.

    The new life starts with empty state; published output stays, and the new life adds to it.
    """
    from_ms = moment_ms(replay_from, "--from")
    with connected(sets, config_file, masters, console) as client:
        if not yes:
            before = client.application(app)
            typer.confirm(
                f"{before.app_id} is {before.state.value}: give its state up, and process again what is not "
                f"older than {show_clock(from_ms)} UTC?",
                abort=True,
                err=True,
            )
            app = before.app_id
        view = client.replay(app, from_ms)
    if as_json:
        print_json(view_as_data(view, ()), sys.stdout)
        return
    print_line(
        f"{view.app_id} is replayed from {show_clock(from_ms)} UTC; "
        f"`drivetrain show {view.app_id} --watch` shows how it goes"
    )

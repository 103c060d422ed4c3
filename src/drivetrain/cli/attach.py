"""`drivetrain attach`: adds processors after one of an application that runs here.

Called by `cli.main`. Needs no Java.
"""

from __future__ import annotations

from typing import Annotated

import typer

from drivetrain.api.graph_edits import attached
from drivetrain.cli.arguments import (
    ConfigOption,
    JsonOption,
    SetOption,
    StateDirOption,
    load_config,
    parse_sets,
)
from drivetrain.cli.changing import DryRunOption, Manner, TimeoutOption, YesOption
from drivetrain.cli.cluster_access import AppArgument
from drivetrain.cli.graph_edit import perform_edit
from drivetrain.code.application_file import load_function


def attach_command(
    app: AppArgument,
    file: Annotated[
        str,
        typer.Argument(metavar="FILE", help="A Python file with a function attach(stream), or FILE:NAME."),
    ],
    to: Annotated[str, typer.Option("--to", metavar="PROCESSOR", help="The processor to read from.")],
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    timeout: TimeoutOption = "1 min",
    sets: SetOption = None,
    config_file: ConfigOption = None,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add the processors of the function in FILE to an application that runs here, after PROCESSOR."""
    config = load_config(config_file, parse_sets(sets, state_dir))
    manner = Manner(yes, dry_run, timeout, as_json)
    perform_edit(app, lambda graph: attached(graph, to, load_function(file, "attach")), config, manner)

"""`drivetrain replace`: puts other processors in the place of one of an application that runs here.

Called by `cli.main`. Needs no Java.
"""

from __future__ import annotations

from typing import Annotated

import typer

from drivetrain.api.graph_edits import replaced
from drivetrain.cli.arguments import (
    ConfigOption,
    JsonOption,
    SetOption,
    StateDirOption,
    load_config,
    parse_sets,
)
from drivetrain.cli.changing import (
    DiscardOption,
    DryRunOption,
    EvenIfReadOption,
    Manner,
    TimeoutOption,
    YesOption,
)
from drivetrain.cli.cluster_access import AppArgument
from drivetrain.cli.graph_edit import perform_edit
from drivetrain.code.application_file import load_function


def replace_command(
    app: AppArgument,
    processor: Annotated[str, typer.Argument(metavar="PROCESSOR", help="The processor to replace.")],
    file: Annotated[
        str,
        typer.Argument(metavar="FILE", help="A Python file with a function replace(stream), or FILE:NAME."),
    ],
    discard: DiscardOption = False,
    even_if_read: EvenIfReadOption = False,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    timeout: TimeoutOption = "1 min",
    sets: SetOption = None,
    config_file: ConfigOption = None,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Replace PROCESSOR of an application that runs here with what the function in FILE returns."""
    config = load_config(config_file, parse_sets(sets, state_dir))
    manner = Manner(yes, dry_run, timeout, as_json)
    perform_edit(
        app,
        lambda graph: replaced(graph, processor, load_function(file, "replace")),
        config,
        manner,
        discards=discard,
        even_if_read=even_if_read,
    )

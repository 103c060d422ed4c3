"""`drivetrain replace`: puts other processors in the place of one of an application that runs here or in a
cluster.

Called by `cli.main`. Needs no Java.
"""

from __future__ import annotations

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
from drivetrain.cli.changes.changing import (
    AtOption,
    ChangeCommandOptions,
    DiscardOption,
    DropStateOption,
    DryRunOption,
    EvenIfReadOption,
    TimeoutOption,
    YesOption,
)
from drivetrain.cli.changes.graph_edit import Edit, perform_edit
from drivetrain.cli.cluster_access import (
    AppArgument,
    ConsoleOption,
    MastersOption,
    is_of_cluster,
    with_masters,
)
from drivetrain.core.change.change_options import ChangeOptions
from drivetrain.core.change.handover import time_given


def replace_command(
    app: AppArgument,
    processor: Annotated[str, typer.Argument(metavar="PROCESSOR", help="The processor to replace.")],
    file: Annotated[
        str,
        typer.Argument(metavar="FILE", help="A Python file with a function replace(stream), or FILE:NAME."),
    ],
    discard: DiscardOption = False,
    even_if_read: EvenIfReadOption = False,
    drop_state: DropStateOption = None,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    at: AtOption = "now",
    timeout: TimeoutOption = "1 min",
    masters: MastersOption = None,
    console: ConsoleOption = None,
    sets: SetOption = None,
    config_file: ConfigOption = None,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Replace PROCESSOR of an application that runs here, or in a cluster, with what the function in FILE
    returns.

    With --at it takes effect at an event time: both versions run until the clock reaches that time.
    """
    given = with_masters(parse_sets(sets, state_dir), masters, console)
    config = load_config(config_file, given)
    options = ChangeOptions(discard, even_if_read, tuple(drop_state or ()), time_given(at))
    manner = ChangeCommandOptions(yes, dry_run, timeout, as_json, options)
    in_cluster = is_of_cluster(config, state_dir)
    perform_edit(
        app,
        Edit("replace", processor, file),
        config,
        manner,
        in_cluster=in_cluster,
    )

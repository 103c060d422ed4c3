"""`drivetrain attach`: adds processors after a processor of an application that runs here or in a cluster.

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
    DryRunOption,
    HistoryOption,
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
from drivetrain.core.change.message_history import history_given


def attach_command(
    app: AppArgument,
    file: Annotated[
        str,
        typer.Argument(metavar="FILE", help="A Python file with a function attach(stream), or FILE:NAME."),
    ],
    to: Annotated[str, typer.Option("--to", metavar="PROCESSOR", help="The processor to read from.")],
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    at: AtOption = "now",
    history: HistoryOption = None,
    timeout: TimeoutOption = "1 min",
    masters: MastersOption = None,
    console: ConsoleOption = None,
    sets: SetOption = None,
    config_file: ConfigOption = None,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add the processors of the function in FILE to an application that runs here, or in a cluster, after
    PROCESSOR.

    With --at they get the messages from an event time on.
    """
    given = with_masters(parse_sets(sets, state_dir), masters, console)
    config = load_config(config_file, given)
    options = ChangeOptions(at=time_given(at), history_ms=history_given(history))
    manner = ChangeCommandOptions(yes, dry_run, timeout, as_json, options)
    in_cluster = is_of_cluster(config, state_dir)
    perform_edit(app, Edit("attach", to, file), config, manner, in_cluster=in_cluster)

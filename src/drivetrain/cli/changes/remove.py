"""`drivetrain remove`: removes a processor of an application that runs here or in a cluster, and
everything that reads from it.

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


def remove_command(
    app: AppArgument,
    processor: Annotated[str, typer.Argument(metavar="PROCESSOR", help="The processor to remove.")],
    discard: DiscardOption = False,
    even_if_read: EvenIfReadOption = False,
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
    """Remove PROCESSOR from an application that runs here, or in a cluster, with everything that reads from
    it.

    With --at it takes effect at an event time: the processor gets the messages before that.
    """
    given = with_masters(parse_sets(sets, state_dir), masters, console)
    config = load_config(config_file, given)
    options = ChangeOptions(discard, even_if_read, at=time_given(at))
    manner = ChangeCommandOptions(yes, dry_run, timeout, as_json, options)
    in_cluster = is_of_cluster(config, state_dir)
    perform_edit(
        app,
        Edit("remove", processor),
        config,
        manner,
        in_cluster=in_cluster,
    )

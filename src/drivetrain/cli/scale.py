"""`drivetrain scale`: divides the state of a fragment that runs here into another number of partitions.

Called by `cli.main`. Needs no Java.
"""

from __future__ import annotations

import sys
from typing import Annotated

import msgspec
import typer

from drivetrain.api.durations import milliseconds
from drivetrain.cli.arguments import (
    ConfigOption,
    JsonOption,
    SetOption,
    StateDirOption,
    load_config,
    parse_sets,
)
from drivetrain.cli.as_data import print_json
from drivetrain.cli.changing import YesOption, ask
from drivetrain.cli.cluster_access import AppArgument, is_of_cluster
from drivetrain.cli.comparison import in_force_of
from drivetrain.core.change.scaling_state import require_scaled
from drivetrain.errors import UserError
from drivetrain.runtime.control_requests import ask_planned_scaling, ask_to_scale, asked_state, wait_scaled
from drivetrain.terminal import print_line


def scale_command(
    app: AppArgument,
    fragment: Annotated[
        str, typer.Argument(metavar="FRAGMENT", help="The fragment, or a processor in it, as plan shows it.")
    ],
    partitions: Annotated[int, typer.Option("--partitions", min=1, help="How many state partitions.")],
    yes: YesOption = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would happen, and the size of the state.")
    ] = False,
    timeout: Annotated[
        str, typer.Option("--timeout", help="How long to wait for its end; the scaling continues anyway.")
    ] = "10 min",
    sets: SetOption = None,
    config_file: ConfigOption = None,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Divide the state of a fragment of an application that runs here into another number of partitions.

    Only this fragment pauses, while its state is moved. So many cores can work on its state at once.
    """
    wait_s = milliseconds(timeout, "--timeout") / 1000
    config = load_config(config_file, parse_sets(sets, state_dir))
    if is_of_cluster(config, state_dir):
        raise UserError(
            "fragments of a cluster cannot be scaled while they run",
            where=app,
            remedy="they keep the partitions of their first batch; one that starts over begins with "
            f"--set spark.shuffle-partitions={partitions}. For one that runs here give --state-dir",
        )
    rundir, _ = in_force_of(app, config)
    if dry_run or not as_json:
        planned = ask_planned_scaling(rundir, fragment, partitions)
        if as_json:
            print_json({"application": rundir.app_id, "planned": msgspec.to_builtins(planned)}, sys.stdout)
        else:
            print_line(planned.in_words)
        if dry_run:
            return
    if not yes and not as_json:
        ask()
    ask_to_scale(rundir, fragment, partitions)
    state = require_scaled(wait_scaled(lambda: asked_state(rundir), wait_s))
    if as_json:
        print_json({"application": rundir.app_id, "scaling": msgspec.to_builtins(state)}, sys.stdout)
    else:
        print_line(state.in_words)

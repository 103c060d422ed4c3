"""`drivetrain rollback`: changes an application that runs here back to an earlier version of its graph.

Called by `cli.main`. Needs no Java, nor the file that the version was written in.
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
from drivetrain.cli.changing import DiscardOption, DryRunOption, TimeoutOption, YesOption, perform
from drivetrain.cli.cluster_access import AppArgument
from drivetrain.cli.comparison import compared_with, in_force_of
from drivetrain.errors import UserError


def rollback_command(
    app: AppArgument,
    version: Annotated[
        int | None,
        typer.Argument(metavar="[VERSION]", min=1, help="By default the version before the one in force."),
    ] = None,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    discard: DiscardOption = False,
    timeout: TimeoutOption = "1 min",
    sets: SetOption = None,
    config_file: ConfigOption = None,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change an application that runs here back to an earlier version, which becomes the newest one.

    A version that is on trial is given up.
    """
    config = load_config(config_file, parse_sets(sets, state_dir))
    rundir, old = in_force_of(app, config)
    versions, number = rundir.versions, version or old.follows
    if number not in versions.numbers():
        raise UserError(
            f"there is no version {number} to go back to" if number else "there is no earlier version",
            where=rundir.app_id,
            expected=f"one of {', '.join(map(str, versions.numbers()))}",
            remedy="drivetrain versions shows them",
        )
    target, kept = versions.version(number), versions.code(number)
    compared = compared_with(rundir, old, target, discards=discard)

    def code() -> bytes:
        if kept is None:
            raise UserError(
                f"the code of version {number} was not kept",
                where=rundir.app_id,
                expected="a graph that can be pickled: no iterator of the application's own",
                remedy="update the application with the file that it was written in",
            )
        return kept

    perform(
        rundir,
        compared,
        target,
        code,
        how="rollback",
        gives_up=number == old.follows,
        discards=discard,
        yes=yes,
        dry_run=dry_run,
        timeout=timeout,
        as_json=as_json,
    )

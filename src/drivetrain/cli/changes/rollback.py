"""`drivetrain rollback`: changes an application that runs back to an earlier version of its graph.

Called by `cli.main`. Needs neither Java nor the file of that version.
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
    ChangeCommandOptions,
    DiscardOption,
    DropStateOption,
    DryRunOption,
    EmbeddedApplication,
    EmbeddedChange,
    EvenIfReadOption,
    TimeoutOption,
    YesOption,
    perform,
)
from drivetrain.cli.changes.cluster_versions import ClusterApplication, rolled_back_in_cluster
from drivetrain.cli.changes.comparison import compared_with, in_force_of, require_known
from drivetrain.cli.changes.history_cancellation import cancelled_history
from drivetrain.cli.cluster_access import (
    AppArgument,
    ConsoleOption,
    MastersOption,
    connected_by,
    is_of_cluster,
    with_masters,
)
from drivetrain.core.change.change_options import ChangeOptions
from drivetrain.core.change.change_state import not_kept


def rollback_command(
    app: AppArgument,
    version: Annotated[
        int | None,
        typer.Argument(
            metavar="[VERSION]",
            min=1,
            help="The version to return to; by default the one before the version in force.",
        ),
    ] = None,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    discard: DiscardOption = False,
    even_if_read: EvenIfReadOption = False,
    drop_state: DropStateOption = None,
    timeout: TimeoutOption = "1 min",
    masters: MastersOption = None,
    console: ConsoleOption = None,
    sets: SetOption = None,
    config_file: ConfigOption = None,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change an application that runs here, or in a cluster, back to an earlier version, which becomes the
    newest one.

    This cancels a version that is on trial, or whose former messages are still being read.
    """
    given = parse_sets(sets, state_dir)
    config = load_config(config_file, with_masters(given, masters, console))
    options = ChangeOptions(discards=discard, even_if_read=even_if_read, drops=tuple(drop_state or ()))
    manner = ChangeCommandOptions(yes, dry_run, timeout, as_json, options)
    if is_of_cluster(config, state_dir):
        with connected_by(config) as client:
            running = ClusterApplication(client, client.application(app).app_id)
            if version is None and cancelled_history(running, manner):
                return
            changeable, compared, follows = rolled_back_in_cluster(client, app, version, options)
            perform(changeable, compared, manner, gives_up=changeable.number == follows)
        return
    rundir, old = in_force_of(app, config)
    if version is None and cancelled_history(EmbeddedApplication(rundir), manner):
        return
    versions, number = rundir.versions, version or old.follows
    require_known(number, versions.numbers(), rundir.app_id)
    target, kept = versions.version(number), versions.code(number)
    compared = compared_with(rundir, old, target, options)

    def code() -> bytes:
        if kept is None:
            raise not_kept(number, rundir.app_id)
        return kept

    change = EmbeddedChange(rundir, target, code, old.number, "rollback", options)
    perform(change, compared, manner, gives_up=number == old.follows)

"""`drivetrain update`: changes an application while it runs embedded here.

Shows what changes, processor by processor, asks, has the application do it, and waits for the end of the
trial. The application loads nothing that this process has not: its code goes through the state directory.

Called by `cli.main`. Needs no Java.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer

from drivetrain.cli.arguments import (
    ConfigOption,
    FileArgument,
    JsonOption,
    SetOption,
    StateDirOption,
    load_config,
    parse_sets,
)
from drivetrain.cli.changing import TimeoutOption, YesOption, perform
from drivetrain.cli.cluster_access import AppArgument
from drivetrain.cli.comparison import compared_with, in_force_of
from drivetrain.code.application_file import load_application
from drivetrain.code.fingerprint import fingerprint
from drivetrain.core.change.graph_version import version_of
from drivetrain.core.change.handover import time_given
from drivetrain.core.plan.configured import configured_plan
from drivetrain.errors import UserError

AtOption: TypeAlias = Annotated[
    str,
    typer.Option(
        "--at",
        metavar="TIME",
        help="A time of the messages, from which on the new version gets them: ISO 8601, milliseconds, "
        "next-window, or now (with the next batch).",
    ),
]


def update_command(
    app: AppArgument,
    file: FileArgument,
    yes: YesOption = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would change: what plan --against shows.")
    ] = False,
    at: AtOption = "now",
    timeout: TimeoutOption = "1 min",
    sets: SetOption = None,
    config_file: ConfigOption = None,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change an application that runs here to the graph in FILE, between two batches of each fragment.

    With --at it takes effect at a time of the messages: both versions run until the clock is there. Settings
    are those of the running application.
    """
    takes_effect = time_given(at)
    given = parse_sets(sets, state_dir)
    config = load_config(config_file, given)
    rundir, old = in_force_of(app, config)
    known = {name: str(value) for name, value in rundir.settings.items()}
    application = load_application(file, {**known, **given})
    new = {name: str(value) for name, value in application.naming_settings.items()}
    if (application.name, new) != (rundir.application, known):
        raise UserError(
            "the file holds another application",
            where=file,
            expected=f"{rundir.application} with the settings {known or 'of no name'}",
            got=f"{application.name} with {new or 'no settings'}",
            remedy="the name and the settings of an application cannot change",
        )
    graph = application.graph()
    plan = configured_plan(graph, config)
    version = version_of(plan, fingerprint)
    compared = compared_with(rundir, old, version)

    def code() -> bytes:
        from drivetrain.spark.prepare.graph_code import graph_as_code

        return graph_as_code(graph)

    perform(
        rundir,
        compared,
        version,
        code,
        how="update",
        yes=yes,
        dry_run=dry_run,
        at=takes_effect,
        timeout=timeout,
        as_json=as_json,
    )

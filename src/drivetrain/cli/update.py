"""`drivetrain update`: changes an application while it runs embedded here.

Shows what changes, processor by processor, asks, has the application do it, and waits for the end of the
trial. The application loads nothing that this process has not: its code goes through the state directory.

Called by `cli.main`. Needs no Java.
"""

from __future__ import annotations

from drivetrain.cli.arguments import (
    ConfigOption,
    FileArgument,
    JsonOption,
    SetOption,
    StateDirOption,
    load_config,
    parse_sets,
)
from drivetrain.cli.changing import DiscardOption, DryRunOption, TimeoutOption, YesOption, perform
from drivetrain.cli.cluster_access import AppArgument
from drivetrain.cli.comparison import compared_with, in_force_of
from drivetrain.code.application_file import load_application
from drivetrain.code.fingerprint import fingerprint
from drivetrain.core.change.graph_version import version_of
from drivetrain.core.plan.configured import configured_plan
from drivetrain.errors import UserError


def update_command(
    app: AppArgument,
    file: FileArgument,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    discard: DiscardOption = False,
    timeout: TimeoutOption = "1 min",
    sets: SetOption = None,
    config_file: ConfigOption = None,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change an application that runs here to the graph in FILE, between two batches of each fragment.

    Settings are those of the running application.
    """
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
    compared = compared_with(rundir, old, version, discards=discard)

    def code() -> bytes:
        from drivetrain.spark.prepare.graph_code import graph_as_code

        return graph_as_code(graph)

    perform(
        rundir,
        compared,
        version,
        code,
        how="update",
        discards=discard,
        yes=yes,
        dry_run=dry_run,
        timeout=timeout,
        as_json=as_json,
    )

"""`drivetrain update`: changes an application while it runs embedded here, or in a cluster.

Shows what changes, processor by processor, asks the user, requests the change, and waits for the end of the
trial. Code for an application that runs here is passed through the state directory, code for a cluster like
that of a submission.

Called by `cli.main`. Needs no Java.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, TypeAlias

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
    EmbeddedChange,
    EvenIfReadOption,
    HistoryOption,
    TimeoutOption,
    YesOption,
    perform,
)
from drivetrain.cli.changes.cluster_versions import updated_in_cluster
from drivetrain.cli.changes.comparison import Comparison, compared_with, in_force_of, next_application
from drivetrain.cli.changes.configuration_update import configure
from drivetrain.cli.cluster_access import (
    AppArgument,
    ConsoleOption,
    MastersOption,
    connected_by,
    is_of_cluster,
    with_masters,
)
from drivetrain.config import Config
from drivetrain.core.change.change_options import ChangeOptions
from drivetrain.core.change.handover import time_given
from drivetrain.core.change.message_history import history_given
from drivetrain.core.plan.configured import configured_plan
from drivetrain.runtime.planned_version import planned_version
from drivetrain.runtime.sink_places import refuse_shared_places

OptionalFile: TypeAlias = Annotated[
    str | None,
    typer.Argument(metavar="[FILE]", help="The application: a Python file, or FILE:NAME for one of several."),
]
UnsetOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--unset",
        metavar="KEY",
        help="Reset a configuration key to the value with which the application was started; may be given "
        "several times.",
    ),
]


def update_command(
    app: AppArgument,
    file: OptionalFile = None,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    discard: DiscardOption = False,
    even_if_read: EvenIfReadOption = False,
    drop_state: DropStateOption = None,
    at: AtOption = "now",
    history: HistoryOption = None,
    timeout: TimeoutOption = "1 min",
    masters: MastersOption = None,
    console: ConsoleOption = None,
    sets: SetOption = None,
    unset: UnsetOption = None,
    config_file: ConfigOption = None,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change an application that runs here, or in a cluster, to the graph in FILE, between two batches of
    each fragment.

    With --at it takes effect at an event time: both versions run until the clock reaches that time. With
    --history it takes effect once messages from before it were read again for its new fragments. Settings
    are those of the running application.

    Without FILE, --set and --unset change configuration keys from the next batch on: how long and large
    batches may be, the interval of checkpoints, and how many dead letters are kept.
    """
    takes_effect = time_given(at)
    given = parse_sets(sets, state_dir)
    config = load_config(config_file, with_masters(given, masters, console))
    if file is None or unset:
        in_cluster = is_of_cluster(config, state_dir)
        configure(app, file, given, unset or (), config, in_cluster=in_cluster, as_json=as_json)
        return
    drops, from_ms = tuple(drop_state or ()), history_given(history)
    options = ChangeOptions(discard, even_if_read, drops, takes_effect, from_ms)
    manner = ChangeCommandOptions(yes, dry_run, timeout, as_json, options)
    if not is_of_cluster(config, state_dir):
        perform(*_here(app, file, given, config, options), manner)
        return
    with connected_by(config) as client:
        changeable, compared = updated_in_cluster(client, app, file, given, config, options)
        perform(changeable, compared, manner)


def _here(
    app: str,
    file: str,
    given: Mapping[str, str],
    config: Config,
    options: ChangeOptions,
) -> tuple[EmbeddedChange, Comparison]:
    """The change of an application that runs here to the graph in a file."""
    rundir, old = in_force_of(app, config)
    graph = next_application(rundir, file, given).graph()
    plan = refuse_shared_places(configured_plan(graph, config))
    version = planned_version(plan)

    def code() -> bytes:
        from drivetrain.spark.prepare.graph_code import graph_as_code

        return graph_as_code(graph)

    compared = compared_with(rundir, old, version, options)
    change = EmbeddedChange(rundir, version, code, old.number, "update", options)
    return change, compared

"""`drivetrain update --set` without a file: changes the configuration of an application that runs here, or in
a cluster.

Called by `update`. Needs no Java.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from drivetrain.cli.changes.comparison import in_force_of
from drivetrain.cli.cluster_access import connected_by
from drivetrain.cli.json_output import print_json
from drivetrain.config import Config
from drivetrain.config.catalog import run
from drivetrain.core.job.changeable_keys import CHANGEABLE, require_changeable
from drivetrain.errors import UserError
from drivetrain.runtime.control_requests import ask_to_configure
from drivetrain.runtime.running_config import ChangedValue
from drivetrain.terminal import print_line

_OF_THE_COMMAND: Final = frozenset({run.STATE_DIR.name, run.WRITERS.name})
"""Keys that say where the application is: they are for the command itself."""
_OF_THE_CONNECTION: Final = ("cluster.", "client.")
"""How the keys begin that say where the cluster is, and how it is asked."""


def configure(
    app: str,
    file: str | None,
    given: Mapping[str, str],
    restored: Sequence[str],
    config: Config,
    *,
    in_cluster: bool,
    as_json: bool,
) -> None:
    """Have an application use other values of configuration keys, and print what is different now.

    Raises UserError for a file beside it, ConfigError for what cannot change, and UnavailableError when the
    application does not run.
    """
    if file is not None:
        raise UserError(
            "the graph and the configuration change one after the other",
            where="--unset",
            remedy="leave the file out, or --unset",
        )
    values = {name: text for name, text in given.items() if not _is_of_the_command(name, in_cluster)}
    if not values and not restored:
        raise UserError(
            "there is nothing to change",
            expected="FILE with the new graph, or --set KEY=VALUE, or --unset KEY",
            remedy=f"keys that may change are {', '.join(CHANGEABLE)}",
        )
    require_changeable([*values, *restored])
    change = _changed_in_cluster if in_cluster else _changed_here
    app_id, changed = change(app, values, restored, config)
    if as_json:
        print_json({"application": app_id, "changed": msgspec.to_builtins(changed)}, sys.stdout)
        return
    for value in changed:
        print_line(f"{value.name}: {value.before} → {value.after}, from the next batch on")
    if not changed:
        print_line("nothing has changed: these are the values already")


def _is_of_the_command(name: str, in_cluster: bool) -> bool:
    return name in _OF_THE_COMMAND or (in_cluster and name.startswith(_OF_THE_CONNECTION))


def _changed_here(
    app: str, values: Mapping[str, str], restored: Sequence[str], config: Config
) -> tuple[str, Sequence[ChangedValue]]:
    rundir, _ = in_force_of(app, config)
    return rundir.app_id, ask_to_configure(rundir, values, restored)


def _changed_in_cluster(
    app: str, values: Mapping[str, str], restored: Sequence[str], config: Config
) -> tuple[str, Sequence[ChangedValue]]:
    with connected_by(config) as client:
        app_id = client.application(app).app_id
        return app_id, client.configure(app_id, values, restored)

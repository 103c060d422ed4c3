"""`drivetrain update --set` without a file: changes the configuration of an application that runs here.

Called by `update`. Needs no Java.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from drivetrain.cli.comparison import in_force_of
from drivetrain.config import Config
from drivetrain.config.catalog import run
from drivetrain.core.job.changeable_keys import CHANGEABLE, require_changeable
from drivetrain.errors import UserError
from drivetrain.runtime.control_requests import ask_to_configure
from drivetrain.terminal import print_line

_OF_THE_COMMAND: Final = frozenset({run.STATE_DIR.name, run.WRITERS.name})
"""Keys that say where the application is: they are for the command itself."""


def configure(
    app: str,
    file: str | None,
    given: Mapping[str, str],
    restored: Sequence[str],
    config: Config,
    *,
    as_json: bool,
) -> None:
    """Have an application use other values of configuration keys, and print what is different now.

    Raises UserError for a file beside it, ConfigError for what cannot change, and UnavailableError when the
    application does not run here.
    """
    if file is not None:
        raise UserError(
            "the graph and the configuration change one after the other",
            where="--unset",
            remedy="leave the file out, or --unset",
        )
    values = {name: text for name, text in given.items() if name not in _OF_THE_COMMAND}
    if not values and not restored:
        raise UserError(
            "nothing says what is to change",
            expected="FILE with the new graph, or --set KEY=VALUE, or --unset KEY",
            remedy=f"keys that may change are {', '.join(CHANGEABLE)}",
        )
    require_changeable([*values, *restored])
    rundir, _ = in_force_of(app, config)
    changed = ask_to_configure(rundir, values, restored)
    if as_json:
        json.dump({"application": rundir.app_id, "changed": msgspec.to_builtins(changed)}, sys.stdout)
        sys.stdout.write("\n")
        return
    for value in changed:
        print_line(f"{value.name}: {value.before} → {value.after}, from the next batch on")
    if not changed:
        print_line("nothing has changed: these are the values already")

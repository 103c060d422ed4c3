"""Finds the application for a request: for its states, or for a savepoint.

Design: an `Application`'s name and settings determine where its state is. A name or an id alone is looked up
in the state directory of the configuration, which stores the name of each application.

Called by `drivetrain.state`, `drivetrain.savepoint` and the commands that compare versions.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from drivetrain.api.application import Application
from drivetrain.config import Config
from drivetrain.config.catalog import run as run_keys
from drivetrain.errors import InputError, UserError
from drivetrain.private_files import Writers
from drivetrain.runtime.run_directory import RunDirectory
from drivetrain.runtime.run_notes import known_in
from drivetrain.runtime.state_place import state_home


def directory_of(application: Application | str, config: Config) -> RunDirectory:
    """The state directory of an application; raises `UserError` if none has that name or id."""
    if isinstance(application, str):
        return _found(application, config)
    settings = application.naming_settings
    return RunDirectory(state_home(config), application.name, settings, Writers(config[run_keys.WRITERS]))


def _found(name: str, config: Config) -> RunDirectory:
    state_dir, writers = Path(state_home(config)), Writers(config[run_keys.WRITERS])
    known: dict[str, tuple[str, dict[str, Any]]] = {}
    for file in sorted(state_dir.glob("*/application.json")):
        try:
            stored = known_in(file.parent)
        except InputError:
            if name in (file.parent.name, file.parent.name.rpartition("-")[0]):
                raise
            continue  # of another application
        known[file.parent.name] = (stored.get("application", ""), stored.get("settings", {}))
    ids = [id for id, (called, _) in known.items() if name in (id, called)]
    if len(ids) == 1:
        return RunDirectory(str(state_dir), *known[ids[0]], writers)
    if not ids:
        raise UserError(
            f"no application {name!r} has state here",
            where=str(state_dir),
            expected=f"one of {', '.join(sorted(known))}" if known else "an application that has run",
            got=name,
            remedy="run it, or pass its --state-dir or configuration",
        )
    raise UserError(
        f"several applications are called {name!r}, with different settings",
        where=str(state_dir),
        expected=f"one of {', '.join(ids)}",
        got=name,
    )

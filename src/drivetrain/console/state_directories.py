"""Finds the state directory of an application of the cluster on the machine of the console.

Problem: the application master does not know the state directory of its executors; and the directory's name
depends on the application's file, which must not run in the console.

Design: the planning process that makes the graph also returns the values that name the directory (see
`planning`); they are kept with the graph. The directory is that of the application's configuration, relative
to where it was submitted; the console reads it if it is mounted here too, as it must be for the workers.

Called by `console.services`, for the handlers of dead letters, states and versions.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from drivetrain.cluster.messages.applications import ApplicationView
from drivetrain.config import Config
from drivetrain.config.catalog import run as run_keys
from drivetrain.console.planning.planning import Planning
from drivetrain.console.problems import RequestError
from drivetrain.private_files import Writers
from drivetrain.runtime.run_directory import RunDirectory
from drivetrain.runtime.state_place import is_remote

NOT_HERE: Final = "state-not-here"


async def state_of(planning: Planning, view: ApplicationView) -> RunDirectory:
    """The state directory of an application.

    Raises RequestError if it is not here, and what `Planning.graph` raises.
    """
    spec = view.spec
    name = await planning.state_name(spec)
    config = Config.load(None, {}, spec.config)
    if is_remote(config):
        raise RequestError(
            "the console does not see the state of an application on its worker",
            code=NOT_HERE,
            where=config[run_keys.STATE_DIR],
            expected="a state in a directory that the console shares with the workers",
            remedy=f"use the command on the machine of the worker that runs it (now {view.worker}), with "
            f"{run_keys.WORK_DIR.name} set to `states` in the worker's directory",
        )
    state_dir = Path(spec.directory, config[run_keys.STATE_DIR])
    writers = Writers(config[run_keys.WRITERS])
    rundir = RunDirectory(str(state_dir), name.application, name.settings, writers)
    if not rundir.path.is_dir():
        raise RequestError(
            "the console finds no state of this application",
            code=NOT_HERE,
            where=str(rundir.path),
            expected="the state directory of the application, on a file system that the console shares with "
            "the workers",
            remedy="mount it where the console runs, at the same path; an application that has just been "
            "submitted has a state once it runs",
        )
    return rundir

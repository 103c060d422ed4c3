"""Changes of a run: to an uploaded graph, and back to an earlier version.

Problem: a run accepts a change over its control socket, as the record and the code of a version. The record
of an earlier version is in its state directory; that of an uploaded file is made in a process of its own.

Design: the same steps as `drivetrain update` and `drivetrain rollback`: compare with the version in force,
refuse an impossible change, send the change to the run, wait for the end of the trial.

Invariants:

1. A change is made only to the version that it was planned against.
2. No code is loaded here.

Called by `console.handlers.changes`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from drivetrain.console.planning.change_plans import can_be_made, not_taken, verdict_of
from drivetrain.console.problems import RequestError
from drivetrain.core.change.change_options import NO_OPTIONS, ChangeOptions
from drivetrain.core.change.change_state import RolledBackError, require_done
from drivetrain.core.change.difference import Difference, difference
from drivetrain.core.change.graph_version import GraphVersion, Made
from drivetrain.core.change.live_change import Stage
from drivetrain.errors import UserError
from drivetrain.runtime.checkpoints.transaction_file import CheckpointFiles
from drivetrain.runtime.control_requests import ask_change, ask_to_give_up, asked_state, wait_ended
from drivetrain.runtime.run_directory import RunDirectory

TRIAL_S: Final = 300.0
"""How long an operation waits for the end of a trial; the trial continues after that."""


def in_force_of(rundir: RunDirectory) -> GraphVersion:
    """The version in force; raises RequestError when none is recorded."""
    version = rundir.versions.in_force()
    if version is None:
        raise RequestError(
            "no version of this application is recorded", code="not-found", where=rundir.app_id
        )
    return version


def compared(rundir: RunDirectory, old: GraphVersion, new: GraphVersion) -> Difference:
    """The difference between the version in force and another one."""
    return difference(old, new, has_checkpoints=CheckpointFiles(rundir.home).are_periodic)


def change(
    rundir: RunDirectory,
    version: GraphVersion,
    code: bytes,
    against: int,
    options: ChangeOptions = NO_OPTIONS,
) -> Mapping[str, str]:
    """Change the run to a version that was compared with version `against`; waits for the end of the trial.

    Raises RequestError when that is impossible, and RolledBackError when it fails.
    """
    old = in_force_of(rundir)
    if old.number != against:
        raise RequestError(
            f"version {against} is not in force any more",
            code="changed-meanwhile",
            where=rundir.app_id,
            got=f"version {old.number} is",
            remedy="look at the plan of the change again",
        )
    return _made(rundir, old, version, code, "update", options)


def roll_back(rundir: RunDirectory, number: int) -> Mapping[str, str]:
    """Change the run back to an earlier version; the one in force is cancelled if it is on trial."""
    old, state = in_force_of(rundir), asked_state(rundir)
    if number == old.number:
        raise RequestError(
            f"version {number} is in force", code="bad-request", where=rundir.app_id, remedy="choose another"
        )
    if number == old.follows and (state.number, state.stage) == (old.number, Stage.ON_TRIAL):
        ask_to_give_up(rundir, old.number)
        try:
            require_done(wait_ended(lambda: asked_state(rundir), old.number, TRIAL_S))
        except RolledBackError:
            return {"version": str(number)}
        raise RequestError(
            f"version {old.number} was not cancelled: its trial had ended already",
            code="changed-meanwhile",
            where=rundir.app_id,
            remedy="go back once more",
        )
    code = rundir.versions.code(number)
    if code is None:
        raise UserError(
            f"the code of version {number} was not kept",
            where=rundir.app_id,
            expected="a graph that can be pickled, without a literal secret",
            remedy="change to the file that it was written in",
        )
    return _made(rundir, old, rundir.versions.version(number), code, "rollback")


def _made(
    rundir: RunDirectory,
    old: GraphVersion,
    new: GraphVersion,
    code: bytes,
    how: Made,
    options: ChangeOptions = NO_OPTIONS,
) -> Mapping[str, str]:
    found = compared(rundir, old, new)
    if not can_be_made(found):
        raise not_taken(rundir.app_id, verdict_of(found))
    number = ask_change(rundir, new, code, old.number, how, options)
    done = require_done(wait_ended(lambda: asked_state(rundir), number, TRIAL_S))
    return {"version": str(done)}

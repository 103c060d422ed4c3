"""Cancels a change that has not begun because the messages from before it are still being read.

Such a change has not recorded a version that a rollback could undo, so `drivetrain rollback` looks for such a
change first.

Called by `drivetrain rollback`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import msgspec

from drivetrain.cli.arguments import duration_ms
from drivetrain.cli.changes.changing import ChangeCommandOptions, ask, require_cancelled
from drivetrain.cli.json_output import print_json
from drivetrain.errors import UnavailableError
from drivetrain.terminal import print_line

if TYPE_CHECKING:
    from drivetrain.runtime.run_directory import RunDirectory


def cancelled_history(rundir: RunDirectory, manner: ChangeCommandOptions) -> bool:
    """Cancel the change whose former messages are being read; whether there was one.

    Raises UserError when it came into force nevertheless, and UnavailableError when it is not cancelled in
    time.
    """
    from drivetrain.runtime.control_requests import ask_to_give_up, asked_state, wait_ended

    try:
        state = asked_state(rundir)
    except UnavailableError:
        return False  # it does not run
    if state.history is None or not state.is_reading_history:
        return False
    if not manner.as_json:
        print_line(f"version {state.number} is not in force yet: {state.history.in_words}")
    if manner.dry_run:
        return True
    if not (manner.yes or manner.as_json):
        ask()
    ask_to_give_up(rundir, state.number)
    wait_s = duration_ms(manner.timeout, "--timeout") / 1000
    ended = wait_ended(lambda: asked_state(rundir), state.number, wait_s)
    require_cancelled(rundir.app_id, ended)
    if manner.as_json:
        print_json({"cancelled": state.number, "history": msgspec.to_builtins(ended.history)}, sys.stdout)
    else:
        print_line(f"version {state.number} was cancelled, version {ended.version} continues")
    return True

"""Cancels a change that has not begun because the messages from before it are still being read.

Such a change has not recorded a version that a rollback could undo, so `drivetrain rollback` looks for such a
change first.

Called by `drivetrain rollback` and `drivetrain versions`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import msgspec

from drivetrain.cli.arguments import duration_ms
from drivetrain.cli.changes.changing import (
    ChangeCommandOptions,
    ChangingApplication,
    ask,
    require_cancelled,
)
from drivetrain.cli.json_output import print_json
from drivetrain.errors import UnavailableError
from drivetrain.terminal import print_line

if TYPE_CHECKING:
    from drivetrain.core.change.change_state import ChangeState


def cancelled_history(application: ChangingApplication, manner: ChangeCommandOptions) -> bool:
    """Cancel the change whose former messages are being read; whether there was one.

    Raises UserError when it came into force nevertheless, and UnavailableError when it is not cancelled in
    time.
    """
    state = coming_of(application)
    if state is None or state.history is None:
        return False
    if not manner.as_json:
        print_line(f"version {state.number} is not in force yet: {state.history.in_words}")
    if manner.dry_run:
        return True
    if not (manner.yes or manner.as_json):
        ask()
    application.give_up(state.number)
    ended = application.wait_ended(state.number, duration_ms(manner.timeout, "--timeout") / 1000)
    require_cancelled(application.app_id, ended)
    if manner.as_json:
        print_json({"cancelled": state.number, "history": msgspec.to_builtins(ended.history)}, sys.stdout)
    else:
        print_line(f"version {state.number} was cancelled, version {ended.version} continues")
    return True


def coming_of(application: ChangingApplication) -> ChangeState | None:
    """The change that has not begun, because messages from before it are being read; None without one."""
    try:
        state = application.state()
    except UnavailableError:
        return None  # it does not run
    return state if state.is_reading_history else None

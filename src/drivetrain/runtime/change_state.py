"""The state of a change of a running application: as data, as text for users, and as an error.

Called by `live_changes`, and by modules that ask an application (`control_requests`, `running_application`).
"""

from __future__ import annotations

import msgspec

from drivetrain.core.change.live_change import Outcome, Stage, TellEnd
from drivetrain.errors import UnavailableError, UserError


class ChangeUnderwayError(UserError):
    """Another change of the application is under way."""

    code = "change-underway"


class RolledBackError(UserError):
    """The new version has failed, and the application went back to the one before."""

    code = "rolled-back"
    exit_code = 3
    user_traceback: str | None = None


class ChangeState(msgspec.Struct, frozen=True):
    """The version in force, and the change that is under way or was the last of this run.

    `stage` is how far the change is, `outcome` how it has ended; `awaited` are the fragments whose first
    batch with the version is waited for; `fragment` and `why` say what made it go back.
    """

    version: int
    stage: Stage = Stage.IDLE
    number: int = 0
    before: int = 0
    awaited: tuple[str, ...] = ()
    outcome: Outcome | None = None
    fragment: str | None = None
    why: str | None = None


def require_done(state: ChangeState) -> int:
    """The version of a change that is done; raises RolledBackError, UnavailableError if it has not ended or
    could not be recorded."""
    if state.outcome is Outcome.DONE:
        return state.number
    if state.outcome is Outcome.ROLLED_BACK:
        error = RolledBackError(
            f"version {state.number} has failed, and was rolled back",
            where=None if state.fragment is None else f"fragment {state.fragment}",
            remedy=f"correct it and update again; version {state.before} continues",
        )
        error.user_traceback = state.why
        raise error
    if state.outcome is None:
        raise UnavailableError(
            f"the change to version {state.number} has not ended",
            got=f"it is {state.stage}"
            + (f" until {', '.join(state.awaited)} commit" if state.awaited else ""),
            remedy="it continues: drivetrain versions shows it",
        )
    raise UnavailableError(
        f"the change to version {state.number} was given up", got=state.why, remedy="nothing has changed"
    )


def show_end(ended: TellEnd) -> str:
    """The outcome of a change, as text for users."""
    change = ended.change
    match ended.outcome:
        case Outcome.DONE:
            return (
                f"version {change.number} is in force: every changed fragment has committed a batch with it"
            )
        case Outcome.ROLLED_BACK:
            why = (
                ended.why if ended.fragment is None else f"fragment {ended.fragment} has failed: {ended.why}"
            )
            return f"version {change.number} was rolled back, version {change.before} continues: {why}"
        case Outcome.REFUSED:
            return f"the change to version {change.number} was given up: {ended.why}"

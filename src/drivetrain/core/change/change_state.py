"""The state of a change of a running application: as data, as text for users, and as an error.

Called by `spark.run.live_changes` and application masters, and by modules that ask an application to change.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from drivetrain.api.moments import moment_text
from drivetrain.core.change.change_events import Change, Outcome, ReportOutcome
from drivetrain.core.change.change_stages import ChangeStage, unproven
from drivetrain.core.change.handover import Handover
from drivetrain.core.change.live_change import Stage
from drivetrain.core.change.message_history import HistoryState
from drivetrain.core.change.scaling_state import ScalingState
from drivetrain.errors import UnavailableError, UserError


class ChangeUnderwayError(UserError):
    """Another change of the application is under way."""

    code = "change-underway"


class RolledBackError(UserError):
    """The new version has failed, and the application has rolled back."""

    code = "rolled-back"
    exit_code = 3
    user_traceback: str | None = None


class ChangeState(msgspec.Struct, frozen=True):
    """The version in force, and the current or last change of this run.

    `stage` is the stage of the change, `outcome` how it has ended; `awaited` are the fragments in which no
    message has reached the version yet; `fragment` and `why` give the reason of a rollback. `at_ms` is the
    time of the messages at which the previous version hands over, `both` are the fragments that run both
    versions until then, and `clock_ms` is their smallest clock. `stages` is the change's history, `scaling`
    the current or last scaling of a fragment. `history` is how far the messages from before the change were
    read for its new fragments, if it asks for that.
    """

    version: int
    stage: Stage = Stage.IDLE
    number: int = 0
    before: int = 0
    awaited: tuple[str, ...] = ()
    outcome: Outcome | None = None
    fragment: str | None = None
    why: str | None = None
    at_ms: int | None = None
    both: tuple[str, ...] = ()
    clock_ms: int | None = None
    stages: tuple[ChangeStage, ...] = ()
    scaling: ScalingState | None = None
    history: HistoryState | None = None

    @property
    def unproven(self) -> tuple[str, ...]:
        """The fragments that no message has reached during the trial."""
        return unproven(self.stages)

    @property
    def is_reading_history(self) -> bool:
        """Whether the change has not begun, because messages from before it are being read."""
        return self.history is not None and not self.history.is_over and self.outcome is None

    @property
    def handing_over(self) -> str | None:
        """The progress of a handover, in words; None without one."""
        if self.at_ms is None or not self.both:
            return None
        clock = "not known yet" if self.clock_ms is None else f"at {moment_text(self.clock_ms)}"
        return f"takes effect at {moment_text(self.at_ms)}; the clock is {clock}"

    @property
    def in_words(self) -> str | None:
        """What is under way, in words: a change, a handover or a scaling; None if nothing is."""
        if self.scaling is not None and not self.scaling.is_over:
            return self.scaling.in_words
        if self.history is not None and self.is_reading_history:
            return self.history.of_change(self.number)
        if self.stage is not Stage.IDLE:
            awaited = f", waiting for messages in {', '.join(self.awaited)}" if self.awaited else ""
            handed_over = "" if self.handing_over is None else f"; it {self.handing_over}"
            return f"version {self.number} is {self.stage}{awaited}{handed_over}"
        return None if self.handing_over is None else f"version {self.version} {self.handing_over}"


def underway(state: ChangeState) -> ChangeUnderwayError:
    """The error of a change that is refused because of another one."""
    if state.scaling is not None and not state.scaling.is_over:
        return ChangeUnderwayError(
            "a fragment of the application is being scaled",
            got=state.scaling.in_words,
            remedy="wait until that has ended",
        )
    awaited = f", which waits for messages in {', '.join(state.awaited)}" if state.awaited else ""
    named = f"the change to version {state.number}" if state.number else "another change"
    if state.history is not None and state.is_reading_history:
        return ChangeUnderwayError(
            "another change of the application is under way",
            got=f"{named} waits for its history: {state.history.in_words}",
            remedy="wait until it has ended; drivetrain rollback cancels it",
        )
    return ChangeUnderwayError(
        "another change of the application is under way",
        got=f"{named} is {state.stage}{awaited}" if state.number else f"{named} is being compiled",
        remedy="wait until it has ended; drivetrain versions shows it",
    )


def not_kept(number: int, application: str) -> UserError:
    """The error of a rollback to a version whose code is not in the state directory."""
    return UserError(
        f"the code of version {number} was not kept",
        where=application,
        expected="a graph that can be pickled: no iterator of the application's own",
        remedy="update the application with the file that it was written in",
    )


def require_on_trial(state: ChangeState, number: int) -> None:
    """Raise UserError unless version `number` is on trial."""
    if (state.number, state.stage) != (number, Stage.ON_TRIAL):
        raise UserError(
            f"version {number} is not on trial",
            got=f"version {state.version} is in force",
            remedy="drivetrain versions shows how it ended",
        )


def require_done(state: ChangeState) -> int:
    """Return the version of a finished change; raises RolledBackError, or UnavailableError if it has not
    ended or could not be recorded."""
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
            + (f" until messages have passed {', '.join(state.awaited)}" if state.awaited else ""),
            remedy="it continues: drivetrain versions shows it",
        )
    raise UnavailableError(
        f"the change to version {state.number} was cancelled", got=state.why, remedy="nothing has changed"
    )


def refused_by_handover(handover: Handover, both: Iterable[str]) -> ChangeUnderwayError:
    """The error of a change during a handover, which the fragments `both` have not ended yet."""
    return ChangeUnderwayError(
        f"version {handover.before} is handing over to version {handover.number}",
        got=f"{', '.join(both)} run both until their clock is at {moment_text(handover.at_ms)}",
        expected="one change at a time",
        remedy="wait for that, or go back with drivetrain rollback",
    )


def show_trial(change: Change, at_ms: int | None) -> str:
    """The beginning of a trial, as text for users; the version takes effect at `at_ms`, if that is given."""
    waits = ", ".join(sorted(change.touched))
    at = "" if at_ms is None else f"; it takes effect at {moment_text(at_ms)}"
    return f"version {change.number} is in force, and on trial until messages have passed {waits}{at}"


def unproven_in_words(fragments: Iterable[str]) -> str:
    """Text for users about fragments that got no message during a trial.

    >>> unproven_in_words(["hourly"])
    'no message has reached it in hourly: what fails there later is not rolled back'
    """
    return f"no message has reached it in {', '.join(fragments)}: what fails there later is not rolled back"


def show_handed_over(handover: Handover) -> str:
    """The end of a handover, as text for users."""
    return (
        f"version {handover.before} has handed over to version {handover.number}: "
        f"the clock has reached {moment_text(handover.at_ms)}"
    )


def ended_state(ended: ReportOutcome, in_force: int) -> ChangeState:
    """The state after the end of a change, with version `in_force`."""
    number, before = ended.change.number, ended.change.before
    how = (ended.outcome, ended.fragment, ended.why)
    return ChangeState(in_force, Stage.IDLE, number, before, (), *how)


def show_end(ended: ReportOutcome) -> str:
    """The outcome of a change, as text for users."""
    change = ended.change
    match ended.outcome:
        case Outcome.DONE if ended.unproven:
            return f"version {change.number} is in force, but {unproven_in_words(ended.unproven)}"
        case Outcome.DONE:
            return (
                f"version {change.number} is in force: every changed fragment has processed messages with it"
            )
        case Outcome.ROLLED_BACK:
            why = (
                ended.why if ended.fragment is None else f"fragment {ended.fragment} has failed: {ended.why}"
            )
            return f"version {change.number} was rolled back, version {change.before} continues: {why}"
        case Outcome.REFUSED:
            return f"the change to version {change.number} was cancelled: {ended.why}"

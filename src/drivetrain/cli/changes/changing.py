"""A change of a running application, as a user sees it: the difference, the question, the change, its end.

Called by `drivetrain update` and `drivetrain rollback`, and by `graph_edit`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Protocol, TypeAlias

import msgspec
import typer

from drivetrain.cli.arguments import duration_ms
from drivetrain.cli.changes.comparison import Comparison, show_comparison
from drivetrain.cli.json_output import print_json
from drivetrain.core.change.change_events import Outcome
from drivetrain.core.change.change_options import NO_OPTIONS, ChangeOptions
from drivetrain.core.change.change_stages import with_durations
from drivetrain.core.change.change_state import unproven_in_words
from drivetrain.core.change.graph_version import GraphVersion, Made
from drivetrain.core.change.live_change import Stage
from drivetrain.errors import UnavailableError, UserError
from drivetrain.terminal import Console, print_line

if TYPE_CHECKING:
    from drivetrain.core.change.change_state import ChangeState
    from drivetrain.runtime.run_directory import RunDirectory

YesOption: TypeAlias = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
DryRunOption: TypeAlias = Annotated[
    bool, typer.Option("--dry-run", help="Only show what would change: what plan --against shows.")
]
DiscardOption: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--discard", help="Stop removed fragments at once, without processing the messages that they have."
    ),
]
DropStateOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--drop-state",
        metavar="ID",
        help="The processor ID may begin with an empty state, if its state does not fit; may be given "
        "several times.",
    ),
]
AtOption: TypeAlias = Annotated[
    str,
    typer.Option(
        "--at",
        metavar="TIME",
        help="The event time from which on the new version processes messages: ISO 8601, ms since 1970, "
        "next-window, or now (with the next batch).",
    ),
]
EvenIfReadOption: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--even-if-read",
        help="Also change or remove streams that other applications read; refused otherwise.",
    ),
]
HistoryOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--history",
        metavar="FROM",
        help="New fragments also get the messages from this time on that were before the change: ISO 8601, "
        "or ms since 1970. They are read again from the sources first.",
    ),
]
TimeoutOption: TypeAlias = Annotated[
    str,
    typer.Option("--timeout", help="How long to wait for the end of the trial; the trial continues anyway."),
]


class ChangingApplication(Protocol):
    """An application that runs."""

    @property
    def app_id(self) -> str:
        """The application, for errors."""

    def state(self) -> ChangeState:
        """The state of the change; raises UnavailableError when the application does not answer."""

    def give_up(self, number: int) -> None:
        """Cancel the change to a version that is on trial, or whose former messages are being read.

        Raises UserError when it is neither.
        """

    def wait_ended(self, number: int, wait_s: float) -> ChangeState:
        """The state when the trial of a version has ended, or after so many seconds."""


class ChangeTarget(ChangingApplication, Protocol):
    """An application that runs, and a version to which it is to change."""

    def change(self) -> int:
        """Change it; returns the number of the version once that is in force, or former messages are being
        read for it. Raises the refusal, if there is one."""


@dataclass(frozen=True)
class EmbeddedApplication:
    """The application that runs here in `rundir`; see `ChangingApplication`."""

    rundir: RunDirectory

    @property
    def app_id(self) -> str:
        """The application's id."""
        return self.rundir.app_id

    def state(self) -> ChangeState:
        """See `ChangingApplication`."""
        from drivetrain.runtime.control_requests import asked_state

        return asked_state(self.rundir)

    def give_up(self, number: int) -> None:
        """See `ChangingApplication`."""
        from drivetrain.runtime.control_requests import ask_to_give_up

        ask_to_give_up(self.rundir, number)

    def wait_ended(self, number: int, wait_s: float) -> ChangeState:
        """See `ChangingApplication`."""
        from drivetrain.runtime.control_requests import wait_ended

        try:
            return wait_ended(self.state, number, wait_s)
        except UnavailableError:
            if not self.rundir.is_free():
                raise  # it runs, and has not answered, or another change has followed
            self.rundir.release()
            in_force = self.rundir.versions.in_force()
            raise UnavailableError(
                "the application ended before the change did",
                where=self.rundir.app_id,
                got=f"version {None if in_force is None else in_force.number} is in force",
                remedy="run it with the same file: it continues there",
            ) from None


@dataclass(frozen=True)
class EmbeddedChange(EmbeddedApplication):
    """A change of the application that runs here, to `version`, whose graph `code` makes.

    `against` is the version that it was compared with.
    """

    version: GraphVersion
    code: Callable[[], bytes]
    against: int
    how: Made
    options: ChangeOptions = NO_OPTIONS

    def change(self) -> int:
        """See `ChangeTarget`."""
        from drivetrain.runtime.control_requests import ask_change

        return ask_change(self.rundir, self.version, self.code(), self.against, self.how, self.options)


@dataclass(frozen=True)
class ChangeCommandOptions:
    """How a command is to change an application: the options that all such commands have, and those of the
    change."""

    yes: bool
    dry_run: bool
    timeout: str
    as_json: bool
    options: ChangeOptions = NO_OPTIONS


def perform(
    changeable: ChangeTarget, compared: Comparison, manner: ChangeCommandOptions, *, gives_up: bool = False
) -> None:
    """Show a change, ask, do it, and wait for its end.

    With `gives_up` it leads to the version before the one in force, which is given up if it is on trial.
    Raises typer.Exit with the command's exit code, and why the application refuses the change.
    """
    wait_s, as_json = duration_ms(manner.timeout, "--timeout") / 1000, manner.as_json
    found = compared.difference
    if not as_json:
        show_comparison(compared, Console())
    if gives_up and not manner.dry_run and _is_on_trial(changeable, compared.old.number):
        _give_up(changeable, compared, wait_s, yes=manner.yes or as_json, as_json=as_json)
        return
    is_possible = not (found.refused or found.after_stop)
    if manner.dry_run or found.is_empty or not is_possible:
        _tell(compared, None, as_json=as_json)
        raise typer.Exit(0 if is_possible else 2)
    if not manner.yes and not as_json:
        ask()
    number = changeable.change()
    if not as_json:
        print_line(f"version {number} is compiled; it {_takes_effect(changeable, manner.options)}")
    state = changeable.wait_ended(number, wait_s)
    _tell(compared, state, as_json=as_json)
    if state.outcome is Outcome.ROLLED_BACK:
        raise typer.Exit(3)
    if state.outcome is Outcome.REFUSED:
        raise typer.Exit(4)


def _takes_effect(changeable: ChangeTarget, options: ChangeOptions) -> str:
    with_next_batch = "takes effect with the next batch of what it changes"
    if options.at is None and options.history_ms is None:
        return with_next_batch
    state = changeable.state()
    if state.history is not None and state.is_reading_history:
        return f"takes effect when {state.history.in_words}"
    return state.handing_over or with_next_batch


def _is_on_trial(changeable: ChangeTarget, number: int) -> bool:
    state = changeable.state()
    return (state.number, state.stage) == (number, Stage.ON_TRIAL)


def _give_up(
    changeable: ChangeTarget, compared: Comparison, wait_s: float, *, yes: bool, as_json: bool
) -> None:
    """Go back from the version in force, which is on trial: no other change is possible meanwhile."""
    number = compared.old.number
    if not yes:
        ask()
    changeable.give_up(number)
    state = changeable.wait_ended(number, wait_s)
    _tell(compared, state, as_json=as_json)
    require_cancelled(changeable.app_id, state)


def require_cancelled(app_id: str, state: ChangeState) -> None:
    """Raise the error for a change that came into force nevertheless, or has not ended in time."""
    if state.outcome is Outcome.DONE:
        raise UserError(
            f"version {state.number} was not cancelled: its trial had ended already",
            where=app_id,
            remedy="drivetrain rollback returns to the previous version with another change",
        )
    if state.outcome is None:
        raise UnavailableError(
            f"version {state.number} is not cancelled yet",
            where=app_id,
            got=f"it is {state.stage}",
            remedy="drivetrain versions shows how it ends; the run shows why if it cannot go back",
        )


def ask() -> None:
    """Ask whether to change the application; raises UserError without a terminal, Abort for a no."""
    if not sys.stdin.isatty():
        raise UserError(
            "cannot ask for confirmation",
            expected="a terminal",
            got="input that is not a terminal",
            remedy="pass --yes",
        )
    typer.confirm("Change the running application?", abort=True)


def _tell(compared: Comparison, state: ChangeState | None, *, as_json: bool) -> None:
    if as_json:
        change = None
        if state is not None:
            change = {
                "version": state.number,
                "outcome": state.outcome,
                "stage": state.stage,
                "awaited": list(state.awaited),
                "unproven": list(state.unproven),
                "fragment": state.fragment,
                "why": state.why,
                "at_ms": state.at_ms,
                "both": list(state.both),
                "clock_ms": state.clock_ms,
                "history": msgspec.to_builtins(state.history),
                "stages": with_durations(state.stages),
            }
        print_json({**compared.as_dict(), "change": change}, sys.stdout)
    elif state is not None:
        print_line(_in_words(state))


def _in_words(state: ChangeState) -> str:
    match state.outcome:
        case Outcome.DONE if state.unproven:
            return f"version {state.number} is in force, but {unproven_in_words(state.unproven)}"
        case Outcome.DONE:
            later = "" if state.handing_over is None else f"; it {state.handing_over}"
            return f"version {state.number} is in force{later}"
        case Outcome.ROLLED_BACK if state.fragment is None:
            return f"version {state.number} was cancelled, version {state.before} continues"
        case Outcome.ROLLED_BACK:
            return (
                f"version {state.number} has failed in fragment {state.fragment} and was rolled back; "
                f"version {state.before} continues\n{state.why}"
            )
        case Outcome.REFUSED:
            return f"version {state.number} did not come into force; nothing has changed\n{state.why}"
        case None if state.history is not None and state.is_reading_history:
            return (
                f"version {state.number} is not in force yet: {state.history.in_words}; drivetrain versions "
                "shows the progress, drivetrain rollback cancels it"
            )
        case None:
            waits = f": no message has passed {', '.join(state.awaited)} yet" if state.awaited else ""
            if state.handing_over is not None:
                waits = f"; it {state.handing_over}"
            stands = f"version {state.number} is in force and {state.stage}{waits}"
            return f"{stands}; drivetrain versions shows how it ends"

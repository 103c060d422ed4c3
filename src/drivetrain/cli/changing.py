"""A change of a running application, as a user sees it: the difference, the question, the change, its end.

Called by `drivetrain update` and `drivetrain rollback`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from drivetrain.api.durations import milliseconds
from drivetrain.cli.comparison import Comparison, show_comparison
from drivetrain.core.change.change_stages import with_durations
from drivetrain.core.change.graph_version import GraphVersion, Made
from drivetrain.core.change.handover import At
from drivetrain.core.change.live_change import Outcome, Stage
from drivetrain.errors import UnavailableError, UserError
from drivetrain.terminal import Console, print_line

if TYPE_CHECKING:
    from drivetrain.runtime.run_directory import RunDirectory
    from drivetrain.spark.run.change_state import ChangeState

YesOption: TypeAlias = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
TimeoutOption: TypeAlias = Annotated[
    str,
    typer.Option("--timeout", help="How long to wait for the end of the trial; the trial continues anyway."),
]


def perform(
    rundir: RunDirectory,
    compared: Comparison,
    version: GraphVersion,
    code: Callable[[], bytes],
    *,
    how: Made,
    gives_up: bool = False,
    yes: bool,
    dry_run: bool,
    at: At = None,
    timeout: str,
    as_json: bool,
) -> None:
    """Show a change, ask, do it, and wait for its end; `code` makes the graph of `version`.

    `at` is when it is to take effect. With `gives_up` it is the version before the one in force, which is
    given up if it is on trial. Raises typer.Exit with the command's exit code, and why the application
    refuses the change.
    """
    wait_s = milliseconds(timeout, "--timeout") / 1000
    found = compared.difference
    if not as_json:
        show_comparison(compared, Console())
    if gives_up and not dry_run and _is_on_trial(rundir, compared.old.number):
        _give_up(rundir, compared, wait_s, yes=yes or as_json, as_json=as_json)
        return
    is_possible = not (found.refused or found.after_stop)
    if dry_run or found.is_empty or not is_possible:
        _tell(compared, None, as_json=as_json)
        raise typer.Exit(0 if is_possible else 2)
    if not yes and not as_json:
        _ask()
    state = _changed(rundir, compared, version, code(), how, at, wait_s, as_json=as_json)
    _tell(compared, state, as_json=as_json)
    if state.outcome is Outcome.ROLLED_BACK:
        raise typer.Exit(3)
    if state.outcome is Outcome.REFUSED:
        raise typer.Exit(4)


def _is_on_trial(rundir: RunDirectory, number: int) -> bool:
    from drivetrain.spark.run.change_requests import asked_state

    state = asked_state(rundir)
    return (state.number, state.stage) == (number, Stage.ON_TRIAL)


def _give_up(rundir: RunDirectory, compared: Comparison, wait_s: float, *, yes: bool, as_json: bool) -> None:
    """Go back from the version in force, which is on trial: no other change is possible meanwhile."""
    from drivetrain.spark.run.change_requests import ask_to_give_up, asked_state, wait_ended

    number = compared.old.number
    if not yes:
        _ask()
    ask_to_give_up(rundir, number)
    state = wait_ended(lambda: asked_state(rundir), number, wait_s)
    _tell(compared, state, as_json=as_json)
    if state.outcome is Outcome.DONE:
        raise UserError(
            f"version {number} was not given up: its trial has ended before that",
            where=rundir.app_id,
            remedy="drivetrain rollback goes back by another change",
        )
    if state.outcome is None:
        raise UnavailableError(
            f"version {number} is not given up yet",
            where=rundir.app_id,
            got=f"it is {state.stage}",
            remedy="drivetrain versions shows how it ends; the run says why if it cannot go back",
        )


def _ask() -> None:
    if not sys.stdin.isatty():
        raise UserError(
            "nobody can be asked whether to change the application",
            expected="a terminal",
            got="an input that is none",
            remedy="say --yes",
        )
    typer.confirm("Change the running application?", abort=True)


def _changed(
    rundir: RunDirectory,
    compared: Comparison,
    version: GraphVersion,
    code: bytes,
    how: Made,
    at: At,
    wait_s: float,
    *,
    as_json: bool,
) -> ChangeState:
    """The state of the change when it has ended, or after `wait_s` seconds if it has not."""
    from drivetrain.spark.run.change_requests import ask_change, asked_state, wait_ended

    number = ask_change(rundir, version, code, compared.old.number, how, at)
    if not as_json:
        later = asked_state(rundir).handing_over if at is not None else None
        when = later or "takes effect with the next batch of what it changes"
        print_line(f"version {number} is compiled; it {when}")
    try:
        return wait_ended(lambda: asked_state(rundir), number, wait_s)
    except UnavailableError:
        if not rundir.is_free():
            raise  # it runs, and has not answered, or another change has followed
        rundir.release()
        in_force = rundir.versions.in_force()
        raise UnavailableError(
            "the application has ended before the change has",
            where=rundir.app_id,
            got=f"version {None if in_force is None else in_force.number} is in force",
            remedy="run it with the same file: it continues there",
        ) from None


def _tell(compared: Comparison, state: ChangeState | None, *, as_json: bool) -> None:
    if as_json:
        change = None
        if state is not None:
            change = {
                "version": state.number,
                "outcome": state.outcome,
                "stage": state.stage,
                "awaited": list(state.awaited),
                "fragment": state.fragment,
                "why": state.why,
                "at_ms": state.at_ms,
                "both": list(state.both),
                "clock_ms": state.clock_ms,
                "stages": with_durations(state.stages),
            }
        json.dump({**compared.as_dict(), "change": change}, sys.stdout)
        sys.stdout.write("\n")
    elif state is not None:
        print_line(_in_words(state))


def _in_words(state: ChangeState) -> str:
    match state.outcome:
        case Outcome.DONE:
            later = "" if state.handing_over is None else f"; it {state.handing_over}"
            return f"version {state.number} is in force{later}"
        case Outcome.ROLLED_BACK if state.fragment is None:
            return f"version {state.number} was given up, version {state.before} continues"
        case Outcome.ROLLED_BACK:
            return (
                f"version {state.number} has failed in fragment {state.fragment} and was rolled back; "
                f"version {state.before} continues\n{state.why}"
            )
        case Outcome.REFUSED:
            return f"version {state.number} could not be recorded, nothing has changed\n{state.why}"
        case None:
            waits = f": no batch of {', '.join(state.awaited)} was committed yet" if state.awaited else ""
            if state.handing_over is not None:
                waits = f"; it {state.handing_over}"
            stands = f"version {state.number} is in force and {state.stage}{waits}"
            return f"{stands}; drivetrain versions shows how it ends"

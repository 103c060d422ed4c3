"""What changes when an application continues with another graph: as data and as a table.

Called by `drivetrain plan --against`, `drivetrain versions`, and the commands that change an application.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from drivetrain.code.application_file import load_application, load_same
from drivetrain.config import Config
from drivetrain.core.change.change_options import NO_OPTIONS, ChangeOptions
from drivetrain.core.change.difference import Change, ChangeKind, Difference, difference
from drivetrain.core.change.dropped_states import require_states
from drivetrain.core.change.graph_version import GraphVersion
from drivetrain.core.change.message_history import read_again, require_histories
from drivetrain.core.figures import show_clock, show_counted
from drivetrain.core.plan.configured import configured_plan
from drivetrain.core.plan.plan import Plan
from drivetrain.errors import UserError
from drivetrain.runtime.checkpoints.checkpoint_mode import makes_checkpoints
from drivetrain.runtime.checkpoints.transaction_file import CheckpointFiles
from drivetrain.runtime.planned_version import planned_version
from drivetrain.terminal import Console, Table, Text

if TYPE_CHECKING:
    from drivetrain.api.application import Application
    from drivetrain.runtime.run_directory import RunDirectory

STYLES: Final = {
    ChangeKind.KEPT: "dim",
    ChangeKind.SWAPPED: "yellow",
    ChangeKind.STARTED: "green",
    ChangeKind.RESTARTED: "yellow",
    ChangeKind.DROPPED: "bold yellow",
    ChangeKind.STOPPED: "magenta",
    ChangeKind.DRAINED: "magenta",
    ChangeKind.AFTER_STOP: "bold yellow",
    ChangeKind.REFUSED: "bold red",
}


@dataclass(frozen=True)
class Comparison:
    """The difference between `old` and `new`; `against` is the name of `old` in printed text."""

    against: str
    old: GraphVersion
    new: GraphVersion
    difference: Difference
    history_ms: int | None = None
    """From when on new fragments also get the messages that were before; None: not at all."""

    def as_dict(self) -> dict[str, Any]:
        """As plain data for `--json`."""
        return {
            "application": self.old.application,
            "version": self.old.number or None,
            "made_at_ms": self.old.made_at_ms or None,
            "made_by": self.old.made_by or None,
            "continues": not (
                self.difference.refused or self.difference.while_it_runs or self.difference.dropped
            ),
            "changes_while_it_runs": not (self.difference.refused or self.difference.after_stop),
            "dropped_states": list(self.difference.dropped),
            "history_ms": self.history_ms,
            "read_again": {} if self.history_ms is None else dict(read_again(self.old, self.new)),
            "changes": [asdict(change) for change in self.difference.changes],
        }


def names_file(against: str) -> bool:
    """Whether a text names an application's file, not an application that has run."""
    return against.partition(":")[0].endswith(".py") or Path(against).is_file()


def application_against(file: str, against: str, config: Config, given: Mapping[str, str]) -> Application:
    """Load the next version of an application that has run here, with its settings, as `update` does.

    Raises UserError if there is no such application, or the file holds another one.
    """
    rundir, _ = in_force_of(against, config)
    return next_application(rundir, file, given)


def next_application(rundir: RunDirectory, file: str, given: Mapping[str, str]) -> Application:
    """Load the next version of the application of `rundir`, with its settings; raises as `load_same`."""
    known = {name: str(value) for name, value in rundir.settings.items()}
    return load_same(file, given, rundir.application, known)


def compare(
    plan: Plan, against: str, config: Config, sets: Mapping[str, str], options: ChangeOptions = NO_OPTIONS
) -> Comparison:
    """Compare a plan with an application that has run here (name or id), or with one in a file.

    Raises UserError if there is no such application, and whatever loading the file raises.
    """
    new = planned_version(plan)
    if not names_file(against):
        rundir, in_force = in_force_of(against, config)
        return compared_with(rundir, in_force, new, options)
    application = load_application(against, sets)
    before = configured_plan(application.graph(), config)
    old, has_checkpoints = planned_version(before), makes_checkpoints(before, config)
    require_states(old, options.drops)
    require_histories(old, new, options)
    found = difference(old, new, has_checkpoints=has_checkpoints, options=options)
    return Comparison(against, old, new, found, options.history_ms)


def in_force_of(app: str, config: Config) -> tuple[RunDirectory, GraphVersion]:
    """Where an application has its state, and the version in force; raises UserError when there is none."""
    from drivetrain.runtime.find_application import directory_of

    rundir = directory_of(app, config)
    version = rundir.versions.in_force()
    if version is None:
        raise UserError(
            f"no version of {rundir.app_id} is recorded",
            where=str(rundir.path),
            expected="an application that has run here",
            remedy="start it with drivetrain run; or compare with its file: drivetrain plan --against FILE",
        )
    return rundir, version


def compared_with(
    rundir: RunDirectory,
    in_force: GraphVersion,
    new: GraphVersion,
    options: ChangeOptions = NO_OPTIONS,
) -> Comparison:
    """Compare a graph with the version in force of the application that has its state in `rundir`.

    Raises UserError when the options name a state that there is not.
    """
    has_checkpoints = CheckpointFiles(rundir.home).are_periodic
    return compared_versions(rundir.app_id, in_force, new, options, has_checkpoints=has_checkpoints)


def compared_versions(
    app_id: str,
    in_force: GraphVersion,
    new: GraphVersion,
    options: ChangeOptions = NO_OPTIONS,
    *,
    has_checkpoints: bool,
) -> Comparison:
    """Compare a graph with the version in force of the application `app_id`; raises like `compared_with`."""
    require_states(in_force, options.drops)
    require_histories(in_force, new, options)
    found = difference(in_force, new, has_checkpoints=has_checkpoints, options=options)
    compared = _compared(app_id, in_force, new, found)
    return dataclasses.replace(compared, history_ms=options.history_ms)


def _compared(app_id: str, in_force: GraphVersion, new: GraphVersion, found: Difference) -> Comparison:
    by = f" by {in_force.made_by}" if in_force.made_by else ""
    recorded = f"{show_clock(in_force.made_at_ms)} UTC{by}"
    return Comparison(f"version {in_force.number} of {app_id}, {recorded}", in_force, new, found)


def require_known(number: int, numbers: Sequence[int], app_id: str) -> None:
    """Raise UserError unless there is such a version to go back to."""
    if number not in numbers:
        raise UserError(
            f"there is no version {number} to go back to" if number else "there is no earlier version",
            where=app_id,
            expected=f"one of {', '.join(map(str, numbers))}",
            remedy="drivetrain versions shows them",
        )


def show_comparison(compared: Comparison, console: Console) -> None:
    """Print the change of every processor, and whether the application can continue."""
    found = compared.difference
    console.print(Text.assemble((compared.old.application, "bold"), f" against {compared.against}"))
    if found.is_empty:
        console.print("nothing changes")
        return
    kept = [change for change in found.changes if change.fate is ChangeKind.KEPT]
    table = Table()
    table.add_names("processor", "", "why", "before", "after")
    for change in found.changes:
        if change not in kept:
            fate = Text(change.fate, STYLES[change.fate])
            table.add_row(change.id, fate, change.why, *_definitions(change))
    console.print(table)
    if kept:
        console.print(Text(f"kept: {', '.join(change.id for change in kept)}", "dim"))
    console.print(_verdict(found))


def _definitions(change: Change) -> tuple[str, str]:
    if change.before == change.after:
        return "", ""
    return change.before or "", change.after or ""


def _verdict(found: Difference) -> str:
    if found.dropped and not (found.refused or found.after_stop):
        return (
            f"The application can take these changes while it runs: update it. The state of "
            f"{', '.join(found.dropped)} is dropped then; after a stop it would not continue with this file."
        )
    if found.while_it_runs and not (found.refused or found.after_stop):
        return (
            "The application can take these changes while it runs: update it. Fragments start and go only "
            "then; after a stop it would not continue with this file."
        )
    if not found.refused and not found.after_stop:
        return (
            "The application can continue with its state: update it while it runs, or run it again, and "
            "these changes apply from the next batch on."
        )
    if not found.refused:
        return (
            "The application can continue with its state, but "
            f"{show_counted(len(found.after_stop), 'processor')} cannot change while it runs: stop it, and "
            "run it with this file."
        )
    return (
        "The application cannot continue with its state: "
        f"{show_counted(len(found.refused), 'processor')} refused. Undo these changes, "
        "run it with --fresh to start over or with --replay-from to begin a new life, or use another "
        "application name to keep both."
    )


def changed_in_short(found: Difference) -> str:
    """The differences in short: the number of processors by kind of change."""
    counts = {fate: sum(change.fate is fate for change in found.changes) for fate in ChangeKind}
    parts = [f"{count} {fate}" for fate, count in counts.items() if count and fate is not ChangeKind.KEPT]
    return ", ".join(parts) or "nothing"

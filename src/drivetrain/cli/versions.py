"""`drivetrain versions`: shows the graphs with which an application has run, and the change to each.

Called by `cli.main`. Needs no Spark.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from enum import StrEnum

from drivetrain.cli.arguments import (
    ConfigOption,
    JsonOption,
    SetOption,
    StateDirOption,
    load_config,
    parse_sets,
)
from drivetrain.cli.cluster_access import AppArgument
from drivetrain.cli.comparison import changed_in_short, in_force_of
from drivetrain.core.change.difference import Difference, difference
from drivetrain.core.change.graph_version import GraphVersion
from drivetrain.core.change.live_change import Outcome
from drivetrain.core.figures import show_clock
from drivetrain.runtime.graph_versions import Ending
from drivetrain.runtime.run_directory import RunDirectory
from drivetrain.terminal import Console, Table


def versions_command(
    app: AppArgument,
    sets: SetOption = None,
    config_file: ConfigOption = None,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the versions of an application's graph that have run here, and how each fared, the newest last."""
    rundir, in_force = in_force_of(app, load_config(config_file, parse_sets(sets, state_dir)))
    known = _known(rundir, in_force.number)
    if as_json:
        json.dump({"versions": [one.as_data() for one in known]}, sys.stdout)
        sys.stdout.write("\n")
        return
    table = Table()
    table.add_names("version", "since (UTC)", "by", "how", "processors", "changed", "outcome")
    for one in known:
        version = one.record
        table.add_row(
            str(version.number),
            show_clock(version.made_at_ms),
            version.made_by,
            version.made_how,
            str(len(version.processors)),
            "" if one.difference is None else changed_in_short(one.difference),
            one.outcome,
        )
    console = Console()
    console.print(table)
    for one in known:
        number, ending = one.record.number, one.ending
        if ending is not None and ending.fragment is not None:
            console.print(f"version {number} failed in fragment {ending.fragment}: {ending.why}")
        if one.is_in_force and one.trial is _Trial.INTERRUPTED:
            console.print(
                f"the run ended during the trial of version {number}, which is in force; the trial goes on "
                "when the application runs again with the same graph, and another graph replaces the version"
            )


class _Trial(StrEnum):
    """The trial of a version whose change has no outcome."""

    UNDER_WAY = "under way"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True)
class _Known:
    """A version that is kept, what differs from the one before, and what became of it."""

    record: GraphVersion
    difference: Difference | None
    ending: Ending | None
    is_in_force: bool
    trial: _Trial | None

    @property
    def outcome(self) -> str:
        """What became of it, in words."""
        if self.ending is not None and self.ending.outcome is Outcome.ROLLED_BACK:
            return "rolled back"
        if not self.is_in_force:
            return "replaced" if self.trial is None else "replaced, its trial was interrupted"
        match self.trial:
            case None:
                return "in force"
            case _Trial.UNDER_WAY:
                return "in force, on trial"
            case _Trial.INTERRUPTED:
                return "in force, its trial was interrupted"

    def as_data(self) -> dict[str, object]:
        """As plain data for `--json`."""
        version, ending = self.record, self.ending
        changes = () if self.difference is None else self.difference.changes
        return {
            "version": version.number,
            "made_at_ms": version.made_at_ms,
            "made_by": version.made_by,
            "made_how": version.made_how,
            "follows": version.follows or None,
            "in_force": self.is_in_force,
            "trial": self.trial,
            "outcome": None if ending is None else ending.outcome,
            "ended_at_ms": None if ending is None else ending.at_ms,
            "failed_fragment": None if ending is None else ending.fragment,
            "why": None if ending is None else ending.why,
            "processors": sorted(version.processors),
            "changes": {change.id: change.fate for change in changes if change.fate != "kept"},
        }


def _known(rundir: RunDirectory, in_force: int) -> list[_Known]:
    versions = rundir.versions
    records = {number: versions.version(number) for number in versions.numbers()}
    known = []
    for number, record in records.items():
        before, ending = records.get(record.follows), versions.ending(number)
        trial = None
        if record.made_how != "run" and ending is None:
            goes_on = number == in_force and _runs(rundir)
            trial = _Trial.UNDER_WAY if goes_on else _Trial.INTERRUPTED
        found = None if before is None else difference(before, record)
        known.append(_Known(record, found, ending, number == in_force, trial))
    return known


def _runs(rundir: RunDirectory) -> bool:
    """Whether a process runs the application now."""
    if not rundir.is_free():
        return True
    rundir.release()
    return False

"""`drivetrain versions`: shows the graphs with which an application has run, and the change to each.

Called by `cli.main`. Needs no Spark.
"""

from __future__ import annotations

import json
import sys

from drivetrain.cli.arguments import (
    ConfigOption,
    JsonOption,
    SetOption,
    StateDirOption,
    load_config,
    parse_sets,
)
from drivetrain.cli.cluster_access import AppArgument
from drivetrain.cli.comparison import changed_in_short
from drivetrain.core.change.difference import difference
from drivetrain.core.change.graph_version import GraphVersion
from drivetrain.core.change.live_change import Outcome
from drivetrain.core.figures import show_clock
from drivetrain.runtime.graph_versions import GraphVersions
from drivetrain.terminal import Console, Table


def versions_command(
    app: AppArgument,
    sets: SetOption = None,
    config_file: ConfigOption = None,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the versions of an application's graph that have run here, and how each fared, the newest last."""
    config = load_config(config_file, parse_sets(sets, state_dir))
    from drivetrain.spark.run.find_application import directory_of

    versions = directory_of(app, config).versions
    known = [versions.version(number) for number in versions.numbers()]
    in_force = versions.in_force()
    number = 0 if in_force is None else in_force.number
    if as_json:
        shown = [_as_data(version, _before(version, known), versions, number) for version in known]
        json.dump({"versions": shown}, sys.stdout)
        sys.stdout.write("\n")
        return
    table = Table()
    table.add_names("version", "since (UTC)", "by", "how", "processors", "changed", "outcome")
    for version in known:
        old = _before(version, known)
        changed = "" if old is None else changed_in_short(difference(old, version))
        count, outcome = str(len(version.processors)), _outcome(version, versions, number)
        table.add_row(
            str(version.number),
            show_clock(version.made_at_ms),
            version.made_by,
            version.made_how,
            count,
            changed,
            outcome,
        )
    console = Console()
    console.print(table)
    for version in known:
        ending = versions.ending(version.number)
        if ending is not None and ending.fragment is not None:
            console.print(f"version {version.number} failed in fragment {ending.fragment}: {ending.why}")


def _before(version: GraphVersion, known: list[GraphVersion]) -> GraphVersion | None:
    """The version that was in force before another one, if it is kept."""
    return next((other for other in known if other.number == version.follows), None)


def _outcome(version: GraphVersion, versions: GraphVersions, in_force: int) -> str:
    ending = versions.ending(version.number)
    if ending is not None and ending.outcome is Outcome.ROLLED_BACK:
        return "rolled back"
    state = "in force" if version.number == in_force else "replaced"
    if version.made_how != "run" and ending is None:
        return f"{state}, on trial"
    return state


def _as_data(
    version: GraphVersion, old: GraphVersion | None, versions: GraphVersions, in_force: int
) -> dict[str, object]:
    ending = versions.ending(version.number)
    changes = () if old is None else difference(old, version).changes
    return {
        "version": version.number,
        "made_at_ms": version.made_at_ms,
        "made_by": version.made_by,
        "made_how": version.made_how,
        "follows": version.follows or None,
        "in_force": version.number == in_force,
        "outcome": None if ending is None else ending.outcome,
        "ended_at_ms": None if ending is None else ending.at_ms,
        "failed_fragment": None if ending is None else ending.fragment,
        "why": None if ending is None else ending.why,
        "processors": sorted(version.processors),
        "changes": {change.id: change.fate for change in changes if change.fate != "kept"},
    }

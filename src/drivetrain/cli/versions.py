"""`drivetrain versions`: shows the graphs with which an application has run, and what changed each time.

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
from drivetrain.core.figures import show_clock
from drivetrain.terminal import Console, Table


def versions_command(
    app: AppArgument,
    sets: SetOption = None,
    config_file: ConfigOption = None,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the versions of an application's graph that have run here, the newest last."""
    config = load_config(config_file, parse_sets(sets, state_dir))
    from drivetrain.spark.run.find_application import directory_of

    versions = directory_of(app, config).versions
    known = [versions.version(number) for number in versions.numbers()]
    before: list[GraphVersion | None] = [None, *known]
    if as_json:
        shown = [_as_data(version, old) for old, version in zip(before, known, strict=False)]
        json.dump({"versions": shown}, sys.stdout)
        sys.stdout.write("\n")
        return
    table = Table()
    table.add_names("version", "since (UTC)", "by", "processors", "changed")
    for old, version in zip(before, known, strict=False):
        changed = "" if old is None else changed_in_short(difference(old, version))
        count = str(len(version.processors))
        table.add_row(str(version.number), show_clock(version.made_at_ms), version.made_by, count, changed)
    Console().print(table)


def _as_data(version: GraphVersion, old: GraphVersion | None) -> dict[str, object]:
    changes = () if old is None else difference(old, version).changes
    return {
        "version": version.number,
        "made_at_ms": version.made_at_ms,
        "made_by": version.made_by,
        "processors": sorted(version.processors),
        "changes": {change.id: change.fate for change in changes if change.fate != "kept"},
    }

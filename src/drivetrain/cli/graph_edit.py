"""A change of a running application that names one processor, instead of a file with the whole graph.

Called by `drivetrain attach`, `drivetrain remove` and `drivetrain replace`: the same change as by
`drivetrain update`, shown, asked for, recorded and rolled back alike. Needs no Java.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from drivetrain.cli.arguments import load_config, parse_sets
from drivetrain.cli.changing import EmbeddedChange, Manner, perform
from drivetrain.cli.comparison import compared_with, in_force_of
from drivetrain.code.fingerprint import fingerprint
from drivetrain.core.change.graph_version import version_of
from drivetrain.core.plan.configured import configured_plan
from drivetrain.errors import UserError

if TYPE_CHECKING:
    from drivetrain.api.graph import Graph


@dataclass(frozen=True)
class GraphEdit:
    """The options that these commands share; `discards`: fragments that go do not process what they have."""

    yes: bool
    dry_run: bool
    timeout: str
    sets: list[str] | None
    config_file: Path | None
    state_dir: str | None
    as_json: bool
    discards: bool = False

    def perform(self, app: str, edit: Callable[[Graph], Graph]) -> None:
        """Change the graph in force of an application; raises typer.Exit with the command's exit code."""
        from drivetrain.spark.prepare.graph_code import graph_as_code, graph_from_code

        config = load_config(self.config_file, parse_sets(self.sets, self.state_dir))
        rundir, old = in_force_of(app, config)
        code = rundir.versions.code(old.number)
        if code is None:
            raise UserError(
                f"the code of version {old.number}, which is in force, was not kept",
                where=rundir.app_id,
                expected="a graph that can be pickled: no iterator of the application's own",
                remedy="change the application's file, and use drivetrain update",
            )
        graph = edit(graph_from_code(code, f"version {old.number}"))
        version = version_of(configured_plan(graph, config), fingerprint)
        change = EmbeddedChange(
            rundir, version, lambda: graph_as_code(graph), old.number, "update", self.discards
        )
        compared = compared_with(rundir, old, version, discards=self.discards)
        perform(change, compared, Manner(self.yes, self.dry_run, self.timeout, self.as_json))

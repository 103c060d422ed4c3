"""A change of a running application that names one processor, instead of a file with the whole graph.

Called by `drivetrain attach`, `drivetrain remove` and `drivetrain replace`: the same change as by
`drivetrain update`, shown, asked for, recorded and rolled back alike. Needs no Java.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from drivetrain.cli.changing import EmbeddedChange, Manner, perform
from drivetrain.cli.comparison import compared_with, in_force_of
from drivetrain.code.fingerprint import fingerprint
from drivetrain.config import Config
from drivetrain.core.change.graph_version import version_of
from drivetrain.core.plan.configured import configured_plan
from drivetrain.errors import UserError

if TYPE_CHECKING:
    from drivetrain.api.graph import Graph


def perform_edit(
    app: str,
    edit: Callable[[Graph], Graph],
    config: Config,
    manner: Manner,
    *,
    discards: bool = False,
    even_if_read: bool = False,
) -> None:
    """Change the graph in force of an application; raises typer.Exit with the command's exit code.

    With `discards` fragments that go do not process what they have; with `even_if_read` it may change what
    other applications read.
    """
    from drivetrain.spark.prepare.graph_code import graph_as_code, graph_from_code

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
        rundir,
        version,
        lambda: graph_as_code(graph),
        old.number,
        "update",
        discards,
        even_if_read=even_if_read,
    )
    compared = compared_with(rundir, old, version, discards=discards, even_if_read=even_if_read)
    perform(change, compared, manner)

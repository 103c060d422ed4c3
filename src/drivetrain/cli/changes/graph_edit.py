"""A change of a running application that names one processor, instead of a file with the whole graph.

Called by `drivetrain attach`, `drivetrain remove` and `drivetrain replace`: the change is shown, confirmed,
recorded and rolled back as with `drivetrain update`, here or in a cluster. Needs no Java.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

from drivetrain.api.graph_edits import attached, removed, replaced
from drivetrain.cli.changes.changing import ChangeCommandOptions, EmbeddedChange, perform
from drivetrain.cli.changes.cluster_versions import edited_in_cluster
from drivetrain.cli.changes.comparison import compared_with, in_force_of
from drivetrain.cli.cluster_access import connected_by
from drivetrain.code.application_file import load_function
from drivetrain.config import Config
from drivetrain.core.plan.configured import configured_plan
from drivetrain.errors import UserError
from drivetrain.runtime.planned_version import planned_version
from drivetrain.runtime.sink_places import refuse_shared_places

if TYPE_CHECKING:
    from drivetrain.api.graphs.graph import Graph
    from drivetrain.cluster.client.graph_edit_requests import GraphEditRequest


@dataclass(frozen=True)
class Edit:
    """What is done at a processor; a function of `file` ("file.py" or "file.py:name") makes the new part."""

    how: Literal["attach", "replace", "remove"]
    processor: str
    file: str = ""

    def of(self, graph: Graph) -> Graph:
        """The edited graph; raises what is wrong with the edit or its file."""
        if self.how == "remove":
            return removed(graph, self.processor)
        function = load_function(self.file, self.how)
        return (attached if self.how == "attach" else replaced)(graph, self.processor, function)


def perform_edit(
    app: str,
    edit: Edit,
    config: Config,
    manner: ChangeCommandOptions,
    *,
    in_cluster: bool,
) -> None:
    """Change the graph in force of an application; raises typer.Exit with the command's exit code."""
    if in_cluster:
        with connected_by(config) as client:
            perform(*edited_in_cluster(client, app, _sent(edit), manner.options), manner)
        return
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
    graph = edit.of(graph_from_code(code, f"version {old.number}"))
    version = planned_version(refuse_shared_places(configured_plan(graph, config)))
    code_of_it = partial(graph_as_code, graph)
    change = EmbeddedChange(rundir, version, code_of_it, old.number, "update", manner.options)
    compared = compared_with(rundir, old, version, manner.options)
    perform(change, compared, manner)


def _sent(edit: Edit) -> GraphEditRequest:
    """The edit as it is sent to a cluster."""
    from drivetrain.cluster.client.graph_edit_requests import attach_edit, remove_edit, replace_edit

    if edit.how == "remove":
        return remove_edit(edit.processor)
    return (attach_edit if edit.how == "attach" else replace_edit)(edit.file, edit.processor)

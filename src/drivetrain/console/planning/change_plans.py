"""The change of an application to the graph of an uploaded file, as data and in words.

Called by `console.planning.program`, `console.embedded.run_changes`, `console.handlers.changes`,
`console.handlers.cluster_changes` and `cli.changes.change_process`.
"""

from __future__ import annotations

from drivetrain.console.answers.changes import PlannedChange, ProcessorChange
from drivetrain.console.problems import RequestError
from drivetrain.core.change.difference import Difference
from drivetrain.core.change.graph_version import GraphVersion
from drivetrain.core.change.version_comparison import marks_of
from drivetrain.core.picture.compared_graph import compared_graph


def can_be_made(found: Difference) -> bool:
    """Whether the running application can take a change."""
    return not (found.is_empty or found.refused or found.after_stop)


def verdict_of(found: Difference, *, in_cluster: bool = False) -> str:
    """Whether the running application can take a change, in words."""
    if found.is_empty:
        return "Nothing changes."
    if found.refused:
        return "The state does not fit: " + "; ".join(f"{each.id}: {each.why}" for each in found.refused)
    if found.after_stop:
        names = ", ".join(each.id for each in found.after_stop)
        stop = (
            "The application must be killed first, and submitted with the new file"
            if in_cluster
            else "The run must be stopped first, and run with the new file"
        )
        return f"{stop}: {names} cannot change meanwhile."
    return "It takes effect with the next batch of what it changes. What fails on trial is rolled back."


def not_taken(where: str, verdict: str, *, in_cluster: bool = False) -> RequestError:
    """The error of asking a running application for a change that it cannot take."""
    again = "kill it and submit it" if in_cluster else "stop the run and start it"
    return RequestError(
        "the running application cannot take this change",
        code="no-change",
        where=where,
        got=verdict,
        remedy=f"{again} with the new file, or undo what does not fit",
    )


def planned_change(
    found: Difference, old: GraphVersion, new: GraphVersion, *, in_cluster: bool = False
) -> PlannedChange:
    """The change from a version to another one that is not recorded."""
    marks = marks_of(found)
    return PlannedChange(
        against=old.number,
        can_be_made=can_be_made(found),
        verdict=verdict_of(found, in_cluster=in_cluster),
        changes=tuple(
            ProcessorChange(
                processor=each.id,
                fate=each.fate.value,
                mark=marks[each.id][0].value,
                why=each.why,
                before=each.before,
                after=each.after,
            )
            for each in found.changes
        ),
        graph=compared_graph(old, new, marks),
    )

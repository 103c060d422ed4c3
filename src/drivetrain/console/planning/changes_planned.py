"""The change of an application to the graph of an uploaded file, as data.

Called by `console.planning.program`, `console.embedded.run_changes` and `cli.change_process`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from drivetrain.console.answers.changes import PlannedChange, ProcessorChange
from drivetrain.core.change.difference import Difference
from drivetrain.core.picture.placed_graph import graph_of
from drivetrain.core.plan.plan import Plan
from drivetrain.errors import UserError

if TYPE_CHECKING:
    from drivetrain.api.application import Application


def require_same(application: Application, file: str, name: str, settings: Mapping[str, str]) -> None:
    """Raise UserError unless the application of a file has this name and these settings."""
    new = {name: str(value) for name, value in application.naming_settings.items()}
    if (application.name, new) != (name, settings):
        raise UserError(
            "the file holds another application",
            where=file,
            expected=f"{name} with the settings {dict(settings) or 'of no name'}",
            got=f"{application.name} with {new or 'no settings'}",
            remedy="the name and the settings of an application cannot change",
        )


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


def planned_change(found: Difference, against: int, plan: Plan, verdict: str) -> PlannedChange:
    """The change from version `against` to a plan."""
    return PlannedChange(
        against=against,
        can_be_made=can_be_made(found),
        verdict=verdict,
        changes=tuple(
            ProcessorChange(
                processor=each.id,
                fate=each.fate.value,
                why=each.why,
                before=each.before,
                after=each.after,
            )
            for each in found.changes
        ),
        graph=graph_of(plan),
    )

"""What an executor runs of an application that has changed while it ran: the version in force, not its file.

Called by `spark_work`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivetrain.core.plan.configured import configured_plan
from drivetrain.errors import InputError
from drivetrain.runtime.planned_version import planned_version
from drivetrain.spark.prepare.graph_code import graph_from_code

if TYPE_CHECKING:
    from drivetrain.config import Config
    from drivetrain.core.change.graph_version import GraphVersion
    from drivetrain.core.plan.plan import Plan
    from drivetrain.runtime.run_directory import RunDirectory


def planned_to_run(plan: Plan, rundir: RunDirectory, config: Config) -> tuple[Plan, GraphVersion | None]:
    """The plan of the version in force, and its record, if the application has changed while it ran.

    Else those of its file, which is `plan`, without a record. Raises InputError when the code of the version
    is gone.
    """
    record = rundir.versions.in_force()
    if record is None or record.made_how == "run":
        return plan, None
    if record.is_same_graph(planned_version(plan)):
        return plan, record
    code = rundir.versions.code(record.number)
    if code is None:
        raise InputError(
            f"the code of version {record.number}, which is in force, is gone",
            where=str(rundir.path),
            remedy="end the application, and submit that version's file: it continues with its state",
        )
    return configured_plan(graph_from_code(code, f"version {record.number}"), config), record

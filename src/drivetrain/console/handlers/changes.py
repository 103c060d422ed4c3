"""Requests that change the graph of an application while it runs: to an upload, or back to a version.

Called by `console.routes.writes`; `roll_back_run` by `console.handlers.versions`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Awaitable, Mapping
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from drivetrain.cluster.messages.applications import ApplicationView
from drivetrain.console.answers.changes import PlannedChange
from drivetrain.console.embedded import run_changes
from drivetrain.console.embedded.runs import EmbeddedRuns
from drivetrain.console.handlers.cluster_changes import change_in_cluster, plan_in_cluster
from drivetrain.console.handlers.uploads import require_file, take_upload
from drivetrain.console.handlers.writes import begun
from drivetrain.console.planning.change_plans import not_taken
from drivetrain.console.planning.requests import VERSION_CODE, VERSION_RECORD, PrepareChange
from drivetrain.console.route import Call, Reply
from drivetrain.core.change.change_options import ChangeOptions
from drivetrain.core.change.graph_version import GraphVersion
from drivetrain.core.change.handover import time_given
from drivetrain.runtime.run_directory import RunDirectory


class ChangeQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of which file the change is, and to which version it was compared."""

    file: Annotated[
        str, Meta(max_length=300, description="The application's file; FILE.py:NAME for one of many.")
    ]
    against: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(description="Make the change only if this version is in force: that of the plan."),
    ] = None
    at: Annotated[
        str,
        Meta(
            max_length=100,
            description="The event time from which on the new version gets the messages: ISO 8601 (UTC), "
            "ms since 1970, next-window, or now (with the next batch).",
        ),
    ] = "now"


async def plan(call: Call) -> PlannedChange:
    """What an uploaded file would change; nothing is changed."""
    query, client = _query(call), call.services.client
    if not isinstance(client, EmbeddedRuns):
        return await plan_in_cluster(call, client, query.file)
    planned, _ = await _planned(call, query, await _run_of(call, client))
    return planned


async def make(call: Call) -> Reply:
    """Change an application to an uploaded file."""
    query, runs = _query(call), call.services.client
    options = ChangeOptions(at=time_given(query.at))
    if not isinstance(runs, EmbeddedRuns):
        return await change_in_cluster(call, runs, query.file, query.against, options)
    rundir = await _run_of(call, runs)
    call.services.operations.require_room()
    view = await runs.application(call.path["app"])
    planned, version = await _planned(call, query, rundir)
    if version is None:
        raise not_taken(rundir.app_id, planned.verdict)
    record, code = version
    against = planned.against if query.against is None else query.against
    doing = runs.in_thread(lambda: run_changes.change(rundir, record, code, against, options))
    return begun(call, "change", view, doing)


async def roll_back_run(call: Call, runs: EmbeddedRuns, view: ApplicationView, number: int) -> Reply:
    """Change a run back to a version that is kept."""
    call.services.operations.require_room()
    rundir = await runs.rundir(view)
    doing: Awaitable[Mapping[str, str]] = runs.in_thread(lambda: run_changes.roll_back(rundir, number))
    return begun(call, "rollback", view, doing)


def _query(call: Call) -> ChangeQuery:
    query = call.query
    assert isinstance(query, ChangeQuery)
    require_file(query.file)
    return query


async def _planned(
    call: Call, query: ChangeQuery, rundir: RunDirectory
) -> tuple[PlannedChange, tuple[GraphVersion, bytes] | None]:
    """The plan of the uploaded change, and the new version if the run can take it."""
    asked = PrepareChange(
        file=query.file,
        application=rundir.application,
        settings={name: str(value) for name, value in rundir.settings.items()},
        state_dir=str(rundir.path.parent),
        writers=rundir.writers.value,
    )
    planning = call.services.planning
    with tempfile.TemporaryDirectory(dir=planning.directory, prefix="change-") as place:
        directory = Path(place)
        await take_upload(call, directory)
        planned = await planning.prepare_change(asked, directory)
        if not planned.can_be_made:
            return planned, None
        record = msgspec.json.decode((directory / VERSION_RECORD).read_bytes(), type=GraphVersion)
        return planned, (record, (directory / VERSION_CODE).read_bytes())


async def _run_of(call: Call, runs: EmbeddedRuns) -> RunDirectory:
    return await runs.rundir(await runs.application(call.path["app"]))

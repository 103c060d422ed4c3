"""Changes of an application of a cluster to an upload, as `drivetrain update` makes them.

Called by `console.handlers.changes` and `console.handlers.versions`.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from drivetrain.cluster.client import Client, Submission
from drivetrain.cluster.client.version_requests import over
from drivetrain.cluster.messages.applications import ApplicationView
from drivetrain.code.archive import Archive
from drivetrain.console.answers.changes import PlannedChange
from drivetrain.console.handlers.uploads import take_upload
from drivetrain.console.handlers.writes import begun
from drivetrain.console.planning.change_plans import not_taken
from drivetrain.console.planning.requests import ARCHIVE, PrepareClusterChange
from drivetrain.console.route import Call, Reply
from drivetrain.core.change.change_options import NO_OPTIONS, ChangeOptions
from drivetrain.core.change.change_state import require_done
from drivetrain.errors import InternalError

TRIAL: Final = "1 h"
"""How long an operation follows a trial; the trial continues after that, too."""


async def plan_in_cluster(call: Call, client: Client, file: str) -> PlannedChange:
    """What an uploaded file would change; nothing is changed."""
    planned, _ = await _planned(call, client, await _running(call, client), file)
    return planned


async def change_in_cluster(
    call: Call, client: Client, file: str, against: int | None, options: ChangeOptions = NO_OPTIONS
) -> Reply:
    """Change an application to an uploaded file; `against` is the version that it must have (None: any)."""
    call.services.operations.require_room()
    view = await _running(call, client)
    planned, submission = await _planned(call, client, view, file)
    if submission is None:
        raise not_taken(view.app_id, planned.verdict, in_cluster=True)
    expected = planned.against if against is None else against

    async def doing() -> Mapping[str, str]:
        state = await client.update(view.app_id, submission, expected, options)
        return {"version": str(require_done(await client.wait_change(view.app_id, state.number, TRIAL)))}

    return begun(call, "change", view, doing())


async def _running(call: Call, client: Client) -> ApplicationView:
    view = await client.application(call.path["app"])
    if view.state.is_over:
        raise over(view)
    return view


async def _planned(
    call: Call, client: Client, view: ApplicationView, file: str
) -> tuple[PlannedChange, Submission | None]:
    """The plan of the uploaded change, and its code if the application can take it."""
    history, spec, planning = await client.versions(view.app_id), view.spec, call.services.planning
    asked = PrepareClusterChange(
        file=file,
        name=spec.name,
        settings=spec.settings,
        configuration=spec.config,
        application=history.application,
        naming=history.settings,
        old=history.record,
        has_checkpoints=history.has_checkpoints,
    )
    with tempfile.TemporaryDirectory(dir=planning.directory, prefix="change-") as place:
        await take_upload(call, Path(place))
        outcome = await planning.prepare_cluster_change(asked, Path(place))
        if outcome.change is None:
            raise InternalError("a planning process gave neither a change nor an error", where=spec.name)
        if outcome.spec is None or outcome.sha256 is None:
            return outcome.change, None
        data = await asyncio.to_thread((Path(place) / ARCHIVE).read_bytes)
    archive = Archive(outcome.sha256, outcome.spec.file, data)
    return outcome.change, Submission(outcome.spec, archive, None)

"""A planning process: runs an application's file, plans it, and writes the outcome to a file.

`processes` describes how it is isolated from the console.

Called by `console.planning.planning`, which starts it.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from drivetrain.cluster.client.submission import Submission, prepare_submission
from drivetrain.cluster.messages.applications import Priority
from drivetrain.code.application_file import load_application, require_same
from drivetrain.code.archive import unpack_upload_or_file
from drivetrain.config import Config
from drivetrain.console.answers.graph import PlannedUpload
from drivetrain.console.planning.answers import settings_of
from drivetrain.console.planning.change_plans import planned_change
from drivetrain.console.planning.processes import serve
from drivetrain.console.planning.requests import (
    ARCHIVE,
    CODE,
    UPLOAD,
    Outcome,
    PlanCode,
    PrepareClusterChange,
    PrepareUpload,
    StateName,
)
from drivetrain.core.change.difference import difference
from drivetrain.core.picture.placed_graph import graph_of
from drivetrain.core.plan.configured import configured_plan
from drivetrain.private_files import private
from drivetrain.runtime.planned_version import planned_version


def main() -> None:
    """Do what the request in the directory of the command line asks."""
    serve(_answer, too_large="the application's file")


def _answer(directory: Path, request: bytes) -> Outcome:
    asked = msgspec.json.decode(request, type=PlanCode | PrepareUpload | PrepareClusterChange)
    match asked:
        case PlanCode():
            return _plan_code(asked)
        case PrepareUpload():
            return _prepare(asked, directory)
        case _:
            return _prepare_change(asked, directory)


def _plan_code(asked: PlanCode) -> Outcome:
    spec = asked.spec
    config = Config.load(None, {}, spec.config)
    path = str(Path(asked.directory) / spec.file)
    application = load_application(path if spec.target is None else f"{path}:{spec.target}", spec.settings)
    plan = configured_plan(application.graph(), config)
    settings = {name: str(value) for name, value in application.naming_settings.items()}
    return Outcome(graph=graph_of(plan), state=StateName(application.name, settings))


def _prepare(asked: PrepareUpload, directory: Path) -> Outcome:
    config = Config.load(None, {}, asked.configuration)
    code = directory / CODE
    is_archive = unpack_upload_or_file(directory / UPLOAD, code, asked.file)
    submission = prepare_submission(
        str(code / asked.file),
        {**asked.settings, **asked.configuration},
        config,
        name=asked.name,
        directory=code if is_archive else None,
        fresh=asked.fresh,
        replay_from=asked.replay_from,
        from_savepoint=asked.savepoint,
        priority=Priority(asked.priority),
    )
    _keep_archive(submission, directory)
    plan = submission.plan
    return Outcome(
        planned=PlannedUpload(
            name=submission.spec.name,
            settings=settings_of(submission.settings),
            graph=None if plan is None else graph_of(plan),
        ),
        spec=submission.spec,
        sha256=submission.archive.sha256,
    )


def _prepare_change(asked: PrepareClusterChange, directory: Path) -> Outcome:
    """The same comparison as that of `drivetrain update`."""
    config = Config.load(None, {}, asked.configuration)
    code = directory / CODE
    is_archive = unpack_upload_or_file(directory / UPLOAD, code, asked.file)
    path, sets = str(code / asked.file), {**asked.configuration, **asked.settings}
    application = load_application(path, asked.settings)
    require_same(application, asked.file, asked.application, asked.naming)
    plan = configured_plan(application.graph(), config)
    new = planned_version(plan)
    found = difference(asked.old, new, has_checkpoints=asked.has_checkpoints)
    change = planned_change(found, asked.old, new, in_cluster=True)
    if not change.can_be_made:
        return Outcome(change=change)
    submission = prepare_submission(
        path, sets, config, name=asked.name, directory=code if is_archive else None
    )
    _keep_archive(submission, directory)
    return Outcome(change=change, spec=submission.spec, sha256=submission.archive.sha256)


def _keep_archive(submission: Submission, directory: Path) -> None:
    with open(directory / ARCHIVE, "wb", opener=private) as file:
        file.write(submission.archive.data)


if __name__ == "__main__":
    main()

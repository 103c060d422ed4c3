"""A planning process: runs an application's file, plans it, and writes what came of it to a file.

Problem: a file of a user may loop, take all memory, end its process or print; and it can read the
environment.

Design: the console starts `python -m drivetrain.console.planning.program DIRECTORY` with an environment of
its choice, in a session of its own, and ends it after a timeout. The process limits itself before it runs
anything of the user's, and ends when the console does. The request and the outcome are files: the standard
streams are the user's.

Called by `console.planning.planning`, which starts it.
"""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path
from typing import Final

import msgspec

from drivetrain.cluster.client.submission import prepare_submission
from drivetrain.cluster.error_views import error_view
from drivetrain.cluster.messages.applications import Priority
from drivetrain.cluster.parent import tie_to_parent
from drivetrain.code.application_file import load_application
from drivetrain.code.archive import unpack_upload
from drivetrain.config import Config
from drivetrain.console.answers.graph import PlannedUpload
from drivetrain.console.planning.answers import graph_of, settings_of
from drivetrain.console.planning.requests import (
    ARCHIVE,
    CODE,
    OUTCOME,
    REQUEST,
    UPLOAD,
    Outcome,
    PlanCode,
    PrepareUpload,
    StateName,
)
from drivetrain.core.plan.configured import configured_plan
from drivetrain.errors import DrivetrainError, UserError
from drivetrain.private_files import private

CPU_S: Final = 120
MEMORY_BYTES: Final = 4 * 2**30
FILE_BYTES: Final = 512 * 2**20


def main() -> None:
    """Do what the request in the directory of the command line asks."""
    directory = Path(sys.argv[1])
    tie_to_parent()
    _limit()
    asked = msgspec.json.decode((directory / REQUEST).read_bytes(), type=PlanCode | PrepareUpload)
    try:
        outcome = _plan_code(asked) if isinstance(asked, PlanCode) else _prepare(asked, directory)
    except DrivetrainError as error:
        outcome = Outcome(error=error_view(error))
    except MemoryError as error:
        full = UserError(
            "the application's file takes too much memory while it is loaded",
            expected=f"at most {MEMORY_BYTES >> 30} GiB",
            got=str(error) or "more",
            remedy="read data in the application's functions, not while the graph is built",
        )
        outcome = Outcome(error=error_view(full))
    aside = directory / f".{OUTCOME}"
    with open(aside, "wb", opener=private) as file:
        file.write(msgspec.json.encode(outcome))
    aside.rename(directory / OUTCOME)
    sys.stdout.flush()
    os._exit(0)  # threads that the user's file has started are of no use


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
    is_archive = _unpack(directory / UPLOAD, code, asked.file)
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
    with open(directory / ARCHIVE, "wb", opener=private) as file:
        file.write(submission.archive.data)
    plan = submission.plan
    settings = () if plan is None else settings_of(submission.settings)
    return Outcome(
        planned=PlannedUpload(
            name=submission.spec.name, settings=settings, graph=None if plan is None else graph_of(plan)
        ),
        spec=submission.spec,
        sha256=submission.archive.sha256,
    )


def _unpack(upload: Path, code: Path, file: str) -> bool:
    """Unpack an upload to the directory `code`, if it is a zip; else put it there as the file. Says which."""
    with open(upload, "rb") as begun:
        is_archive = begun.read(2) == b"PK"
    if is_archive:
        unpack_upload(upload, code)
    else:
        path = code / file.partition(":")[0]
        path.parent.mkdir(parents=True)
        upload.rename(path)
    return is_archive


def _limit() -> None:
    for limit, most in (
        (resource.RLIMIT_CPU, CPU_S),
        (resource.RLIMIT_DATA, MEMORY_BYTES),
        (resource.RLIMIT_FSIZE, FILE_BYTES),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hardest = resource.getrlimit(limit)
        allowed = most if hardest == resource.RLIM_INFINITY else min(most, hardest)
        resource.setrlimit(limit, (allowed, allowed))


if __name__ == "__main__":
    main()

"""The process in which the console plans the change of a run to an uploaded file.

Design: the same comparison as `drivetrain update`. The file is loaded here with the settings of the run; the
record of the new version and its code are left as files beside the outcome. It is a module of the command
line because pickling a graph needs Spark's pickler, and the console knows nothing of Spark.

Called by `console.handlers.changes`, which starts it; see `console.planning.processes`.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from drivetrain.code.application_file import load_application, require_same
from drivetrain.code.archive import unpack_upload_or_file
from drivetrain.config import Config
from drivetrain.config.catalog import run as run_keys
from drivetrain.console.embedded.run_changes import compared, in_force_of
from drivetrain.console.planning.change_plans import can_be_made, planned_change
from drivetrain.console.planning.processes import serve
from drivetrain.console.planning.requests import (
    CODE,
    UPLOAD,
    VERSION_CODE,
    VERSION_RECORD,
    Outcome,
    PrepareChange,
)
from drivetrain.core.plan.configured import configured_plan
from drivetrain.private_files import Writers, private
from drivetrain.runtime.planned_version import planned_version
from drivetrain.runtime.run_directory import RunDirectory


def main() -> None:
    """Carry out the request in the directory that the command line names."""
    serve(_answer, too_large="the application's file")


def _answer(directory: Path, request: bytes) -> Outcome:
    asked = msgspec.json.decode(request, type=PrepareChange)
    code = directory / CODE
    unpack_upload_or_file(directory / UPLOAD, code, asked.file)
    application = load_application(str(code / asked.file), asked.settings)
    require_same(application, asked.file, asked.application, asked.settings)
    rundir = RunDirectory(asked.state_dir, asked.application, asked.settings, Writers(asked.writers))
    config = Config.load(
        None, {}, {run_keys.STATE_DIR.name: asked.state_dir, run_keys.WRITERS.name: asked.writers}
    )
    graph = application.graph()
    plan = configured_plan(graph, config)
    record, old = planned_version(plan), in_force_of(rundir)
    found = compared(rundir, old, record)
    if can_be_made(found):
        from drivetrain.spark.prepare.graph_code import graph_as_code

        _write(directory / VERSION_CODE, graph_as_code(graph))
        _write(directory / VERSION_RECORD, msgspec.json.encode(record))
    return Outcome(change=planned_change(found, old, record))


def _write(path: Path, data: bytes) -> None:
    with open(path, "wb", opener=private) as file:
        file.write(data)


if __name__ == "__main__":
    main()

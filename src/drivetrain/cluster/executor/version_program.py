"""`python -m drivetrain.cluster.executor.version_program DIRECTORY`: makes a version from a file or an edit.

Problem: an executor that runs an application has imported its modules, and cannot import other ones of the
same names; and building a graph runs the user's program, which may take long or end its process.

Design: a process of its own loads the file, as `drivetrain update` does for an embedded run, or edits the
graph in force, as `drivetrain attach` does. It writes the record and the graph, with the user's code, to
files in its directory, and starts no Java. The executor waits for it, for `MOST_S` at most, and the process
ends with the executor.

Called by `spark_work` (`made_version`), which starts it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from drivetrain.api.graph_edits import attached, removed, replaced
from drivetrain.api.graphs.graph import Graph
from drivetrain.cluster.launch_file import LaunchFile
from drivetrain.cluster.messages.changing import GraphEdit, ProposedCode
from drivetrain.cluster.parent import PARENT_VARIABLE, tie_to_parent
from drivetrain.code.application_file import load_application, load_function
from drivetrain.code.archive import unpack
from drivetrain.config import Config
from drivetrain.core.change.graph_version import GraphVersion
from drivetrain.core.change.subscriptions import (
    is_stream,
    no_such_stream,
    subscriptions_by,
    with_subscription,
    without_subscriptions,
)
from drivetrain.core.plan.configured import configured_plan
from drivetrain.durable import write_whole
from drivetrain.errors import DrivetrainError, UserError
from drivetrain.private_files import private
from drivetrain.runtime.error_records import ErrorRecord, error_record
from drivetrain.runtime.planned_version import planned_version
from drivetrain.spark.prepare.graph_code import graph_as_code, graph_from_code

MOST_S: Final = 240.0
_PROGRAM: Final = "drivetrain.cluster.executor.version_program"
_REQUEST: Final = "request.json"
_OUTCOME: Final = "outcome.json"
_GRAPH: Final = "graph"
_EDITED: Final = "edited"
_SHOWN_BYTES: Final = 2_000


class _Request(msgspec.Struct, frozen=True):
    """The application's file (`file.py:name`), and its settings and configuration, as a user writes them.

    With `edit`, the file has the function that makes a part of the graph of version `edited`.
    """

    target: str | None
    settings: dict[str, str]
    config: dict[str, str]
    application: str
    named_by: dict[str, str]
    edit: GraphEdit | None = None
    edited: int = 0


class _Outcome(msgspec.Struct, frozen=True):
    """The record of the version, or why there is none."""

    version: GraphVersion | None = None
    failure: ErrorRecord | None = None
    user_traceback: str | None = None


class UnloadableVersionError(UserError):
    """The file of a version cannot be loaded."""

    user_traceback: str | None = None


# ---- in the executor


@dataclass(frozen=True)
class VersionEdit:
    """An edit of the graph of version `number`, whose code is `code`."""

    edit: GraphEdit
    number: int
    code: bytes


def made_version(
    archive: Path,
    code: ProposedCode | None,
    edit: VersionEdit | None,
    directory: Path,
    launch: LaunchFile,
    named: tuple[str, Mapping[str, object]],
) -> tuple[GraphVersion, bytes]:
    """The record and the code of the version in an archive, or of an edit whose function is in the archive.

    `named` are the application's name and settings. `directory` is created, and stays, as user code may
    read its own files. Raises the errors of loading, planning and keeping the graph, and BadArchiveError.
    """
    if code is None and (edit is None or edit.edit.needs_code):
        raise UserError("a change names neither a file nor a version")
    directory.mkdir()
    target = None if code is None else _unpacked(archive, code, directory / "code")
    application, settings = named
    named_by = {name: str(value) for name, value in settings.items()}
    request = _Request(target, launch.spec.settings, launch.config, application, named_by)
    if edit is not None:
        request = msgspec.structs.replace(request, edit=edit.edit, edited=edit.number)
        write_whole(directory / _EDITED, edit.code, synced=False)
    write_whole(directory / _REQUEST, msgspec.json.encode(request), synced=False)
    with open(directory / "log", "wb", opener=private) as log:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", _PROGRAM, str(directory)],  # the current directory hides no package
            stdin=subprocess.PIPE,  # when it closes, the process knows that this one has ended
            stdout=log,
            stderr=log,
            env={**os.environ, PARENT_VARIABLE: str(os.getpid())},
        )
    try:
        status = process.wait(MOST_S)
    except subprocess.TimeoutExpired as error:
        raise UserError(
            "the file of the new version takes too long to load", expected=f"at most {MOST_S:g} s"
        ) from error
    finally:
        process.kill()
        process.communicate()
    return _version(directory, status)


def _unpacked(archive: Path, code: ProposedCode, directory: Path) -> str:
    """The file in an archive, as `file.py:name`, once it is unpacked."""
    unpack(archive.read_bytes(), code.sha256, directory)
    file = directory / code.file
    if not file.resolve().is_relative_to(directory.resolve()):
        raise UserError("the file of a version is not in its archive", where=code.file[:100])
    return str(file) if code.target is None else f"{file}:{code.target}"


def _version(directory: Path, status: int) -> tuple[GraphVersion, bytes]:
    try:
        outcome = msgspec.json.decode((directory / _OUTCOME).read_bytes(), type=_Outcome)
    except (OSError, msgspec.MsgspecError) as error:
        wrote = (directory / "log").read_bytes()[-_SHOWN_BYTES:].decode(errors="replace")
        raise UserError(
            "the process that loads the file of the new version ended without an answer",
            got=f"exit code {status}; it wrote\n{wrote}",
            remedy="build the application without ending the process",
        ) from error
    if outcome.failure is not None:
        raised = outcome.failure.error()
        if outcome.user_traceback is None:
            raise raised
        unloadable = UnloadableVersionError(raised.what, where=raised.where, remedy=raised.remedy)
        unloadable.user_traceback = outcome.user_traceback
        raise unloadable
    assert outcome.version is not None
    return outcome.version, (directory / _GRAPH).read_bytes()


# ---- in the process


def main() -> int:
    """Make the version that the request in the directory of the command line asks for."""
    directory = Path(sys.argv[1])
    tie_to_parent()
    request = msgspec.json.decode((directory / _REQUEST).read_bytes(), type=_Request)
    try:
        graph = _loaded(request) if request.edit is None else _edited(request, request.edit, directory)
        plan = configured_plan(graph, Config.load(None, None, request.config))
        version, code = planned_version(plan), graph_as_code(graph)
        write_whole(directory / _GRAPH, code, synced=False)
        outcome = _Outcome(version)
    except DrivetrainError as error:
        outcome = _Outcome(None, error_record(error), getattr(error, "user_traceback", None))
    write_whole(directory / _OUTCOME, msgspec.json.encode(outcome), synced=False)
    sys.stdout.flush()
    os._exit(0)  # threads that the user's file has started are of no use


def _loaded(request: _Request) -> Graph:
    assert request.target is not None
    application = load_application(request.target, request.settings)
    named_by = {name: str(value) for name, value in application.naming_settings.items()}
    if (application.name, named_by) != (request.application, request.named_by):
        raise UserError(
            "the file holds another application",
            where=request.target,
            expected=f"{request.application} with the settings {request.named_by or 'of no name'}",
            got=f"{application.name} with {named_by or 'no settings'}",
            remedy="the name and the settings of an application cannot change",
        )
    return application.graph()


def _edited(request: _Request, edit: GraphEdit, directory: Path) -> Graph:
    graph = graph_from_code((directory / _EDITED).read_bytes(), f"version {request.edited}")
    match edit.how:
        case "remove":
            return removed(graph, edit.processor)
        case "subscribe":
            return _subscribed(graph, edit)
        case "unsubscribe":
            reader, _, source = edit.processor.partition("/")
            return without_subscriptions(graph, subscriptions_by(graph, reader, source or None))
    assert request.target is not None
    function = load_function(request.target, edit.how)
    return (attached if edit.how == "attach" else replaced)(graph, edit.processor, function)


def _subscribed(graph: Graph, edit: GraphEdit) -> Graph:
    """The graph with a subscription of another application; the executor looks whether it is possible."""
    record = edit.subscription
    if record is None or not record.is_well_named or not is_stream(graph.nodes, record.stream):
        raise no_such_stream(graph, edit.processor)
    return with_subscription(graph, record)


if __name__ == "__main__":
    sys.exit(main())

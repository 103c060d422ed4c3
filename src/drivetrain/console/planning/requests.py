"""The requests of the console to a planning process, and their outcomes: JSON files in a directory that both
use.

Called by `console.planning.planning` and `console.planning.program`, `cli.inspection.state_process` and
`cli.changes.change_process`.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from drivetrain.cluster.messages.applications import ApplicationSpec
from drivetrain.cluster.messages.following import ErrorView
from drivetrain.console.answers.changes import PlannedChange
from drivetrain.console.answers.graph import PlannedUpload
from drivetrain.console.answers.states import StateEntries
from drivetrain.core.change.graph_version import GraphVersion
from drivetrain.core.picture.placed_graph import Graph

REQUEST: Final = "request.json"
OUTCOME: Final = "outcome.json"
ARCHIVE: Final = "archive.zip"
UPLOAD: Final = "upload"
CODE: Final = "code"
VERSION_RECORD: Final = "version.json"
VERSION_CODE: Final = "version.graph"


class PlanCode(msgspec.Struct, frozen=True, tag="code"):
    """Plan the application of `spec`, whose files are unpacked in `directory`."""

    directory: str
    spec: ApplicationSpec


class PrepareUpload(msgspec.Struct, frozen=True, tag="upload"):
    """Plan the application of an upload as `drivetrain submit` does, and pack its code.

    `file` is its file (or `file:name`): the name that the upload gets, or, of a zip, the path in it.
    """

    file: str
    name: str | None
    settings: dict[str, str]
    configuration: dict[str, str]
    fresh: bool
    replay_from: str | None
    savepoint: str | None
    priority: str


class ReadStates(msgspec.Struct, frozen=True):
    """Read the states of a processor of the application `app_id`, whose state is below `state_dir`.

    `key` and `at` are as those options of `drivetrain state`. At most `limit` states are returned, of their
    texts `longest` characters.
    """

    app_id: str
    state_dir: str
    writers: str
    processor: str
    key: str | None
    at: str | None
    limit: int
    longest: int


class PrepareClusterChange(msgspec.Struct, frozen=True, tag="cluster-change"):
    """Plan the change of an application of a cluster to an upload, and pack its code.

    `file` is as in `PrepareUpload`. It was submitted as `name` with these settings and this configuration.
    `old` is its version in force; `application` and the settings `naming` name its state.
    """

    file: str
    name: str
    settings: dict[str, str]
    configuration: dict[str, str]
    application: str
    naming: dict[str, str]
    old: GraphVersion
    has_checkpoints: bool


class PrepareChange(msgspec.Struct, frozen=True):
    """Plan the change of a run to an upload; `file` is as in `PrepareUpload`.

    The run is that of `application` with these settings, its state is below `state_dir`.
    """

    file: str
    application: str
    settings: dict[str, str]
    state_dir: str
    writers: str


class StateName(msgspec.Struct, frozen=True):
    """What names the state of an application: its own name, and its settings as text, without secrets."""

    application: Annotated[str, Meta(pattern="^[a-zA-Z_][a-zA-Z0-9_-]*$", max_length=200)]
    settings: dict[str, str]


class Outcome(msgspec.Struct, frozen=True):
    """The outcome; `error` is why there is nothing."""

    graph: Graph | None = None
    state: StateName | None = None
    planned: PlannedUpload | None = None
    states: StateEntries | None = None
    change: PlannedChange | None = None
    spec: ApplicationSpec | None = None
    sha256: str | None = None
    error: ErrorView | None = None

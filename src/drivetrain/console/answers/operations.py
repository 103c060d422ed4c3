"""Requests that change something: their bodies and their answers.

Called by `console.operations` and `console.handlers.writes`.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from drivetrain.console.answers.problem import Problem

Kind = Literal["kill", "restart", "replay", "savepoint", "change", "rollback", "add-worker", "remove-worker"]


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """Something that takes a while, as it is now; its moments are those of the console's clock.

    `app_id` is null for what is about the cluster. `state` is running, succeeded or failed. `result` is what
    it gave: of a savepoint its `place`, of a restart or a replay the application's new `epoch`, of a change
    or a rollback the `version` in force, of adding or removing a `worker` its name. `problem` is why it
    failed.
    """

    operation_id: str
    kind: Kind
    app_id: str | None
    state: Literal["running", "succeeded", "failed"]
    asked_by: str
    started_ms: int
    ended_ms: int | None
    result: dict[str, str]
    problem: Problem | None


class Operations(msgspec.Struct, frozen=True, kw_only=True):
    """The latest operations that this console was asked for, the newest first."""

    operations: tuple[Operation, ...]


class Replay(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """From which moment on to process messages again: ISO 8601 (UTC), or ms since 1970 as a number."""

    replay_from: Annotated[str, Meta(min_length=1, max_length=64)] | int


class Savepoint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A savepoint: its name below `savepoints` in the application's state directory (by default id and time),
    and how long to wait for its checkpoint."""

    name: Annotated[str, Meta(max_length=100, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")] | None = None
    timeout: Annotated[str, Meta(max_length=32)] = "1 min"


class Submitted(msgspec.Struct, frozen=True, kw_only=True):
    """An application was accepted as `app_id`."""

    app_id: str
    name: str


class LogPiece(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of the log of `process`, which runs or ran on `worker`; read on at `next_offset`.

    `text` is what users' programs wrote: show it as text. Bytes that are no UTF-8 are replaced.
    """

    process: str
    worker: str
    next_offset: int
    text: str


class Logs(msgspec.Struct, frozen=True, kw_only=True):
    """The ends of logs, or what follows an offset."""

    pieces: tuple[LogPiece, ...]


class Threads(msgspec.Struct, frozen=True, kw_only=True):
    """The stacks of all threads of a process at one moment, as text: of Python, and of Spark's Java.

    The process is that of an executor, or (null) of a run. Names in it are those of users' functions and
    files: show it as text.
    """

    executor: str | None
    python: str
    java: str

"""Operations: work that takes longer than a request should; one request begins it, others ask for its state.

Problem: a savepoint takes minutes, the connection may break, and the user still needs the result.

Design: an operation runs as a task of the console; the cluster does the work, and continues it when the
console ends. The newest operations are kept in memory.

Invariants:

1. At most `MOST_RUNNING` run, and at most `MOST_KEPT` are kept; one that runs is never forgotten.
2. An operation ends once: as succeeded with a result, or as failed with a problem.

Called by `console.services`, which handlers and the server use.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Mapping
from typing import Final

import msgspec

from drivetrain.console.answers.operations import Kind, Operation
from drivetrain.console.problems import RequestError, problem_of, unexpected
from drivetrain.errors import DrivetrainError, InternalError

MOST_RUNNING: Final = 50
MOST_KEPT: Final = 500

log = logging.getLogger("drivetrain.console")


class OperationBook:
    """The operations of this console, by id."""

    def __init__(self) -> None:
        self._operations: Final[OrderedDict[str, Operation]] = OrderedDict()
        self._tasks: Final[dict[str, asyncio.Task[None]]] = {}

    async def close(self) -> None:
        """Stop waiting for running operations; the cluster continues them."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def begin(
        self, kind: Kind, app_id: str | None, asked_by: str, doing: Awaitable[Mapping[str, str]], path: str
    ) -> Operation:
        """Begin an operation, whose result is that of `doing`; raises RequestError when too many run.

        `path` is that of the request, for its problem.
        """
        operation = Operation(
            operation_id=secrets.token_hex(8),
            kind=kind,
            app_id=app_id,
            state="running",
            asked_by=asked_by,
            started_ms=_now_ms(),
            ended_ms=None,
            result={},
            problem=None,
        )
        self._operations[operation.operation_id] = operation
        self._tasks[operation.operation_id] = asyncio.ensure_future(self._run(operation, doing, path))
        return operation

    def require_room(self) -> None:
        """Raise RequestError when no more operations may begin."""
        if len(self._tasks) >= MOST_RUNNING:
            raise RequestError(
                "too many operations are under way",
                code="too-many",
                expected=f"at most {MOST_RUNNING}",
                remedy="wait until some have ended",
            )

    def operation(self, operation_id: str) -> Operation:
        """The operation as it is now; raises RequestError when there is none of that id."""
        found = self._operations.get(operation_id)
        if found is None:
            raise RequestError(
                "there is no operation of this id",
                code="not-found",
                where=operation_id[:100],
                expected="an operation that this console was asked for since it started",
                remedy="see the application itself for the outcome",
            )
        return found

    def newest(self) -> list[Operation]:
        """All that are kept, the newest first."""
        return list(reversed(self._operations.values()))

    def check(self) -> None:
        """Raise InternalError if an invariant does not hold."""
        if not self._tasks.keys() <= self._operations.keys():
            raise InternalError("operations invariant 1: one that runs is forgotten")
        if any(
            (each.state == "running") != (each.ended_ms is None)
            or (each.state == "failed") != bool(each.problem)
            for each in self._operations.values()
        ):
            raise InternalError("operations invariant 2: one has no proper end")

    async def _run(self, operation: Operation, doing: Awaitable[Mapping[str, str]], path: str) -> None:
        changes: dict[str, object]
        try:
            changes = {"state": "succeeded", "result": dict(await doing)}
        except DrivetrainError as error:
            changes = {"state": "failed", "problem": problem_of(error, path)}
        except Exception:  # a bug of the console must not leave the operation running for ever
            log.exception("an operation met a bug")
            changes = {"state": "failed", "problem": unexpected(path)}
        finally:
            self._tasks.pop(operation.operation_id, None)
        self._operations[operation.operation_id] = msgspec.structs.replace(
            operation, ended_ms=_now_ms(), **changes
        )
        ended = [id for id in self._operations if id not in self._tasks]
        for id in ended[: max(0, len(self._operations) - MOST_KEPT)]:
            del self._operations[id]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000

"""Reads the states of applications for requests, each in a process of its own.

Problem: states are Python objects of users' classes, in files that only Spark can read. Neither may be in the
console.

Design: a process for each request (`cli.inspection.state_process`), one at a time: it starts a small Spark.
Once there are `MOST_WAITING` requests, with the one that runs, further ones are refused.

Called by `console.handlers.states` and `console.services`.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Final

from drivetrain.console.answers.states import StateEntries
from drivetrain.console.planning import processes
from drivetrain.console.planning.requests import Outcome, ReadStates
from drivetrain.console.problems import RequestError
from drivetrain.errors import InternalError, UserError

PROGRAM: Final = "drivetrain.cli.inspection.state_process"
MOST_WAITING: Final = 4
_OF_JAVA: Final = ("JAVA_HOME", "JDK_JAVA_OPTIONS", "SPARK_HOME", "SPARK_LOCAL_IP")


class StateReading:
    """Reads states, in directories below `directory`; each reading takes `timeout_ms` at most."""

    def __init__(self, directory: Path, timeout_ms: int) -> None:
        self._directory: Final = directory
        self._timeout_s: Final = timeout_ms / 1000
        self._place: Final = asyncio.Semaphore(1)
        self._waiting = 0

    async def read(self, asked: ReadStates) -> StateEntries:
        """The states; raises what `drivetrain state` raises, and RequestError when too many wait."""
        if self._waiting >= MOST_WAITING:
            raise RequestError(
                "too many requests wait to read states",
                code="too-many",
                expected=f"at most {MOST_WAITING}",
                remedy="try again in a moment",
            )
        self._waiting += 1
        try:
            async with self._place:
                with tempfile.TemporaryDirectory(dir=self._directory, prefix="states-") as place:
                    outcome = await self._run(asked, Path(place))
        finally:
            self._waiting -= 1
        if outcome.states is None:
            raise InternalError("a process gave neither states nor an error", where=asked.app_id)
        return outcome.states

    async def _run(self, asked: ReadStates, place: Path) -> Outcome:
        return await processes.run(
            PROGRAM,
            asked,
            place,
            self._timeout_s,
            is_late=UserError(
                "the states take too long to read",
                where=asked.processor,
                expected=f"at most {self._timeout_s:g} s",
                remedy="ask for one key; read them with `drivetrain state`, or set console.planning-timeout",
            ),
            without_answer="read them with `drivetrain state`, which shows what Spark writes",
            passed_on=_OF_JAVA,
        )

"""Workers of a local cluster: asks the `drivetrain local` that started this console to add or end one.

Problem: a console starts and ends no processes, and in a cluster of several machines it has no machine to
start one on. But `drivetrain local` runs all workers itself, and a user who tries out a cluster wants to see
the effect of one more worker.

Design: `drivetrain local` listens at a control socket in the directory of the cluster, which only its user
may use, and tells its console the directory. It answers at once; the cluster shows when a worker is
registered, or gone.

Called by `console.server`, `console.handlers.local_workers`, and `cli.clusters.local_control`, which answers.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final, Literal

import msgspec

from drivetrain.console.problems import RequestError
from drivetrain.errors import UnavailableError
from drivetrain.runtime.control_socket import asked

DIRECTORY_VARIABLE: Final = "_DRIVETRAIN_LOCAL"
"""Where `drivetrain local` says to its console in which directory it listens."""
_TIMEOUT_S: Final = 10.0


class LocalRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `drivetrain local` is to do; `worker` is the name of the one to remove."""

    ask: Literal["list", "add", "remove"]
    worker: str = ""


class LocalAnswer(msgspec.Struct, frozen=True):
    """The names of the workers that it runs; `worker` is the one that was added or is ending, `log` its log.

    With `refused` nothing was done; `remedy` is what to do instead.
    """

    workers: tuple[str, ...]
    worker: str = ""
    log: str = ""
    refused: str | None = None
    remedy: str | None = None


class LocalWorkers:
    """The workers of the `drivetrain local` that listens in `directory`."""

    def __init__(self, directory: Path) -> None:
        self._directory: Final = directory

    async def names(self) -> tuple[str, ...]:
        """The workers that it runs; raises UnavailableError when it does not answer."""
        return (await self._asked(LocalRequest("list"))).workers

    async def add(self) -> LocalAnswer:
        """Start another worker; raises RequestError when it is refused, and as `names`."""
        return await self._asked(LocalRequest("add"))

    async def remove(self, worker: str) -> LocalAnswer:
        """End a worker, which hands over what it runs; raises like `add`."""
        return await self._asked(LocalRequest("remove", worker))

    async def _asked(self, request: LocalRequest) -> LocalAnswer:
        line = msgspec.json.encode(request)
        try:
            reply = await asyncio.to_thread(asked, self._directory, line, _TIMEOUT_S)
            answer = msgspec.json.decode(reply, type=LocalAnswer)
        except (UnavailableError, msgspec.MsgspecError) as error:
            raise UnavailableError(
                "the `drivetrain local` that started this console does not answer",
                where=str(self._directory),
                got=str(error),
                remedy="try again in a moment; if it has ended, start it again",
            ) from error
        if answer.refused is not None:
            raise RequestError(
                answer.refused, code="not-local", where=request.worker[:100] or None, remedy=answer.remedy
            )
        return answer

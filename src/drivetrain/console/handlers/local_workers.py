"""Requests that add a worker to a local cluster, or remove one.

Called by `console.routes.writes`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from drivetrain.cluster.client import NoLeaderError
from drivetrain.console.handlers.writes import begun
from drivetrain.console.local_workers import LocalWorkers
from drivetrain.console.problems import RequestError
from drivetrain.console.route import Call, Reply
from drivetrain.errors import UnavailableError

_LOOK_S: Final = 0.5
_LONGEST_S: Final = 90.0
"""How long a worker may take to register, or to hand over what it runs and end."""


async def add(call: Call) -> Reply:
    """Start another worker; the operation has succeeded once it is registered."""
    local = _local(call)

    async def doing() -> Mapping[str, str]:
        added = await local.add()
        await _wait(call, added.worker, True, f"the worker has not registered; see its log, {added.log}")
        return {"worker": added.worker}

    return begun(call, "add-worker", None, doing())


async def remove(call: Call) -> Reply:
    """End a worker; the operation has succeeded once the cluster no longer has it."""
    local, worker = _local(call), call.path["worker"]
    if worker not in await local.names():
        raise RequestError(
            "drivetrain local runs no worker of this name",
            code="not-found",
            where=worker[:100],
            remedy="end workers that were started otherwise where they run",
        )

    async def doing() -> Mapping[str, str]:
        removed = await local.remove(worker)
        await _wait(call, worker, False, f"the worker has not ended yet; see its log, {removed.log}")
        return {"worker": worker}

    return begun(call, "remove-worker", None, doing())


def _local(call: Call) -> LocalWorkers:
    call.services.operations.require_room()
    local = call.services.local_workers
    if local is None:
        raise RequestError(
            "this console cannot start or end workers",
            code="not-local",
            expected="the console of a `drivetrain local`",
            remedy="start a worker where it is to run, with drivetrain worker; end one where it runs",
        )
    return local


async def _wait(call: Call, worker: str, is_there: bool, otherwise: str) -> None:
    loop = asyncio.get_running_loop()
    end_s = loop.time() + _LONGEST_S
    while loop.time() < end_s:
        try:
            if (worker in {one.name for one in await call.services.client.workers()}) == is_there:
                return
        except NoLeaderError:  # another master is being elected
            pass
        await asyncio.sleep(_LOOK_S)
    raise UnavailableError(otherwise, where=worker, remedy="look at the workers again in a moment")

"""Registers an executor with its application master.

Called by `executor`.
"""

from __future__ import annotations

import asyncio
from typing import Final

from drivetrain.actor import ActorFailedError, ActorRef, ActorStoppedError, AskError
from drivetrain.cluster.executor.report_outbox import ASK_MS, RETRY_S
from drivetrain.cluster.messages.executing import ExecutorRegistered, RegisterExecutor

_PATIENCE_S: Final = 60.0


async def register(app_master: ActorRef, request: RegisterExecutor) -> ExecutorRegistered:
    """Ask until the application master answers, for at most a minute.

    Raises `ActorStoppedError` when it is gone, `ActorFailedError` when it has another epoch, and the last
    error after a minute.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _PATIENCE_S
    while True:
        try:
            return await app_master.ask(request, ExecutorRegistered, timeout_ms=ASK_MS)
        except (ActorStoppedError, ActorFailedError):
            raise
        except AskError:
            if loop.time() > deadline:
                raise
            await asyncio.sleep(RETRY_S)

"""How an executor becomes known to its application master.

Called by `executor`.
"""

from __future__ import annotations

import asyncio
from typing import Final

from drivetrain.actor import ActorFailedError, ActorRef, ActorStoppedError, AskError
from drivetrain.cluster.executor.report_outbox import ASK_MS, RETRY_S
from drivetrain.cluster.messages.executing import ExecutorRegistered, RegisterExecutor

_PATIENCE_S: Final = 60.0


async def register(app_master: ActorRef, hello: RegisterExecutor) -> ExecutorRegistered:
    """Ask until it answers, for a minute.

    Raises `ActorStoppedError` when it is gone, `ActorFailedError` when it is of another epoch, or the last
    error.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _PATIENCE_S
    while True:
        try:
            return await app_master.ask(hello, ExecutorRegistered, timeout_ms=ASK_MS)
        except (ActorStoppedError, ActorFailedError):
            raise
        except AskError:
            if loop.time() > deadline:
                raise
            await asyncio.sleep(RETRY_S)

"""Serves until a signal: the first one closes everything and ends, the second ends at once.

Called by `cluster_commands` and `console`.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable


def serve_until_signal(serve: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    """Run `serve`, which ends after its event is set: by the first SIGINT or SIGTERM."""
    asyncio.run(_until_signal(serve))


async def _until_signal(serve: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def signalled(number: signal.Signals) -> None:
        if stop.is_set():
            os.write(2, b"ended at once\n")
            os._exit(128 + number)
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, signalled, number)
    await serve(stop)

"""What an application master must know, in a line, asked again until it is known.

Invariants:
1. Outcomes reach the application master in their order, each until it says `Known`, one at a time.
2. After `close` nothing is in the line, and nothing is taken.

Called by `executor`, on the loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from drivetrain.actor import ActorFailedError, ActorRef, ActorStoppedError, AskError
from drivetrain.cluster.messages.executing import FragmentChanged, Known

STALE_EPOCH: Final = "stale-epoch"
ASK_MS: Final = 10_000
RETRY_S: Final = 0.5

log = logging.getLogger(__name__)


class Outbox:
    """The line for `app_master`; `unknown` is called with what it does not know."""

    def __init__(self, app_master: ActorRef, unknown: Callable[[FragmentChanged], None]) -> None:
        self._app_master = app_master
        self._unknown = unknown
        self._line: deque[FragmentChanged] = deque()
        self._closed = False
        self.is_sending = False

    def __bool__(self) -> bool:
        return bool(self._line)

    def put(self, change: FragmentChanged) -> None:
        """Join the line."""
        if not self._closed:
            self._line.append(change)

    def close(self) -> None:
        """Forget what is in the line: nobody listens."""
        self._closed = True
        self._line.clear()

    async def send_all(self) -> str | None:
        """Ask until all is known; returns why nobody can be asked any more."""
        self.is_sending = True
        try:
            while self._line:
                change = self._line[0]
                try:
                    known = await self._app_master.ask(change, Known, timeout_ms=ASK_MS)
                except ActorStoppedError as error:
                    return str(error)
                except ActorFailedError as error:
                    if error.failure_code == STALE_EPOCH:
                        return str(error)
                    log.warning("%s %s was not taken: %s", change.fragment, change.outcome.value, error)
                    await asyncio.sleep(RETRY_S)
                except AskError:
                    await asyncio.sleep(RETRY_S)
                else:
                    if self._line and self._line[0] is change:
                        self._line.popleft()
                    if not known.known:
                        self._unknown(change)
            return None
        finally:
            self.is_sending = False

"""A queue of outcomes for an application master, each sent until it is acknowledged.

Invariants:
1. Outcomes reach the application master in order, one at a time, each repeated until it answers
   `FragmentChangedReply`.
2. After `close` the queue is empty, and accepts nothing.

Called by `executor`, on the loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from drivetrain.actor import ActorFailedError, ActorRef, ActorStoppedError, AskError
from drivetrain.cluster.messages.executing import FragmentChanged, FragmentChangedReply

STALE_EPOCH: Final = "stale-epoch"
ASK_MS: Final = 10_000
RETRY_S: Final = 0.5

log = logging.getLogger(__name__)


class Outbox:
    """The queue for `app_master`; calls `unknown` with outcomes of attempts that it does not know."""

    def __init__(self, app_master: ActorRef, unknown: Callable[[FragmentChanged], None]) -> None:
        self._app_master = app_master
        self._unknown = unknown
        self._queue: deque[FragmentChanged] = deque()
        self._closed = False
        self.is_sending = False

    def __bool__(self) -> bool:
        return bool(self._queue)

    def put(self, change: FragmentChanged) -> None:
        """Append an outcome."""
        if not self._closed:
            self._queue.append(change)

    def close(self) -> None:
        """Drop all outcomes: the application master is gone."""
        self._closed = True
        self._queue.clear()

    async def send_all(self) -> str | None:
        """Send until all outcomes are acknowledged; returns the reason if the application master is gone."""
        self.is_sending = True
        try:
            while self._queue:
                change = self._queue[0]
                try:
                    known = await self._app_master.ask(change, FragmentChangedReply, timeout_ms=ASK_MS)
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
                    if self._queue and self._queue[0] is change:
                        self._queue.popleft()
                    if not known.known:
                        self._unknown(change)
            return None
        finally:
            self.is_sending = False

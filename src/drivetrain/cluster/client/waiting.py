"""Waiting for what happens in a cluster: the end of an application, its clock, the end of its processes.

Problem: a client of the masters and a client through a console wait in the same way, however each asks: they
ask again and again, and continue while no answer comes.

Design: `WaitingClient` has the waits; a client adds how it asks, and which errors may be gone after a moment.

Invariant: a wait ends within its timeout plus one look.

Called by `client` and `console_client`, whose clients extend it.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import ClassVar, Final, TypeVar

from drivetrain.api.durations import DEFAULT_TIMEOUT, milliseconds
from drivetrain.api.moments import moment_ms
from drivetrain.cluster.client.client_errors import StillUnderWayError
from drivetrain.cluster.client.listing import runs_on
from drivetrain.cluster.client.refusals import clock_not_reached
from drivetrain.cluster.leader import NoLeaderError, NoMasterError
from drivetrain.cluster.messages.applications import ApplicationView, WorkerView

T = TypeVar("T")

POLL_S: Final = 0.5


class WaitingClient(ABC):
    """The waits of a client; they use the time of the running loop."""

    away: ClassVar[tuple[type[Exception], ...]] = (NoLeaderError, NoMasterError)
    """Errors whose cause may be gone after a moment."""

    @abstractmethod
    async def application(self, app: str) -> ApplicationView:
        """The application of this id or name."""

    @abstractmethod
    async def workers(self) -> tuple[WorkerView, ...]:
        """All registered workers."""

    @abstractmethod
    async def _clock_reached(self, view: ApplicationView, wanted_ms: int, left_ms: int) -> int | None:
        """The clock once it is at `wanted_ms`; None if it is not after at most `left_ms`."""

    async def wait(self, app: str, timeout: str = DEFAULT_TIMEOUT) -> ApplicationView:
        """Wait until an application is over; raises StillUnderWayError after `timeout`.

        Without a leader it waits for one, until the timeout.
        """

        async def is_over() -> ApplicationView | None:
            view = await self.application(app)
            return view if view.state.is_over else None

        return await self._wait_for(is_over, timeout, app, "the application is not over yet")

    async def wait_clock(self, app: str, moment: str | int | datetime, timeout: str = DEFAULT_TIMEOUT) -> int:
        """Wait until an application has processed everything before `moment`; returns its clock, in ms.

        `moment` is ISO 8601 (UTC unless it has a zone), a datetime, or ms since the epoch. Continues through
        changes of leader and application master. Raises StillUnderWayError when the clock does not reach it
        in time, ApplicationOverError when the application ends first.
        """
        wanted_ms, loop = moment_ms(moment, "moment"), asyncio.get_running_loop()
        end_s = loop.time() + milliseconds(timeout, "timeout") / 1000

        async def reached() -> int | None:
            view = await self.application(app)
            if view.clock_ms is not None and view.clock_ms >= wanted_ms:
                return view.clock_ms
            if view.state.is_over:
                raise clock_not_reached(view, app, wanted_ms)
            left_ms = int((end_s - loop.time()) * 1000)
            return None if left_ms <= 0 else await self._clock_reached(view, wanted_ms, left_ms)

        return await self._wait_for(reached, timeout, app, "the application's clock is not there yet")

    async def wait_gone(self, app: str, timeout: str = DEFAULT_TIMEOUT) -> None:
        """Wait until no worker runs a process of an application that is over."""
        app_id = (await self.application(app)).app_id

        async def is_gone() -> bool | None:
            running = [worker for worker in await self.workers() if runs_on(worker, app_id)]
            return None if running else True

        await self._wait_for(is_gone, timeout, app, "processes of the application are still ending")

    async def _wait_for(
        self, look: Callable[[], Awaitable[T | None]], timeout: str, app: str, otherwise: str
    ) -> T:
        loop = asyncio.get_running_loop()
        end_s = loop.time() + milliseconds(timeout, "timeout") / 1000
        while True:
            try:
                found = await look()
            except self.away:
                if loop.time() >= end_s:
                    raise
                found = None
            if found is not None:
                return found
            if loop.time() >= end_s:
                raise StillUnderWayError(
                    otherwise,
                    where=app,
                    got=f"after {timeout}",
                    remedy=f"wait longer; `drivetrain show {app}` shows its progress",
                )
            await asyncio.sleep(POLL_S)

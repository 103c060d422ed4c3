"""Coroutines that run without a task until they really wait.

Problem: most asynchronous handlers finish without waiting for anything, and a task for each would cost
more than the handler. But a coroutine stepped by hand has no current task, without which
`asyncio.timeout` and task groups do not work, and it cannot become a task half-way.

Design: a *carrier* is a task that is parked on a future. To run a coroutine, a parked carrier becomes
the current task and the coroutine takes its first step by hand. If it finishes, the carrier never wakes up.
If it waits, the carrier wakes, yields what the coroutine waits for as if it were its own, and carries
the coroutine to its end; then it parks again. The coroutine sees one current task and one context throughout.
With no parked carrier, the coroutine runs in a new one from the start.

Invariants:
1. A carrier carries at most one coroutine, and is parked or carrying or retired.
2. `done` is called exactly once for every coroutine that did not finish in its first step, never from
   within `step`.
3. A carrier that was cancelled retires: a cancellation never reaches another coroutine.

Context variables set in one coroutine may be seen by a later one in the same carrier.

Called by cells. The eager first step follows CPython 3.12's eager tasks, which 3.11 lacks.
"""

from __future__ import annotations

import asyncio
import types
from asyncio.tasks import _enter_task, _leave_task
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from typing import Any, Final

from drivetrain.errors import InternalError

MAX_PARKED: Final = 64

Done = Callable[[BaseException | None], None]


class Carrier:
    """A task that carries one coroutine at a time; `cancel` cancels the coroutine."""

    __slots__ = ("_carriers", "_coroutine", "_done", "_first", "_wake", "context", "task")

    def __init__(self, carriers: Carriers) -> None:
        self._carriers = carriers
        self._coroutine: Coroutine[Any, Any, None] | None = None
        self._first: Any = None
        self._done: Done | None = None
        self._wake: asyncio.Future[None] | None = None
        self.context = carriers.context.copy()
        self.task = carriers.loop.create_task(self._run(), name="actor-carrier", context=self.context)
        self.task.add_done_callback(self._ended)

    @property
    def is_parked(self) -> bool:
        """Whether this carrier is free and was not cancelled."""
        return self._wake is not None and not self._wake.done() and self._coroutine is None

    def carry(self, coroutine: Coroutine[Any, Any, None], first: Any, done: Done) -> None:
        """Continue a coroutine that yielded `first`, or start one that has not begun (None)."""
        self._coroutine, self._first, self._done = coroutine, first, done
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def cancel(self) -> None:
        """Cancel what the coroutine waits for; `done` is still called."""
        self.task.cancel()

    async def _run(self) -> None:
        carriers = self._carriers
        while True:
            cancelled: asyncio.CancelledError | None = None
            try:
                await self._wait_for_work()
            except asyncio.CancelledError as error:
                cancelled = error  # meant for the coroutine, if there is one
            coroutine, done = self._coroutine, self._done
            if coroutine is None or done is None:
                return
            failure: BaseException | None = None
            try:
                await _carry_on(coroutine, self._first, cancelled)
            except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - handed to the owner
                failure = error
            self._coroutine = self._first = self._done = None
            done(failure)
            if cancelled is not None or self.task.cancelling() or not carriers.may_park():
                return

    def _ended(self, _task: asyncio.Task[None]) -> None:
        self._carriers.retire(self)
        coroutine, done = self._coroutine, self._done
        if coroutine is not None and done is not None:
            # Cancelled before its first step: the task's own code never ran.
            self._coroutine = self._done = None
            coroutine.close()
            done(asyncio.CancelledError())

    async def _wait_for_work(self) -> None:
        if self._coroutine is None:
            self._wake = self._carriers.loop.create_future()
            self._carriers.park(self)
            try:
                await self._wake
            finally:
                self._wake = None


class Carriers:
    """The carriers of one system."""

    def __init__(self, loop: asyncio.AbstractEventLoop, context: Context) -> None:
        self.loop: Final = loop
        self.context: Final = context
        self._parked: Final[list[Carrier]] = []
        self._all: Final[dict[int, Carrier]] = {}
        self._is_closed = False

    @property
    def parked(self) -> int:
        """How many carriers are free."""
        return len(self._parked)

    @property
    def total(self) -> int:
        """How many carriers there are."""
        return len(self._all)

    def step(self, coroutine: Coroutine[Any, Any, None], done: Done) -> Carrier | None:
        """Run the first step; return None if that was all, else the carrier that continues.

        Raises what the coroutine raises in its first step.
        """
        if not self._parked:
            carrier = self._new()
            carrier.carry(coroutine, None, done)
            return carrier
        carrier = self._parked.pop()
        suspended = False
        _enter_task(self.loop, carrier.task)
        try:
            first = carrier.context.run(coroutine.send, None)
            suspended = True
        except StopIteration:
            return None
        finally:
            _leave_task(self.loop, carrier.task)
            # It may have cancelled its task: then the carrier retires when it wakes.
            if not suspended and carrier.is_parked:
                self._parked.append(carrier)
        carrier.carry(coroutine, _FIRST if first is None else first, done)
        return carrier

    def park(self, carrier: Carrier) -> None:
        """Add a free carrier."""
        self._parked.append(carrier)

    def may_park(self) -> bool:
        """Whether there is space for one more free carrier."""
        return not self._is_closed and len(self._parked) < MAX_PARKED

    def retire(self, carrier: Carrier) -> None:
        """Forget a carrier whose task has ended."""
        self._all.pop(id(carrier), None)
        if carrier in self._parked:
            self._parked.remove(carrier)

    def close(self) -> list[asyncio.Task[None]]:
        """Cancel every carrier; return the tasks to wait for."""
        self._is_closed = True
        tasks = [carrier.task for carrier in self._all.values()]
        for task in tasks:
            task.cancel()
        self._parked.clear()
        return tasks

    def check(self) -> None:
        """Verify the invariants; raises `InternalError`."""
        for carrier in self._parked:
            if carrier._coroutine is not None:
                raise InternalError("carrier invariant 1: a parked carrier carries a coroutine")
        if len({id(carrier) for carrier in self._parked}) != len(self._parked):
            raise InternalError("carrier invariant 1: a carrier is parked twice")

    def _new(self) -> Carrier:
        carrier = Carrier(self)
        self._all[id(carrier)] = carrier
        return carrier


_FIRST: Final = object()  # a bare yield, as opposed to "has not begun"


@types.coroutine
def _carry_on(
    coroutine: Coroutine[Any, Any, None], first: Any, error: BaseException | None
) -> Generator[Any, Any, None]:
    """Drive `coroutine` from its current point, passing on what it yields and what is sent to it."""
    try:
        if error is not None:
            yielded = coroutine.throw(error)
        elif first is None:
            yielded = coroutine.send(None)
        else:
            yielded = None if first is _FIRST else first
        while True:
            try:
                sent = yield yielded
            except BaseException as thrown:  # noqa: BLE001 - passed on to the coroutine
                yielded = coroutine.throw(thrown)
            else:
                yielded = coroutine.send(sent)
    except StopIteration:
        return

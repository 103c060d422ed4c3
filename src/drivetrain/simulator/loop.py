"""An asyncio event loop on virtual time: deterministic, and as fast as the code it runs.

Problem: a protocol's bugs hide in timeouts and interleavings. On a real loop a test of them really sleeps,
sees one interleaving, and cannot be repeated.

Design: an `AbstractEventLoop` that owns its clock. Time stands still while callbacks run and jumps to the
next timer when none is ready, so an hour of heartbeats takes milliseconds. Which of the ready callbacks
runs next is drawn from a seeded generator as far as asyncio leaves the order open (`Lanes`); timers with
the same deadline are shuffled too, because their order is undefined. Blocking functions
(`run_in_executor`) run on the loop after a random virtual delay. Everything that would reach the real world
raises `RealWorldError`.

The loop knows which simulated process a callback belongs to (`Life`): callbacks of a dead process never
run, those of a frozen one wait.

Invariants:
1. Time never goes back, and moves only when no callback is ready.
2. A callback never runs before its deadline, and a timer whose process lives fires at its deadline exactly.
3. Nothing of a dead life runs, its clean-up included.
4. Same seed, same program: same callbacks in the same order at the same times.
5. Time that does not move during `LIVELOCK_STEPS` callbacks, or cannot move at all, is an error, not a hang.

Called by `Simulation`. Source: trio's autojump clock and the simulators of FoundationDB and TigerBeetle.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import threading
from collections.abc import Callable, Coroutine
from contextvars import Context
from random import Random
from typing import Any, Final, TypeVar, TypeVarTuple, Unpack, cast

from drivetrain.simulator.process_life import CURRENT_LIFE, Life, Ready
from drivetrain.simulator.ready_callbacks import Lanes
from drivetrain.simulator.real_world import NoRealWorld
from drivetrain.simulator.simulation_errors import DeadlockError, LivelockError, OverrunError, RealWorldError

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

LIVELOCK_STEPS: Final = 1_000_000
START_S: Final = 1_000.0
"""Virtual time starts here rather than at 0, which would hide mistakes about what 0 means."""

_LONGEST_BLOCKING_CALL_S: Final = 0.02
_FORGET_TASKS_EVERY: Final = 1024


class SimulatedLoop(NoRealWorld):
    """An event loop on virtual time, whose order of callbacks follows `random`.

    `until_s` is how much virtual time may pass in total before `OverrunError`. Not thread-safe: a call from
    another thread raises `RealWorldError`, because its moment could not be reproduced.
    """

    def __init__(self, random: Random, *, until_s: float = 3_600.0) -> None:
        self._random: Final = random
        self._now = START_S
        self._deadline = START_S + until_s
        self._ready: Final = Lanes(random)
        self._timers: list[tuple[float, int, asyncio.TimerHandle, Life | None]] = []
        self._timer_count = 0
        self._task_count = 0
        self._tasks: list[tuple[asyncio.Task[Any], Life | None]] = []
        self._steps_at_now = 0
        self._thread = threading.get_ident()
        self._life_now: Life | None = None
        self._is_running = False
        self._is_closed = False
        self._is_stopping = False
        self._handler: Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object] | None = None
        self._factory: Any = None
        self.failures: list[dict[str, Any]] = []
        """The failures reported to the loop without a handler: the context dictionaries of asyncio."""

    # ---- time

    def time(self) -> float:
        """Virtual seconds; starts at `START_S`."""
        return self._now

    # ---- scheduling

    def call_soon(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Make the callback ready now, for the process of `context` (by default the caller's)."""
        _check_callable(callback)
        life = CURRENT_LIFE.get() if context is None else context.get(CURRENT_LIFE)
        handle = asyncio.Handle(callback, args, self, context)
        if (life is None or life.is_alive) and not self._is_closed:
            self._ready.push(Ready(handle, life))
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """As `call_soon`; raises `RealWorldError` when another thread calls."""
        if threading.get_ident() != self._thread:
            raise RealWorldError(
                "a second thread called into a simulation",
                expected="every blocking function started with loop.run_in_executor",
                got=f"thread {threading.current_thread().name}",
                remedy="start it with run_in_executor or asyncio.to_thread, which run on virtual time here",
            )
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run the callback `delay` virtual seconds from now."""
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run the callback at the virtual time `when`, or now if that has passed."""
        _check_callable(callback)
        life = CURRENT_LIFE.get() if context is None else context.get(CURRENT_LIFE)
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        if (life is None or life.is_alive) and not self._is_closed:
            self._timer_count += 1
            heapq.heappush(self._timers, (when, self._timer_count, handle, life))
        return handle

    def thaw(self, life: Life) -> None:
        """Make ready the callbacks that waited while the life was frozen, in their original order."""
        while life.frozen:
            self._ready.push(life.frozen.popleft())

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Nothing to do: a cancelled timer is skipped when it is due."""

    # ---- running

    def run_until_complete(self, future: Any) -> Any:
        """Run until the future is done; returns its result. Raises the errors of
        `drivetrain.simulator.simulation_errors`."""
        task = future if asyncio.isfuture(future) else self.create_task(future)
        self._run(task.done)
        return task.result()

    def run_forever(self) -> None:
        """Run until `stop` is called."""
        self._is_stopping = False
        self._run(lambda: self._is_stopping)

    def stop(self) -> None:
        """End `run_forever` after the callback that is running."""
        self._is_stopping = True

    def _run(self, is_done: Callable[[], bool]) -> None:
        if self._is_running or self._is_closed:
            raise RuntimeError("this simulated loop is running already or closed")
        self._is_running = True
        asyncio._set_running_loop(self)
        try:
            while not is_done():
                if self._timers and self._timers[0][0] <= self._now:
                    self._release_timers()
                elif self._ready:
                    self._step()
                else:
                    self._advance()
        finally:
            asyncio._set_running_loop(None)
            self._is_running = False

    def _step(self) -> None:
        ready = self._ready.pop()
        handle, life = ready
        if life is not None:
            if not life.is_alive:
                return
            if life.is_frozen:
                life.frozen.append(ready)
                return
        if handle.cancelled():
            return
        self._steps_at_now += 1
        if self._steps_at_now > LIVELOCK_STEPS:
            raise LivelockError(
                f"{LIVELOCK_STEPS:,} callbacks ran at one instant of virtual time",
                where=repr(getattr(handle, "_callback", None)),
                remedy="look for a callback or a task that reschedules itself without waiting",
            )
        self._life_now = life
        handle._run()

    def _release_timers(self) -> None:
        """Make the timers that are due ready; those with one deadline in a random order."""
        timers, due = self._timers, []
        when = timers[0][0]
        while timers and timers[0][0] == when:
            _, _, handle, life = heapq.heappop(timers)
            if not handle.cancelled() and (life is None or life.is_alive):
                due.append(Ready(handle, life))
        if len(due) > 1:
            self._random.shuffle(due)
        for ready in due:
            self._ready.push(ready)

    def _advance(self) -> None:
        timers = self._timers
        while timers and (timers[0][2].cancelled() or not (timers[0][3] is None or timers[0][3].is_alive)):
            heapq.heappop(timers)
        if not timers:
            raise DeadlockError(
                "nothing is left to run, but the scenario still waits",
                got=self.describe_tasks(),
                remedy="give every wait a timeout, or look for who should have answered",
            )
        if timers[0][0] > self._deadline:
            raise OverrunError(
                f"the scenario did not finish within {self._deadline - START_S:g} s of virtual time",
                got=self.describe_tasks(),
                remedy="raise until_s if that is too short, or look for what never finishes",
            )
        self._now = timers[0][0]
        self._steps_at_now = 0

    # ---- tasks and futures

    def create_future(self) -> asyncio.Future[Any]:
        """Create a future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(
        self, coro: Any, *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[Any]:
        """Create a task; unnamed ones get a name that is the same in every run of the seed."""
        self._task_count += 1
        if name is None:
            name = f"task-{self._task_count}"
        if self._factory is not None:
            task: asyncio.Task[Any] = self._factory(self, coro)
            task.set_name(name)
        else:
            task = asyncio.Task(coro, loop=self, name=name, context=context)
        # Held on purpose: the tasks of a dead process must not be finalised while the simulation runs.
        self._tasks.append((task, CURRENT_LIFE.get() if context is None else context.get(CURRENT_LIFE)))
        if self._task_count % _FORGET_TASKS_EVERY == 0:
            self._forget_done_tasks()
        return task

    def _forget_done_tasks(self) -> None:
        kept = []
        for task, life in self._tasks:
            if task.done():
                self._keep_failure(task, life)
            else:
                kept.append((task, life))
        self._tasks = kept

    def set_task_factory(self, factory: Any) -> None:
        """Create tasks with `factory(loop, coro)` from now on; None for asyncio's own."""
        self._factory = factory

    def get_task_factory(self) -> Any:
        """The task factory that was set, or None."""
        return self._factory

    def run_in_executor(
        self, executor: Any, func: Callable[[Unpack[Ts]], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """Run the blocking function on the loop after a random virtual delay; `executor` is not used.

        The function never runs when the calling process is dead by then, as with a killed process.
        """
        future: asyncio.Future[T] = asyncio.Future(loop=self)

        def call() -> None:
            if future.cancelled():
                return
            try:
                result = func(*args)
            except Exception as error:  # noqa: BLE001 - it belongs to the code that awaits the future
                future.set_exception(error)
            else:
                future.set_result(result)

        self.call_later(self._random.uniform(0.0, _LONGEST_BLOCKING_CALL_S), call)
        return future

    def describe_tasks(self, most: int = 12) -> str:
        """Describe at most `most` waiting tasks of living processes, one line each, with where they wait."""
        lines = []
        for task, life in self._tasks:
            if task.done() or (life is not None and not life.is_alive):
                continue
            frames = task.get_stack(limit=1)
            where = f"{frames[-1].f_code.co_qualname}:{frames[-1].f_lineno}" if frames else "nowhere"
            lines.append(f"{task.get_name()} ({life or 'scenario'}) waits in {where}")
        more = [f"and {len(lines) - most} more"] if len(lines) > most else []
        return "\n    ".join(["tasks that wait:", *lines[:most], *more]) if lines else "no task"

    # ---- errors

    def get_exception_handler(self) -> Any:
        """The handler that was set, or None."""
        return self._handler

    def set_exception_handler(self, handler: Any) -> None:
        """Pass failures that are not awaited to the handler, instead of to `failures`."""
        self._handler = handler

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """Keep the failure in `failures`, with the `life` it happened in, so that the simulation can fail."""
        self.failures.append({**context, "life": self._life_now})

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Report a failure that is not awaited; asyncio calls this."""
        if self._is_closed:
            return
        if self._handler is None:
            self.default_exception_handler(context)
        else:
            self._handler(self, context)

    # ---- state

    def is_running(self) -> bool:
        """Whether callbacks are being run."""
        return self._is_running

    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._is_closed

    def close(self) -> None:
        """End the remaining tasks and drop all callbacks; clean-up of tasks has no effect."""
        if self._is_closed:
            return
        self._is_closed = True
        self._forget_done_tasks()
        for task, _ in self._tasks:
            # asyncio would log "Task was destroyed but it is pending"; here that is the purpose.
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # asyncio's own switch
            # Clean-up that awaits or fails is cut short, as by the end of its process.
            with contextlib.suppress(Exception):
                cast("Coroutine[Any, Any, Any]", task.get_coro()).close()
        self._tasks.clear()
        self._timers.clear()
        while self._ready:
            self._ready.pop()

    def _keep_failure(self, task: asyncio.Task[Any], life: Life | None) -> None:
        # The same flag by which asyncio decides to log "Task exception was never retrieved", when the task is
        # finalised; here the moment must not depend on when that is.
        if task._log_traceback:
            message = f"{task.get_name()} failed and nobody awaited it"
            self.failures.append({"message": message, "exception": task.exception(), "life": life})

    def get_debug(self) -> bool:
        """Always False: asyncio's debug mode measures real time."""
        return False

    def set_debug(self, enabled: bool) -> None:
        """Ignored, see `get_debug`."""

    async def shutdown_asyncgens(self) -> None:
        """Nothing to do: asynchronous generators end with their tasks."""

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Nothing to do: there is no executor."""


def _check_callable(callback: object) -> None:
    if not callable(callback):
        raise TypeError(f"a callback must be a plain callable, not {callback!r}")

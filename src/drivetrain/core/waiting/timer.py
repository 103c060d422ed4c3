"""The timer: delays on a timing wheel, driven by a given clock.

Problem. Callers think in delays from now, the wheel in absolute expirations and buckets. Something has to
take the wheel's buckets one by one, and to decide about a delay that is too short to wait for.

Design. `add` turns a delay into an expiration; a task that the wheel refuses because it has expired is due at
once, and `add` returns False. `advance` takes every bucket that has expired, one after the other,
each at the bucket's own time, so that tasks cascade exactly as if the timer had been advanced at every
tick. Due tasks are returned, never called: running them is the caller's effect.

Invariants:

1. A task that was added becomes due exactly once, unless it is cancelled or added again before.
2. A task never becomes due more than `tick_ms` − 1 before its expiration, and `advance(now_ms)` leaves
   no pending task whose rounded-down expiration is at or before `now_ms`.
3. `size` counts pending tasks only: not those due at once, not those returned.

Called by `core.waiting.waiting_operations` and the actor kernel. Not safe for threads: callers serialize.
Source: Apache Kafka's SystemTimer.
"""

from __future__ import annotations

from typing import Generic, TypeVar, cast

from drivetrain.core.waiting.wheel import NO_BUCKET, TimerTask, TimingWheel

TaskT = TypeVar("TaskT", bound=TimerTask)


class Timer(Generic[TaskT]):
    """Tasks that become due after a delay.

    `tick_ms` is the precision (at least 1), `wheel_size` the buckets per level (at least 2),
    `start_ms` the time at the start. Raises `ConfigError` for anything else.
    """

    __slots__ = ("_wheel",)

    def __init__(self, tick_ms: int = 1, wheel_size: int = 20, start_ms: int = 0) -> None:
        self._wheel = TimingWheel(tick_ms, wheel_size, start_ms)

    @property
    def size(self) -> int:
        """The number of pending tasks."""
        return self._wheel.size

    @property
    def next_expiration_ms(self) -> int | None:
        """The time before which `advance` has nothing to do, or None if nothing is queued."""
        return self._wheel.next_expiration_ms

    def add(self, task: TaskT, delay_ms: int, now_ms: int) -> bool:
        """Make `task` due `delay_ms` after `now_ms`; return False if it is due at once.

        Then it is not pending, and the caller runs it. The wheel's time stands at the last expired
        bucket, so even a delay of 0 may have to wait for the next `advance`. A pending task moves to its
        new time; a cancelled one is active again.
        """
        if task._bucket is not NO_BUCKET:
            task.renew()
        return self._wheel.add(task, now_ms + delay_ms)

    def advance(self, now_ms: int) -> list[TaskT]:
        """Return the tasks that became due by `now_ms`, by expiration; empty if none did.

        A time before the last one is allowed and does nothing.
        """
        due: list[TimerTask] = []
        turn = self._wheel.turn
        while turn(now_ms, due):
            pass
        return cast("list[TaskT]", due)  # only `add` puts tasks in, and it takes TaskT

    def check(self) -> None:
        """Verify the wheel's invariants; raise `InternalError` naming the first broken."""
        self._wheel.check()

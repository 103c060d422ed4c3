"""The hierarchical timing wheel: very many timeouts, most of them cancelled, at O(1) each.

Problem. Everything that waits has a timeout, and nearly every timeout is cancelled because the
awaited thing happened. A heap pays O(log n) to add and, since it cannot delete, keeps cancelled
timers until they reach the top: its size follows the timeout, not the work in progress.

Design. A level is an array of buckets, each a span of `tick_ms`; a task goes to the bucket of its
expiration by two integer divisions. A task too far ahead goes to the next level, whose tick is the
whole span of this one; levels appear on first use. With a tick of 1 ms and 20 buckets, levels span
20 ms, 400 ms, 8 s, 160 s, 3200 s, 64000 s, … A bucket is a circular doubly linked list with the
links inside the tasks, so that a task is unlinked without a search. Only buckets are queued
by time, and there are few: the clock jumps from one queued bucket to the next. The tasks of a
bucket of an upper level move down when the clock reaches it (*cascading*); those of the lowest level
are due.

The caller provides the time, in integer ms from 0. The wheel calls nothing: due tasks are returned.

Invariants:

1. A task is linked in at most one bucket, and `size` is the number of linked tasks.
2. A linked task with expiration `e` is in bucket `(e // tick) % wheel_size` of its level, whose
   expiration is `(e // tick) * tick`.
3. A level's current time is a multiple of its tick; at the lowest level it never decreases and never
   passes a queued bucket.
4. Every bucket that has an expiration is queued exactly once; every linked task's bucket has one.
   (A bucket that was emptied by cancelling stays queued.)
5. A linked task is in the future: its bucket's expiration is not before its level's current time.

Called by `drivetrain.core.waiting.timer`. Not safe for threads: callers serialize.
Source: Varghese and Lauck, "Hashed and hierarchical timing wheels" (1987); the lazy levels and the
queue of buckets are Apache Kafka's.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Final

from drivetrain.errors import ConfigError, InternalError

UNSET_MS: Final = -1  # a bucket's expiration when it is not queued
_LEVEL_BITS: Final = 6  # the queue's keys are (bucket expiration, level), packed in one int
_LEVEL_MASK: Final = (1 << _LEVEL_BITS) - 1


class _Link:
    """A place in a circular list; subclasses are its members and its head."""

    __slots__ = ("_next", "_prev")

    _prev: _Link
    _next: _Link


_NOWHERE: Final = _Link()  # where an unlinked task's links point: no None to test on the hot path


class TimerTask(_Link):
    """Something that becomes due once; subclass it, or use it as a handle.

    `expiration_ms` is the absolute time given when it was last added.
    """

    __slots__ = ("_bucket", "expiration_ms")

    def __init__(self) -> None:
        self._prev = self._next = _NOWHERE
        self._bucket = NO_BUCKET
        self.expiration_ms = UNSET_MS

    @property
    def pending(self) -> bool:
        """Whether a wheel holds this task."""
        return self._bucket.wheel is not None

    @property
    def cancelled(self) -> bool:
        """Whether it was cancelled, pending or not, since it was last added to a timer."""
        return self._bucket is CANCELLED_BUCKET

    def cancel(self) -> bool:
        """Take this task out of its wheel in O(1); return whether it was pending.

        A task that is due but has not been run yet is only marked: the code that runs due tasks may skip it.
        """
        bucket = self._bucket
        self._bucket = CANCELLED_BUCKET
        wheel = bucket.wheel
        if wheel is None:
            return False
        before = self._prev
        after = self._next
        before._next = after
        after._prev = before
        self._prev = self._next = _NOWHERE
        wheel._size -= 1
        return True

    def renew(self) -> None:
        """Forget an earlier cancellation, and leave the wheel if pending."""
        TimerTask.cancel(self)  # not a subclass's: wheels call this where that one might block
        self._bucket = NO_BUCKET


class _Bucket(_Link):
    """One slot of one level: the head of a circular list of tasks."""

    __slots__ = ("expiration_ms", "wheel")

    def __init__(self, wheel: TimingWheel | None) -> None:
        self._prev = self._next = self
        self.wheel = wheel
        self.expiration_ms = UNSET_MS

    def __iter__(self) -> Iterator[TimerTask]:
        link = self._next
        while isinstance(link, TimerTask):
            yield link
            link = link._next


# The buckets of tasks that no wheel holds: a task's whole state is one reference.
NO_BUCKET: Final = _Bucket(None)
CANCELLED_BUCKET: Final = _Bucket(None)


class _Level:
    """One wheel of the hierarchy; `next_ms` and `end_ms` are stored with `current_ms` for speed."""

    __slots__ = (
        "buckets",
        "current_ms",
        "end_ms",
        "index",
        "interval_ms",
        "next_ms",
        "overflow",
        "tick_ms",
        "wheel_size",
    )

    def __init__(self, wheel: TimingWheel, index: int, tick_ms: int, wheel_size: int, start_ms: int) -> None:
        self.index = index
        self.tick_ms = tick_ms
        self.wheel_size = wheel_size
        self.interval_ms = tick_ms * wheel_size
        self.buckets = [_Bucket(wheel) for _ in range(wheel_size)]
        self.overflow: _Level | None = None
        self.move_to(start_ms)

    def move_to(self, now_ms: int) -> None:
        self.current_ms = now_ms - now_ms % self.tick_ms
        self.next_ms = self.current_ms + self.tick_ms  # from this time on tasks are accepted
        self.end_ms = self.current_ms + self.interval_ms  # from this time on they overflow


class TimingWheel:
    """A hierarchy of wheels of `wheel_size` buckets; the lowest has buckets of `tick_ms`.

    Raises `ConfigError` for a tick below 1 ms, fewer than 2 buckets, or a negative start.
    """

    __slots__ = ("_levels", "_lowest", "_queue", "_size")

    def __init__(self, tick_ms: int = 1, wheel_size: int = 20, start_ms: int = 0) -> None:
        for name, least, got in (
            ("tick_ms", 1, tick_ms),
            ("wheel_size", 2, wheel_size),
            ("start_ms", 0, start_ms),
        ):
            if got < least:
                raise ConfigError(
                    "the timing wheel cannot be built", where=name, expected=f"at least {least}", got=str(got)
                )
        self._size = 0
        self._queue: list[int] = []
        self._lowest = _Level(self, 0, tick_ms, wheel_size, start_ms)
        self._levels = [self._lowest]

    @property
    def size(self) -> int:
        """The number of pending tasks."""
        return self._size

    @property
    def current_ms(self) -> int:
        """The lowest level's time: a multiple of its tick."""
        return self._lowest.current_ms

    @property
    def spans_ms(self) -> list[int]:
        """The span of each level created so far, lowest first."""
        return [level.interval_ms for level in self._levels]

    @property
    def next_expiration_ms(self) -> int | None:
        """When the next queued bucket expires, or None.

        No task is due before; that bucket may hold tasks for later, or (after cancelling) none.
        """
        return self._queue[0] >> _LEVEL_BITS if self._queue else None

    def add(self, task: TimerTask, expiration_ms: int) -> bool:
        """Hold `task` until `expiration_ms`; return False, holding nothing, if cancelled or expired.

        Expired means before current time + tick. An earlier entry of the task is removed first.
        """
        if task._bucket is not NO_BUCKET:
            if task._bucket is CANCELLED_BUCKET:
                return False
            task.renew()
        task.expiration_ms = expiration_ms
        level = self._lowest
        if expiration_ms < level.next_ms:
            return False
        while expiration_ms >= level.end_ms:
            level = level.overflow or self._add_level()
        tick_ms = level.tick_ms
        slot = expiration_ms // tick_ms
        bucket = level.buckets[slot % level.wheel_size]
        last = bucket._prev
        task._prev = last
        task._next = bucket
        last._next = task
        bucket._prev = task
        task._bucket = bucket
        self._size += 1
        slot *= tick_ms
        if bucket.expiration_ms != slot:
            bucket.expiration_ms = slot
            heappush(self._queue, slot << _LEVEL_BITS | level.index)
        return True

    def advance(self, to_ms: int) -> None:
        """Move the clocks of all levels to `to_ms`, each rounded down to its tick; never back.

        Raises `InternalError` if that would pass a queued bucket: take it with `turn` first.
        """
        level: _Level | None = self._lowest
        if self._queue and self._queue[0] >> _LEVEL_BITS < to_ms - to_ms % self._lowest.tick_ms:
            raise InternalError(
                f"the wheel cannot go to {to_ms} ms: a bucket at {self.next_expiration_ms} is queued"
            )
        while level is not None and to_ms >= level.next_ms:
            level.move_to(to_ms)
            level = level.overflow

    def turn(self, now_ms: int, due: list[TimerTask]) -> bool:
        """Take the first queued bucket if it expired by `now_ms`; return False if there is none.

        The clocks go to the bucket's expiration, not to `now_ms`. Its tasks move to lower levels, or
        are appended to `due` in the order they were added.
        """
        queue = self._queue
        if not queue or queue[0] >> _LEVEL_BITS > now_ms:
            return False
        key = heappop(queue)
        expiration_ms = key >> _LEVEL_BITS
        level = self._levels[key & _LEVEL_MASK]
        bucket = level.buckets[expiration_ms // level.tick_ms % level.wheel_size]
        self.advance(expiration_ms)
        bucket.expiration_ms = UNSET_MS
        tasks = list(bucket)
        bucket._prev = bucket._next = bucket
        self._size -= len(tasks)
        if level is self._lowest:
            for task in tasks:
                task._prev = task._next = _NOWHERE
                task._bucket = NO_BUCKET
            due += tasks
        else:
            add = self.add
            for task in tasks:
                task._bucket = NO_BUCKET
                if not add(task, task.expiration_ms):
                    task._prev = task._next = _NOWHERE
                    due.append(task)
        return True

    def check(self) -> None:
        """Verify the invariants of this module's docstring; raise `InternalError` naming the first broken."""
        linked = 0
        queued = sorted(self._queue)
        expected_queue: list[int] = []
        for level in self._levels:
            if level.current_ms % level.tick_ms != 0:
                raise InternalError(f"invariant 3: level {level.index} stands at {level.current_ms} ms")
            for number, bucket in enumerate(level.buckets):
                if bucket.expiration_ms != UNSET_MS:
                    expected_queue.append(bucket.expiration_ms << _LEVEL_BITS | level.index)
                for task in bucket:
                    linked += 1
                    slot = task.expiration_ms // level.tick_ms
                    if task._bucket is not bucket or task._next._prev is not task:
                        raise InternalError("invariant 1: a task's links and its bucket disagree")
                    if slot % level.wheel_size != number or slot * level.tick_ms != bucket.expiration_ms:
                        raise InternalError(f"invariant 2: {task.expiration_ms} ms in bucket {number}")
                    if bucket.expiration_ms < level.current_ms:
                        raise InternalError(f"invariant 5: a task for {task.expiration_ms} ms lies behind")
        if linked != self._size:
            raise InternalError(f"invariant 1: size {self._size}, but {linked} tasks are linked")
        if sorted(expected_queue) != queued:
            raise InternalError("invariant 4: the queue and the buckets' expirations disagree")
        if queued and queued[0] >> _LEVEL_BITS < self._lowest.current_ms:
            raise InternalError("invariant 3: the clock passed a queued bucket")

    def _add_level(self) -> _Level:
        top = self._levels[-1]
        if len(self._levels) > _LEVEL_MASK:
            raise InternalError(f"a timing wheel of more than {len(self._levels)} levels")
        level = _Level(self, top.index + 1, top.interval_ms, top.wheel_size, self._lowest.current_ms)
        top.overflow = level
        self._levels.append(level)
        return level

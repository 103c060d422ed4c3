"""The purgatory: operations that wait for a condition or a timeout, whichever comes first.

Problem. An ask waits for its reply, a quorum write for a majority, a request for slots; each has a timeout.
Three parties may end the wait at the same instant: the one that makes the condition true, the one that starts
the operation and finds it already true, and the clock. The end must happen exactly once, no wait may be
forgotten, and a wait that ended must not linger.

Design. A `DelayedOperation` ends by `force_complete`, which only the first caller wins. The purgatory
watches it under one or more keys (what it waits for); code that changes one of these calls
`check_and_complete(key)`. An operation that is still incomplete once it is watched is put on the
timing wheel. It may complete through one key and stay in the lists of its others: such *stale* entries
are dropped when found, and purged when there are too many; a purge visits only the keys of operations that
completed since the last one.

Threads. The core imports no threads, but defines where they must be kept apart, and accepts the means:
`guard` makes the watch lists and the timer one critical section, in which none of the operations' own code
runs; `new_lock` gives each operation the lock under which it is tried. By default there are none, and the
purgatory is for one thread. Completion is claimed by a `list.pop`, which Python executes atomically.

Invariants:

1. Exactly one `force_complete` returns True; that caller alone runs `on_complete`, once.
2. `on_expiration` runs only after `on_complete`, and only if the timeout won.
3. An operation that is watched and incomplete can always be reached by `check_and_complete` of each of
   its keys, and is on the timer unless it was cancelled.
4. No completed operation stays on the timer.
5. `watched` is the sum of the lengths of all watch lists, stale entries included; no list is empty.
6. An exception in one operation's code keeps no other operation from its end.

Called by actor systems (through `drivetrain.actor.purgatory`) and the simulator.
Source: Apache Kafka's DelayedOperationPurgatory.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from operator import index
from typing import Any, Final, Generic, TypeVar

from drivetrain.core.waiting.timer import Timer
from drivetrain.core.waiting.wheel import TimerTask
from drivetrain.errors import ConfigError, InternalError

Guard = AbstractContextManager[Any]

UNGUARDED: Final[Guard] = nullcontext()


class DelayedOperation(TimerTask, ABC):
    """Something to be done when its condition holds, or at the latest after `delay_ms`.

    Subclasses define the condition (`try_complete`) and what to do at the end (`on_complete`,
    `on_expiration`). `lock` is the lock under which the operation is tried; None takes the
    purgatory's. A delay of 0 or less expires at once, or when time advances next. Raises `ConfigError` for a
    delay that is not a whole number.

    Their code may call the purgatory, but `try_complete` must change nothing that other operations
    wait for before it has called `force_complete`: two operations that try each other would deadlock.
    """

    __slots__ = ("_claim", "_guard", "_keys", "_lock", "_owner", "delay_ms")

    def __init__(self, delay_ms: int, lock: Guard | None = None) -> None:
        super().__init__()
        self.delay_ms = _whole_ms(delay_ms)
        self._claim = [True]  # the thread that pops it completes the operation
        self._lock: Guard | None = lock
        self._guard = UNGUARDED
        self._owner: Purgatory[Any] | None = None
        self._keys: Iterable[Hashable] = ()

    @abstractmethod
    def try_complete(self) -> bool:
        """Return `force_complete()` if the condition holds, otherwise False."""

    @abstractmethod
    def on_complete(self) -> None:
        """Perform the end of the wait; called exactly once, by the caller that completed the operation."""

    def on_expiration(self) -> None:
        """The timeout ended the wait; called after `on_complete`. Does nothing by default."""
        return

    @property
    def completed(self) -> bool:
        """Whether this operation was completed (`on_complete` may still be running)."""
        return not self._claim

    def force_complete(self) -> bool:
        """Complete the operation whatever its condition; return whether this call did it."""
        try:
            self._claim.pop()
        except IndexError:
            return False
        with self._guard:
            TimerTask.cancel(self)
            if self._owner is not None and self._keys:
                self._owner._completed.append(self)
        self.on_complete()
        return True

    def cancel(self) -> bool:
        """Take the operation off the timer, so that it no longer expires; return whether it was on it.

        It is not completed, and stays watched.
        """
        with self._guard:
            return super().cancel()

    def expire(self) -> bool:
        """End the wait because time is up; return whether this call completed the operation."""
        if not self.force_complete():
            return False
        self.on_expiration()
        return True

    def safe_try_complete(self) -> bool:
        """Try to complete under the operation's lock; False if it is completed already."""
        with self._lock or UNGUARDED:
            return bool(self._claim) and self._try_complete()

    def safe_try_complete_or_else(self, otherwise: Callable[[], object]) -> bool:
        """Try to complete, else call `otherwise` and try once more, all under the operation's lock.

        The second attempt catches a condition that came true before `otherwise` made it watched.
        """
        with self._lock or UNGUARDED:
            if self._try_complete():
                return True
            otherwise()
            return self._try_complete()

    def _try_complete(self) -> bool:
        done = self.try_complete()
        if done and self._claim:
            raise InternalError(
                "try_complete returned True without calling force_complete", where=type(self).__qualname__
            )
        return done


OperationT = TypeVar("OperationT", bound=DelayedOperation)


class Purgatory(Generic[OperationT]):
    """Watches incomplete operations by key and expires them.

    `tick_ms` (at least 1), `wheel_size` (at least 2) and `start_ms` are the timer's. Stale entries are
    purged when more than `purge_limit` operations have completed since the last purge. `guard` must not
    be entered twice by one thread's code outside this class; see the module's docstring. Raises
    `ConfigError` for limits out of range.
    """

    def __init__(
        self,
        *,
        tick_ms: int = 1,
        wheel_size: int = 20,
        start_ms: int = 0,
        purge_limit: int = 1000,
        guard: Guard = UNGUARDED,
        new_lock: Callable[[], Guard] = lambda: UNGUARDED,
    ) -> None:
        if purge_limit < 0:
            raise ConfigError(
                "the purgatory cannot be built",
                where="purge_limit",
                expected="at least 0",
                got=str(purge_limit),
            )
        self._timer: Timer[OperationT] = Timer(tick_ms, wheel_size, start_ms)
        self._tick_ms = tick_ms
        self._purge_limit = purge_limit
        self._guard = guard
        self._new_lock = new_lock
        self._watchers: dict[Hashable, list[OperationT]] = {}
        self._watched = 0
        self._completed: list[OperationT] = []  # since the last purge: only their keys have stale entries
        self._estimated = 0  # operations watched since the last purge, plus those on the timer then

    @property
    def watched(self) -> int:
        """The number of watch entries: an operation counts once per key, stale ones included."""
        return self._watched

    @property
    def delayed(self) -> int:
        """The number of operations on the timer."""
        return self._timer.size

    @property
    def next_expiration_ms(self) -> int | None:
        """The time before which `advance` has nothing to expire, or None if nothing is on the timer."""
        with self._guard:
            return self._timer.next_expiration_ms

    def try_complete_else_watch(self, operation: OperationT, keys: Sequence[Hashable], now_ms: int) -> bool:
        """Complete `operation` now if its condition holds, else watch it under `keys` until it expires.

        Returns whether this call's attempts completed it: False also when another thread did, or when
        the delay was used up already and it expired. Raises `InternalError` without keys (nothing
        could complete it) or for an operation that has been in a purgatory before; exceptions of
        `try_complete` are passed on, and the operation is not watched then.
        """
        if not keys:
            raise InternalError(
                "an operation must be watched under at least one key", where=type(operation).__qualname__
            )
        self._adopt(operation)
        try:
            if operation.safe_try_complete_or_else(lambda: self._watch(operation, keys)):
                return True
            with self._guard:
                # A thread that completes it from here on takes it off again, also under the guard.
                wants_timer = not operation.completed and not operation.cancelled
                is_due = wants_timer and not self._timer.add(operation, operation.delay_ms, now_ms)
        except BaseException:
            # Without this it would be watched but never expire.
            self._unwatch(operation)
            raise
        if is_due:
            operation.expire()
        return False

    def check_and_complete(self, key: Hashable) -> int:
        """Try every operation watched under `key`; return how many this call completed.

        Call it after the change, without holding locks that operations take. Raises an
        `ExceptionGroup` of the operations' exceptions, after all have been tried.
        """
        with self._guard:
            operations = list(self._watchers.get(key, ()))
        completed = 0
        errors: list[Exception] = []
        for operation in operations:
            try:
                if not operation.completed and operation.safe_try_complete():
                    completed += 1
            except Exception as error:  # noqa: BLE001 - it is raised below, after the others were tried
                errors.append(error)
        if operations:
            with self._guard:
                self._drop_completed(key)
        _raise_all(f"while operations on {key!r} were tried", errors)
        return completed

    def cancel_for_key(self, key: Hashable) -> list[OperationT]:
        """Stop watching `key` and return its incomplete operations, taken off the timer.

        They are not completed: the caller decides. They stay watched under their other keys, and can
        still be completed there, but no longer expire.
        """
        with self._guard:
            operations = self._watchers.pop(key, [])
            self._watched -= len(operations)
            for operation in operations:
                TimerTask.cancel(operation)
        return [operation for operation in operations if not operation.completed]

    def cancel_all(self) -> list[OperationT]:
        """Do `cancel_for_key` for every key, and return each incomplete operation once."""
        with self._guard:
            keys = list(self._watchers)
        operations = [operation for key in keys for operation in self.cancel_for_key(key)]
        return list({id(operation): operation for operation in operations}.values())

    def advance(self, now_ms: int) -> int:
        """Expire what is due by `now_ms`, then purge if there is much to purge; return how many expired.

        Raises an `ExceptionGroup` of the operations' exceptions, after all of this was done.
        """
        with self._guard:
            due = self._timer.advance(now_ms)
        expired = 0
        errors: list[Exception] = []
        for number, operation in enumerate(due):
            try:
                # The end of an earlier operation may have cancelled it since it left the timer.
                expired += not operation.cancelled and operation.expire()
            except Exception as error:  # noqa: BLE001 - it is raised below, after the others were tried
                errors.append(error)
            except BaseException:
                # An interrupt: it must not wait, and the rest must not be forgotten.
                self._put_back(due[number + 1 :], now_ms)
                raise
        with self._guard:
            delayed = self._timer.size
            is_much = self._estimated - delayed > self._purge_limit
            if is_much:
                # Set before purging: operations that complete meanwhile count for the next purge.
                self._estimated = delayed
        if is_much:
            self.purge()
        _raise_all("while operations expired", errors)
        return expired

    def purge(self) -> int:
        """Drop all stale watch entries; return how many."""
        with self._guard:
            completed, self._completed = self._completed, []
        dropped = 0
        for key in dict.fromkeys(key for operation in completed for key in operation._keys):
            if key in self._watchers:  # usually not there; a look-up without the guard is harmless
                with self._guard:  # per key, so that no thread waits for the whole purge
                    dropped += self._drop_completed(key)
        return dropped

    def check(self) -> None:
        """Verify the invariants that can be seen from outside, at a quiet moment.

        Raises `InternalError` naming the first broken.
        """
        with self._guard:
            self._timer.check()
            entries = sum(len(operations) for operations in self._watchers.values())
            if entries != self._watched or not all(self._watchers.values()):
                raise InternalError(f"invariant 5: {self._watched} watched, but {entries} entries")
            on_timer = {id(op): op for ops in self._watchers.values() for op in ops if op.pending}
            if any(operation.completed for operation in on_timer.values()):
                raise InternalError("invariant 4: a completed operation is on the timer")

    def _adopt(self, operation: OperationT) -> None:
        if operation._owner is not None:
            raise InternalError(
                "an operation can enter a purgatory only once", where=type(operation).__qualname__
            )
        if operation.cancelled:
            operation.renew()  # a cancellation counts from here on
        # From here on, completing it elsewhere takes it off this purgatory's timer safely.
        operation._guard = self._guard
        operation._owner = self
        if operation._lock is None:
            operation._lock = self._new_lock()

    def _watch(self, operation: OperationT, keys: Sequence[Hashable]) -> None:
        with self._guard:
            operation._keys = tuple(keys) if len(keys) == 1 else dict.fromkeys(keys)  # once per key
            for key in operation._keys:
                if operation.completed:
                    break
                self._watchers.setdefault(key, []).append(operation)
                self._watched += 1
            self._estimated += 1

    def _unwatch(self, operation: OperationT) -> None:
        with self._guard:
            for key in operation._keys:
                self._keep(key, [other for other in self._watchers.get(key, ()) if other is not operation])

    def _put_back(self, operations: Iterable[OperationT], now_ms: int) -> None:
        with self._guard:
            for operation in operations:
                if not operation.completed and not operation.cancelled:
                    self._timer.add(operation, self._tick_ms, now_ms)

    def _drop_completed(self, key: Hashable) -> int:
        """Drop the stale entries of `key` and return how many; the guard is held."""
        return self._keep(key, [operation for operation in self._watchers.get(key, ()) if operation._claim])

    def _keep(self, key: Hashable, kept: list[OperationT]) -> int:
        operations = self._watchers.get(key, ())
        dropped = len(operations) - len(kept)
        if dropped:
            self._watched -= dropped
            if kept:
                self._watchers[key] = kept
            else:
                del self._watchers[key]
        return dropped


def _whole_ms(delay_ms: int) -> int:
    try:
        return index(delay_ms)
    except TypeError as error:
        raise ConfigError(
            "the delay of an operation cannot be timed",
            where="delay_ms or timeout_ms",
            expected="a whole number of milliseconds",
            got=repr(delay_ms),
            remedy="round it, as in int(seconds * 1000)",
        ) from error


def _raise_all(when: str, errors: list[Exception]) -> None:
    if errors:
        raise ExceptionGroup(f"{len(errors)} delayed operations failed {when}", errors)

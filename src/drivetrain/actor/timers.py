"""Timers: messages that an actor sends to itself later.

Problem: a callback outside of the mailbox would break "one message at a time", and a message sent by
`call_later` may arrive after its timer was cancelled, or after a restart.

Design: a timer has a key; starting another with the same key replaces it. When it fires, a signal goes to
the mailbox; when it is the signal's turn, it is dropped unless its timer is still the current one. A
periodic timer whose last signal is still waiting skips a beat instead of accumulating signals.

Invariants:
1. No message of a timer is handled after it was cancelled or replaced, or after its actor was restarted.
2. At most one signal per timer waits in the mailbox.
3. A periodic timer's beats are due at whole multiples of its interval after its start, some skipped.

Called by actors, through `Context.timers`.
Source: Akka's timers.
"""

from __future__ import annotations

import asyncio
from contextvars import Context
from typing import Protocol

from drivetrain.actor.actor_errors import ContextError
from drivetrain.actor.message import Message, require_message
from drivetrain.actor.path import ActorPath
from drivetrain.errors import InternalError


class TimerOwner(Protocol):
    """The part of a cell that its timers use."""

    @property
    def path(self) -> ActorPath:
        """The owner's path, for errors."""

    @property
    def is_active(self) -> bool:
        """Whether timers may be started."""

    def put_signal(self, signal: TimerSignal) -> None:
        """Put the entry of a timer that fired into the mailbox."""


class TimerSignal:
    """The entry of a timer that fired; it becomes its message only while that timer is still current."""

    __slots__ = ("timer",)

    def __init__(self, timer: Timer) -> None:
        self.timer = timer


class Timer:
    """One running timer; `interval_s` None means once."""

    __slots__ = ("due_s", "handle", "interval_s", "is_signalled", "key", "message", "timers")

    def __init__(
        self, timers: Timers, key: str, message: Message, due_s: float, interval_s: float | None
    ) -> None:
        self.timers = timers
        self.key = key
        self.message = message
        self.interval_s = interval_s
        self.due_s = due_s
        self.is_signalled = False
        self.handle: asyncio.TimerHandle | None = self._arm()

    def fire(self) -> None:
        """Signal the actor, and arm the next beat."""
        self.handle = None
        if not self.is_signalled:
            self.is_signalled = True
            self.timers.owner.put_signal(TimerSignal(self))
        if self.interval_s is not None:
            now_s = self.timers.loop.time()
            beats = max(1, int((now_s - self.due_s) // self.interval_s) + 1)
            self.due_s += beats * self.interval_s
            self.handle = self._arm()

    def _arm(self) -> asyncio.TimerHandle:
        timers = self.timers
        return timers.loop.call_at(self.due_s, self.fire, context=timers.context)


class Timers:
    """The timers of one actor, keyed by name; they end when it stops or restarts.

    They fire on `loop`, in `context`.
    """

    __slots__ = ("_by_key", "context", "loop", "owner")

    def __init__(self, owner: TimerOwner, loop: asyncio.AbstractEventLoop, context: Context) -> None:
        self.owner = owner
        self.loop = loop
        self.context = context
        self._by_key: dict[str, Timer] = {}

    def start_once(self, key: str, message: Message, *, delay_ms: float) -> None:
        """Receive `message` once, `delay_ms` (0 or more) from now; replaces the timer `key`."""
        self._start(key, message, delay_ms, None)

    def start_periodic(
        self, key: str, message: Message, *, interval_ms: float, initial_delay_ms: float | None = None
    ) -> None:
        """Receive `message` every `interval_ms` (more than 0); replaces the timer `key`.

        The first arrives after `initial_delay_ms`, by default one interval.
        """
        if not interval_ms > 0:
            raise ContextError(
                "a periodic timer needs an interval",
                where=key,
                expected="more than 0 ms",
                got=f"{interval_ms}",
            )
        first_ms = interval_ms if initial_delay_ms is None else initial_delay_ms
        self._start(key, message, first_ms, interval_ms)

    def cancel(self, key: str) -> bool:
        """Cancel the timer `key`, even if it has fired and waits in the mailbox; returns if it existed."""
        timer = self._by_key.pop(key, None)
        if timer is None:
            return False
        if timer.handle is not None:
            timer.handle.cancel()
        return True

    def cancel_all(self) -> None:
        """Cancel every timer."""
        for key in list(self._by_key):
            self.cancel(key)

    def is_running(self, key: str) -> bool:
        """Whether a message of the timer `key` is still to come."""
        return key in self._by_key

    def take(self, signal: TimerSignal) -> Message | None:
        """Return the message of a signal in its turn, None when its timer is no longer current."""
        timer = signal.timer
        timer.is_signalled = False
        if self._by_key.get(timer.key) is not timer:
            return None
        if timer.interval_s is None:
            del self._by_key[timer.key]
        return timer.message

    def check(self) -> None:
        """Verify the invariants; raises `InternalError`."""
        for key, timer in self._by_key.items():
            armed = timer.handle is not None and not timer.handle.cancelled()
            if not armed and not timer.is_signalled:
                raise InternalError(f"a timer neither runs nor has fired: {key}", where=str(self.owner.path))

    def _start(self, key: str, message: Message, delay_ms: float, interval_ms: float | None) -> None:
        require_message(message)
        if not delay_ms >= 0:
            raise ContextError(
                "a timer cannot fire in the past", where=key, expected="0 ms or more", got=f"{delay_ms}"
            )
        if not self.owner.is_active:
            raise ContextError("a timer cannot be started while its actor stops or restarts", where=key)
        self.cancel(key)
        due_s = self.loop.time() + delay_ms / 1000
        self._by_key[key] = Timer(
            self, key, message, due_s, None if interval_ms is None else interval_ms / 1000
        )

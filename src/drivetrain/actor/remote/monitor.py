"""Which other systems are alive: heartbeats, their answers, and the verdict.

Problem: a process that was killed, frozen or cut off sends nothing. Silence is the only evidence, and it must
be distinguished from slowness, also from our own: to a process that was frozen itself, every peer looks
silent.

Design: a pure core on integer milliseconds. It sends a numbered heartbeat to every watched system once per
interval; answers feed a phi-accrual detector each. A system is declared dead when its detector finds it
unavailable *and* it has been silent for longer than the pause. When our own tick is late by more
than an interval, this process was slow: nothing is declared dead for one pause, in which the queued answers
are processed.

Invariants:
1. A system that answered, acknowledged or shook hands within the last pause is not declared dead. Messages
   from it are not enough: it may not receive ours.
2. A system is declared dead once; then it is unknown until it is watched again.
3. An answer to a heartbeat that was answered before, or never sent, is ignored.

Called by `Remote`. Source: phi-accrual as in Akka and Flink; see `drivetrain.core.liveness.phi_detector`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from drivetrain.actor.path import Address


class Detector(Protocol):
    """The part of a failure detector that the monitor uses."""

    def heartbeat(self, now_ms: int) -> None:
        """A sign of life arrived."""

    def is_available(self, now_ms: int) -> bool:
        """Whether the silence so far is still normal."""


@dataclass(frozen=True, slots=True)
class SendHeartbeat:
    """Send `address` a heartbeat."""

    address: Address
    count: int


@dataclass(frozen=True, slots=True)
class DeclareDead:
    """`address` has been silent for `silent_ms`, which is no longer normal."""

    address: Address
    silent_ms: int


@dataclass(slots=True)
class _Watched:
    detector: Detector
    last_sign_ms: int
    sent: int = 0
    answered: int = 0


class HeartbeatMonitor:
    """The watched systems; `new_detector` creates a detector for each."""

    def __init__(self, interval_ms: int, pause_ms: int, new_detector: Callable[[], Detector]) -> None:
        self._interval_ms: Final = interval_ms
        self._pause_ms: Final = pause_ms
        self._new_detector: Final = new_detector
        self._watched: Final[dict[Address, _Watched]] = {}
        self._ticked_ms: int | None = None
        self._no_verdict_before_ms = 0

    @property
    def addresses(self) -> Iterable[Address]:
        """The watched systems, in the order in which they were added."""
        return self._watched.keys()

    def is_watching(self, address: Address) -> bool:
        """Whether the system is watched."""
        return address in self._watched

    def watch(self, address: Address, now_ms: int) -> None:
        """Watch a system from now on; the call counts as its first sign of life."""
        if self._ticked_ms is None:
            # A stall before the first tick counts as well.
            self._ticked_ms = now_ms
        if address not in self._watched:
            detector = self._new_detector()
            detector.heartbeat(now_ms)
            self._watched[address] = _Watched(detector, now_ms)

    def forget(self, address: Address) -> None:
        """Stop watching it."""
        self._watched.pop(address, None)

    def greeted(self, address: Address, now_ms: int) -> None:
        """The system completed a handshake: it is alive, and earlier statistics may not apply any more."""
        watched = self._watched.get(address)
        if watched is not None:
            watched.last_sign_ms = now_ms
            watched.detector = self._new_detector()
            watched.detector.heartbeat(now_ms)

    def acknowledged(self, address: Address, now_ms: int) -> None:
        """The system acknowledged something new: a sign of life like an answer, but not a regular one."""
        watched = self._watched.get(address)
        if watched is not None:
            watched.last_sign_ms = now_ms

    def answered(self, address: Address, count: int, now_ms: int) -> None:
        """The system answered the heartbeat `count`."""
        watched = self._watched.get(address)
        if watched is None or not watched.answered < count <= watched.sent:
            return
        watched.answered = count
        watched.last_sign_ms = now_ms
        watched.detector.heartbeat(now_ms)

    def tick(self, now_ms: int) -> list[SendHeartbeat | DeclareDead]:
        """Called once per interval: returns heartbeats to send, and dead systems."""
        if self._ticked_ms is not None and now_ms - self._ticked_ms > 2 * self._interval_ms:
            self._no_verdict_before_ms = now_ms + self._pause_ms + self._interval_ms
        self._ticked_ms = now_ms
        effects: list[SendHeartbeat | DeclareDead] = []
        for address, watched in list(self._watched.items()):
            silent_ms = now_ms - watched.last_sign_ms
            if (
                now_ms >= self._no_verdict_before_ms
                and silent_ms > self._pause_ms
                and not watched.detector.is_available(now_ms)
            ):
                del self._watched[address]
                effects.append(DeclareDead(address, silent_ms))
                continue
            watched.sent += 1
            effects.append(SendHeartbeat(address, watched.sent))
        return effects

"""Registering with a leader: when to try, how long to wait, when to give up.

Problem: leaders die and are replaced, answers are lost or late, and a leader may refuse. A process must
register again soon after there is a leader, must not flood an overloaded one with requests, and must not live
on for ever without one.

Design: a state and one deadline. An attempt has a number, which its answer repeats. The shell sends an
attempt, and reports the result as an event; an attempt without an answer in time is repeated with twice the
timeout.

| state | event | becomes | effects |
|---|---|---|---|
| any but ENDED | `LeaderFound` | REGISTERING | `Register` with 500 ms |
| any but ENDED | `LeaderLost` | LEADERLESS | |
| REGISTERING | `Accepted` of this leader's attempts | REGISTERED | `Registered` |
| REGISTERING | `Refused`, the latest attempt | REFUSED, for 10 s | |
| REGISTERING | deadline of the attempt | REGISTERING | `Register` with twice the time, at most 30 s |
| REFUSED | deadline of the wait | REGISTERING | `Register` with 500 ms |
| LEADERLESS, REGISTERING, REFUSED | unregistered for the maximum duration | ENDED | `End` |

Invariants:
1. Attempts are numbered without gaps from 1; only attempts at the current leader, since it was found, count.
2. A late refusal (of an older attempt, or after an acceptance) changes nothing.
3. The maximum duration counts from the start, or from the moment when the registration was last lost, and not
from the attempts; None means for ever.
4. A timeout lies between 500 ms and 30 s.
5. Time does not go back, and nothing happens after the end; such a step raises and changes nothing.

Called by workers and application masters.
Source: Flink's registration of a TaskManager: first timeout, doubling, refused delay, maximum duration;
"already registered" is an acceptance.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

from drivetrain.errors import InternalError

FIRST_TIMEOUT_MS: Final = 500
LAST_TIMEOUT_MS: Final = 30_000
REFUSED_DELAY_MS: Final = 10_000


class RegistrationState(Enum):
    """Where a registration stands."""

    LEADERLESS = "leaderless"
    REGISTERING = "registering"
    REFUSED = "refused"
    REGISTERED = "registered"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class LeaderFound:
    """This master leads; repeated for the same leader when it may have forgotten us."""

    leader: Hashable


@dataclass(frozen=True, slots=True)
class LeaderLost:
    """No leader is known."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """The leader has registered us, by this attempt or earlier."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Refused:
    """The leader answered this attempt with a refusal."""

    attempt: int
    why: str


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed; needed at `Registration.wake_ms` at the latest."""


Event: TypeAlias = LeaderFound | LeaderLost | Accepted | Refused | Tick


@dataclass(frozen=True, slots=True)
class Register:
    """Send this attempt to the leader; its answer counts for `timeout_ms`."""

    attempt: int
    leader: Hashable
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class Registered:
    """We are registered with this leader now."""

    leader: Hashable


@dataclass(frozen=True, slots=True)
class End:
    """End the process: not registered for `unregistered_ms`; `why` is the last refusal, if there was one."""

    unregistered_ms: int
    why: str | None


Effect: TypeAlias = Register | Registered | End


class Registration:
    """One process's registration; `maximum_ms` is how long it lives unregistered, None for ever."""

    def __init__(self, maximum_ms: int | None, now_ms: int) -> None:
        self._maximum_ms: Final = maximum_ms
        self._state = RegistrationState.LEADERLESS
        self._leader: Hashable | None = None
        self._attempt = 0
        self._first_attempt = 1
        self._timeout_ms = FIRST_TIMEOUT_MS
        self._deadline_ms: int | None = None
        self._unregistered_ms = now_ms
        self._refusal: str | None = None
        self._now_ms = now_ms

    @property
    def state(self) -> RegistrationState:
        """The current state."""
        return self._state

    @property
    def is_registered(self) -> bool:
        """Whether a leader has registered us, as far as we know."""
        return self._state is RegistrationState.REGISTERED

    @property
    def refusal(self) -> str | None:
        """The current leader's last reason for refusal; None without one."""
        return self._refusal

    @property
    def wake_ms(self) -> int | None:
        """When the next `Tick` is due; None when only an event can change anything."""
        if self._state in (RegistrationState.REGISTERED, RegistrationState.ENDED):
            return None
        ends = [self._deadline_ms] if self._deadline_ms is not None else []
        if self._maximum_ms is not None:
            ends.append(self._unregistered_ms + self._maximum_ms)
        return min(ends, default=None)

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        """Handle an event at `now_ms`; returns the effects. Raises InternalError, see invariant 5."""
        self._require_legal(event, now_ms)
        self._now_ms = now_ms
        match event:
            case LeaderFound(leader):
                self._become_unregistered()
                self._leader, self._refusal = leader, None
                self._first_attempt = self._attempt + 1
                effects = self._begin()
            case LeaderLost():
                self._become_unregistered()
                self._state, self._leader, self._deadline_ms = RegistrationState.LEADERLESS, None, None
                effects = []
            case Accepted(attempt):
                effects = self._accepted(attempt)
            case Refused(attempt, why):
                self._refused(attempt, why)
                effects = []
            case Tick():
                effects = []
        return self._over() or effects + self._due()

    def check(self) -> None:
        """Verify the invariants; raises InternalError."""
        is_waiting = self._state in (RegistrationState.REGISTERING, RegistrationState.REFUSED)
        if is_waiting != (self._deadline_ms is not None):
            raise self._broken("a deadline exactly while an answer or a delay is waited for")
        if not FIRST_TIMEOUT_MS <= self._timeout_ms <= LAST_TIMEOUT_MS:
            raise self._broken("4, the timeout's bounds")
        if not 1 <= self._first_attempt <= self._attempt + 1:
            raise self._broken("1, the numbers of attempts")
        if (self._leader is None) and self._state not in (
            RegistrationState.LEADERLESS,
            RegistrationState.ENDED,
        ):
            raise self._broken("1, a leader to register with")

    def _require_legal(self, event: Event, now_ms: int) -> None:
        if self._state is RegistrationState.ENDED:
            raise self._broken(f"5, nothing happens after the end, not {event!r}")
        if now_ms < self._now_ms:
            raise self._broken(f"5, time goes back from {self._now_ms} to {now_ms}")
        if isinstance(event, Accepted | Refused) and not 1 <= event.attempt <= self._attempt:
            raise self._broken(f"1, an answer to attempt {event.attempt} of {self._attempt}")

    def _become_unregistered(self) -> None:
        if self.is_registered:
            self._unregistered_ms = self._now_ms

    def _begin(self) -> list[Effect]:
        self._timeout_ms = FIRST_TIMEOUT_MS
        return [self._next_attempt()]

    def _next_attempt(self) -> Register:
        self._state = RegistrationState.REGISTERING
        self._attempt += 1
        self._deadline_ms = self._now_ms + self._timeout_ms
        return Register(self._attempt, self._leader, self._timeout_ms)

    def _accepted(self, attempt: int) -> list[Effect]:
        if self._state is RegistrationState.LEADERLESS or self.is_registered:
            return []
        if attempt < self._first_attempt:
            return []  # from another leader, or from one that may have forgotten it
        self._state, self._deadline_ms, self._refusal = RegistrationState.REGISTERED, None, None
        return [Registered(self._leader)]

    def _refused(self, attempt: int, why: str) -> None:
        if self._state is not RegistrationState.REGISTERING or attempt != self._attempt:
            return
        self._state, self._refusal = RegistrationState.REFUSED, why
        self._deadline_ms = self._now_ms + REFUSED_DELAY_MS

    def _due(self) -> list[Effect]:
        if self._deadline_ms is None or self._now_ms < self._deadline_ms:
            return []
        if self._state is RegistrationState.REFUSED:
            return self._begin()
        self._timeout_ms = min(2 * self._timeout_ms, LAST_TIMEOUT_MS)
        return [self._next_attempt()]

    def _over(self) -> list[Effect]:
        if self._maximum_ms is None or self.is_registered:
            return []
        unregistered_ms = self._now_ms - self._unregistered_ms
        if unregistered_ms < self._maximum_ms:
            return []
        self._state, self._deadline_ms = RegistrationState.ENDED, None
        return [End(unregistered_ms, self._refusal)]

    def _broken(self, what: str) -> InternalError:
        return InternalError(f"registration invariant {what}", where=f"{self._state.value}")

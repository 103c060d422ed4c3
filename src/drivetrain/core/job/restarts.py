"""Restart strategies: whether something that failed starts again, and after how long.

Problem: most failures do not repeat, but a permanent one must not be retried for ever, and many fragments
that failed together must not restart in the same instant. A new application master must continue the counts
of the last one; otherwise an application that kills its master each time would never be stopped.

Design: a `RestartPolicy` is the user's choice, a `RestartStrategy` follows it for one fragment or one job.
`next_delay_ms` is called once per failure. Its state is numbers and times on a wall clock, so it means the
same in another process: `saved()` returns it as plain data, `RestartStrategy.restored` accepts it.

    none          never
    fixed-delay   `attempts` times, `delay_ms` later; failure `attempts` + 1 is fatal
    failure-rate  `delay_ms` later; fatal when `attempts` + 1 failures fall within `interval_ms`
    exponential   `delay_ms` × `multiplier`ⁿ, at most `maximum_ms`, ± `jitter`; fatal after `attempts` in a
                  row (0: never), where a row ends with a quiet time of `reset_after_ms`

Invariants, checked by `check()`:
1. The first exponential delay is the initial one, up to jitter, and again after each quiet time.
2. A delay is within 0 and `maximum_ms` (exponential) or exactly `delay_ms`.
3. Without jitter, a strategy that was saved and restored answers as the original would.
4. A failure rate keeps no more than `attempts` + 1 times.

Called by `core.job.job` and the application master. Source: Apache Flink's restart strategies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import Protocol

from drivetrain.errors import ConfigError, InternalError


class RestartKind(StrEnum):
    """The strategies, by the names that the configuration uses."""

    NONE = "none"
    FIXED_DELAY = "fixed-delay"
    FAILURE_RATE = "failure-rate"
    EXPONENTIAL = "exponential"


class RandomSource(Protocol):
    """Where jitter comes from; `random.Random(seed)` is one."""

    def random(self) -> float:
        """Return a number in [0, 1)."""
        ...


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """The user's choice; which fields matter depends on `kind`, see the module.

    Raises ConfigError for values out of range.
    """

    kind: RestartKind = RestartKind.EXPONENTIAL
    attempts: int = 10
    delay_ms: int = 1_000
    multiplier: float = 1.5
    maximum_ms: int = 60_000
    reset_after_ms: int = 600_000
    jitter: float = 0.1
    interval_ms: int = 60_000

    def __post_init__(self) -> None:
        at_least = 1 if self.kind is RestartKind.FAILURE_RATE else 0
        _require(self.attempts >= at_least, "restart.attempts", f"at least {at_least}", self.attempts)
        _require(self.delay_ms >= 0, "restart.delay", "0 ms or more", self.delay_ms)
        _require(1.0 <= self.multiplier < inf, "restart.multiplier", "at least 1", self.multiplier)
        if self.kind is RestartKind.EXPONENTIAL:
            _require(
                self.maximum_ms >= self.delay_ms,
                "restart.maximum-delay",
                "at least restart.delay",
                self.maximum_ms,
            )
        _require(self.reset_after_ms >= 0, "restart.reset-after", "0 ms or more", self.reset_after_ms)
        _require(0.0 <= self.jitter <= 1.0, "restart.jitter", "within 0 and 1", self.jitter)
        _require(self.interval_ms > 0, "restart.interval", "more than 0 ms", self.interval_ms)


def _require(holds: bool, where: str, expected: str, got: object) -> None:
    if not holds:
        raise ConfigError("a restart setting is not possible", where=where, expected=expected, got=repr(got))


class RestartStrategy:
    """Follows `policy` for one fragment or job; draws from `rng` once per exponential delay."""

    __slots__ = ("_base_ms", "_due_ms", "_policy", "_restarts", "_rng", "_times_ms")

    def __init__(self, policy: RestartPolicy, rng: RandomSource) -> None:
        self._policy = policy
        self._rng = rng
        self._restarts = 0  # in a row
        self._base_ms: float | None = None  # the last exponential delay before jitter
        self._due_ms = 0  # when the last restart was due
        self._times_ms: list[int] = []  # of the last failures, for the rate

    @property
    def policy(self) -> RestartPolicy:
        """The policy it follows."""
        return self._policy

    @property
    def restarts(self) -> int:
        """Restarts that were permitted; for the exponential strategy since the last quiet time."""
        return self._restarts

    def next_delay_ms(self, now_ms: int) -> int | None:
        """Count a failure at `now_ms` (a wall clock), and return the delay before the restart; None: no
        restart.

        A clock that went back is treated as one that stood still.
        """
        policy = self._policy
        match policy.kind:
            case RestartKind.NONE:
                return None
            case RestartKind.FIXED_DELAY:
                if self._restarts >= policy.attempts:
                    return None
                self._restarts += 1
                return policy.delay_ms
            case RestartKind.FAILURE_RATE:
                return self._by_rate(now_ms)
            case RestartKind.EXPONENTIAL:
                return self._exponential_ms(now_ms)

    def _by_rate(self, now_ms: int) -> int | None:
        policy = self._policy
        now_ms = max(now_ms, self._times_ms[-1]) if self._times_ms else now_ms
        self._times_ms = [*self._times_ms, now_ms][-(policy.attempts + 1) :]
        if len(self._times_ms) > policy.attempts and now_ms - self._times_ms[0] <= policy.interval_ms:
            return None
        self._restarts += 1
        return policy.delay_ms

    def _exponential_ms(self, now_ms: int) -> int | None:
        policy = self._policy
        if self._base_ms is not None and now_ms - self._due_ms >= policy.reset_after_ms:
            self._base_ms, self._restarts = None, 0
        if policy.attempts and self._restarts >= policy.attempts:
            return None
        base_ms = (
            float(policy.delay_ms)
            if self._base_ms is None
            else min(self._base_ms * policy.multiplier, policy.maximum_ms)
        )
        offset_ms = base_ms * policy.jitter * (2.0 * self._rng.random() - 1.0)
        delay_ms = min(max(0, round(base_ms + offset_ms)), policy.maximum_ms)
        self._restarts += 1
        self._base_ms = base_ms
        self._due_ms = max(self._due_ms, now_ms + delay_ms)
        return delay_ms

    def saved(self) -> dict[str, object]:
        """Its state as plain data, for `restored` in another process."""
        return {
            "restarts": self._restarts,
            "base_ms": self._base_ms,
            "due_ms": self._due_ms,
            "times_ms": list(self._times_ms),
        }

    @classmethod
    def restored(
        cls, policy: RestartPolicy, rng: RandomSource, saved: Mapping[str, object]
    ) -> RestartStrategy:
        """A strategy that continues where `saved()` was called; unreadable values are ignored.

        State saved under another policy (the user changed the configuration) keeps the counts.
        """
        strategy = cls(policy, rng)
        restarts, base, due, times = (saved.get(key) for key in ("restarts", "base_ms", "due_ms", "times_ms"))
        if isinstance(restarts, int):
            strategy._restarts = max(0, restarts)
        if isinstance(base, int | float):
            strategy._base_ms = min(max(0.0, float(base)), float(policy.maximum_ms))
        if isinstance(due, int):
            strategy._due_ms = due
        if isinstance(times, Sequence) and not isinstance(times, str | bytes):
            strategy._times_ms = sorted(t for t in times if isinstance(t, int))[-(policy.attempts + 1) :]
        return strategy

    def check(self) -> None:
        """Raise InternalError when an invariant of the module does not hold."""
        if self._base_ms is not None and not 0 <= self._base_ms <= self._policy.maximum_ms:
            raise InternalError(f"restart invariant 2: a delay of {self._base_ms} ms")
        if len(self._times_ms) > self._policy.attempts + 1:
            raise InternalError(f"restart invariant 4: {len(self._times_ms)} times kept")
        if self._times_ms != sorted(self._times_ms):
            raise InternalError("restart invariant 4: times out of order")

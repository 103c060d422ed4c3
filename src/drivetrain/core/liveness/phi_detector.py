"""Phi accrual failure detection: how suspicious the silence of a peer is, as one number.

Problem. A fixed timeout is too short for a peer on a slow network and too long for a local one, and its
yes-or-no answer does not let the caller choose how sure to be.

Design. The detector learns how far apart heartbeats are (mean and standard deviation of the last
samples) and takes the current silence `t` to be drawn from a normal distribution with that shape, its
mean moved by the acceptable pause. φ = −log10(P(a heartbeat still comes after `t`)): at φ = 1 one
suspicion in ten is wrong, at φ = 12 one in 10¹². The tail of the distribution is approximated by a
logistic function, P = 1 / (1 + eˣ) with x = y (1.5976 + 0.070566 y²) and y = (t − mean) / std. The two
branches in which this is usually written are one and the same function, softplus(x) / ln 10, computed
here in the form that neither overflows nor loses digits.

Invariants:

1. Without a heartbeat φ is 0: an unknown peer is available.
2. Between two heartbeats φ never decreases.
3. History holds at most `max_samples` intervals; the first heartbeat adds two: the estimate, plus and minus a
   quarter of it.
4. An interval that ends while the peer is unavailable is not learnt: a pause must not make the next
   pause look normal. The peer is available again at once.
5. The running sums match the samples; they are in whole ms and therefore exact.

Called by the remote layer, one detector per watched peer.
Source: Hayashibara et al., "The φ accrual failure detector" (2004); constants, start and limits as in
Akka and Flink.
"""

from __future__ import annotations

from collections import deque
from math import exp, inf, log, log1p, sqrt
from typing import Final

from drivetrain.errors import ConfigError, InternalError

_LN_10: Final = log(10.0)


class PhiAccrualDetector:
    """Judges one peer by its heartbeats; time is any clock in ms that does not go back.

    `threshold` is the φ from which the peer is unavailable, `heartbeat_interval_ms` the estimate to
    start from, `acceptable_pause_ms` the delay of heartbeats that is no reason for suspicion,
    `max_samples` the length of memory, `min_std_ms` the floor of the standard deviation, without which
    very regular heartbeats would make any delay fatal. Raises `ConfigError` for values out of
    range.
    """

    __slots__ = (
        "_intervals_ms",
        "_last_ms",
        "_max_samples",
        "_min_std_ms",
        "_pause_ms",
        "_start_ms",
        "_sum",
        "_sum_of_squares",
        "_threshold",
    )

    def __init__(
        self,
        *,
        threshold: float = 12.0,
        heartbeat_interval_ms: int = 1_000,
        acceptable_pause_ms: int = 6_000,
        max_samples: int = 200,
        min_std_ms: int = 100,
    ) -> None:
        _require(0.0 < threshold < inf, "threshold", "more than 0, finite", threshold)
        _require(heartbeat_interval_ms > 0, "heartbeat_interval_ms", "more than 0", heartbeat_interval_ms)
        _require(acceptable_pause_ms >= 0, "acceptable_pause_ms", "at least 0", acceptable_pause_ms)
        _require(max_samples >= 2, "max_samples", "at least 2", max_samples)
        _require(min_std_ms > 0, "min_std_ms", "more than 0", min_std_ms)
        self._threshold = threshold
        quarter_ms = heartbeat_interval_ms // 4
        self._start_ms = (heartbeat_interval_ms - quarter_ms, heartbeat_interval_ms + quarter_ms)
        self._pause_ms = acceptable_pause_ms
        self._max_samples = max_samples
        self._min_std_ms = min_std_ms
        self._intervals_ms: deque[int] = deque()
        self._sum = 0
        self._sum_of_squares = 0
        self._last_ms: int | None = None

    @property
    def last_heartbeat_ms(self) -> int | None:
        """When the last heartbeat arrived, None before the first."""
        return self._last_ms

    @property
    def mean_ms(self) -> float:
        """The mean interval between heartbeats, without the acceptable pause; 0 before the first."""
        count = len(self._intervals_ms)
        return self._sum / count if count else 0.0

    @property
    def std_ms(self) -> float:
        """The standard deviation of the intervals, at least `min_std_ms`."""
        count = len(self._intervals_ms)
        if not count:
            return float(self._min_std_ms)
        variance = (self._sum_of_squares * count - self._sum * self._sum) / (count * count)
        return max(sqrt(variance), float(self._min_std_ms))

    def heartbeat(self, now_ms: int) -> None:
        """Record a heartbeat. Raises `InternalError`, changing nothing, if time went back."""
        last_ms = self._last_ms
        if last_ms is None:
            for interval_ms in self._start_ms:
                self._learn(interval_ms)
        elif now_ms < last_ms:
            raise InternalError(f"a heartbeat at {now_ms} ms after one at {last_ms} ms")
        elif self.is_available(now_ms):
            self._learn(now_ms - last_ms)
        self._last_ms = now_ms

    def phi(self, now_ms: int) -> float:
        """Return the suspicion that the peer is gone: 0 is none, growing without bound."""
        if self._last_ms is None:
            return 0.0
        y = (now_ms - self._last_ms - self.mean_ms - self._pause_ms) / self.std_ms
        x = y * (1.5976 + 0.070566 * y * y)
        return (max(x, 0.0) + log1p(exp(-abs(x)))) / _LN_10

    def is_available(self, now_ms: int) -> bool:
        """Return whether φ is below the threshold."""
        return self.phi(now_ms) < self._threshold

    def check(self) -> None:
        """Verify the invariants of this module's docstring; raise `InternalError` naming the first broken."""
        samples = self._intervals_ms
        if (self._last_ms is None) != (not samples):
            raise InternalError("invariant 3: samples without a heartbeat, or a heartbeat without samples")
        if len(samples) > self._max_samples:
            raise InternalError(f"invariant 3: {len(samples)} samples")
        if sum(samples) != self._sum or sum(ms * ms for ms in samples) != self._sum_of_squares:
            raise InternalError("invariant 5: the sums are not those of the samples")

    def _learn(self, interval_ms: int) -> None:
        if len(self._intervals_ms) == self._max_samples:
            oldest_ms = self._intervals_ms.popleft()
            self._sum -= oldest_ms
            self._sum_of_squares -= oldest_ms * oldest_ms
        self._intervals_ms.append(interval_ms)
        self._sum += interval_ms
        self._sum_of_squares += interval_ms * interval_ms


def _require(holds: bool, where: str, expected: str, got: object) -> None:
    if not holds:
        raise ConfigError(
            "the failure detector cannot be built", where=where, expected=expected, got=repr(got)
        )

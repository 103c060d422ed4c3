"""Which application time the next checkpoint is bound to.

Problem: states are to be kept as of one application time `Tc`, exactly: all messages older than `Tc`, and no
other. Messages do not come in order, so at each moment some are in that are newer than others yet to come. A
`Tc` among those that are in already would have to split what is merged.

Design: `Tc` is the next multiple of a step above the largest timestamp that any source has seen. The step is
longer than the largest distance from a source's largest timestamp to the smallest clock (its *delta*): then
the clock has passed one `Tc` before messages reach the next but one. It is the configured interval, doubled
until it is; doubling keeps every multiple of a longer step one of the shorter ones before it, and so what
states have cut by the old step fits the new one. It never gets shorter again.

A new `Tc` is chosen only when the clock has reached the last one: until then the states have work to do for
that, and further transactions are bound to it, too.

Invariants:

1. `Tc` never falls, and was above every timestamp seen when it was chosen.
2. The step is the interval times a power of two, and above every delta that was reported (`check()`).

Called by `core.checkpoint`; the rule alone by `core.two_state`. Source: Apache Gearpump's checkpoint manager
(`next Tc = (1 + ts // step) * step`) and what its description says of the interval, which it never built.
"""

from __future__ import annotations

from drivetrain.errors import InternalError

FLOOR_MS = 100
"""No interval is shorter."""


def next_time_ms(largest_ts_ms: int, step_ms: int) -> int:
    """The smallest multiple of `step_ms` above a timestamp.

    >>> next_time_ms(1999, 1000), next_time_ms(2000, 1000), next_time_ms(-1, 1000)
    (2000, 3000, 0)
    """
    return (1 + largest_ts_ms // step_ms) * step_ms


class CheckpointTime:
    """The application times of one application's checkpoints, in ms.

    `interval_ms` is the configured one, `step_ms` and `checkpoint_ms` what was persisted (0 and None at the
    first start). A persisted step that does not fit the interval is given up for a longer one that does.
    """

    def __init__(self, interval_ms: int, step_ms: int = 0, checkpoint_ms: int | None = None) -> None:
        self.interval_ms = max(interval_ms, FLOOR_MS)
        self.step_ms = self.interval_ms
        self.checkpoint_ms = checkpoint_ms
        self.largest_ts_ms: int | None = None
        self.clock_ms: int | None = None
        self._largest_delta_ms = 0
        self._lengthen(step_ms - 1)

    def reported(self, largest_ts_ms: int, min_clock_ms: int | None) -> None:
        """A source has seen this timestamp; the application's clock was this (None: there is none yet)."""
        if self.largest_ts_ms is None or largest_ts_ms > self.largest_ts_ms:
            self.largest_ts_ms = largest_ts_ms
        if min_clock_ms is None:
            return
        if self.clock_ms is None or min_clock_ms > self.clock_ms:
            self.clock_ms = min_clock_ms
        self._lengthen(largest_ts_ms - min_clock_ms)

    def next(self) -> int | None:
        """Bind the next transaction; None as long as nothing has been seen."""
        if self.largest_ts_ms is None:
            return self.checkpoint_ms
        last = self.checkpoint_ms
        if last is None or (self.clock_ms is not None and self.clock_ms >= last):
            above = self.largest_ts_ms if last is None else max(self.largest_ts_ms, last)
            self.checkpoint_ms = next_time_ms(above, self.step_ms)
        return self.checkpoint_ms

    def _lengthen(self, delta_ms: int) -> None:
        self._largest_delta_ms = max(self._largest_delta_ms, delta_ms)
        while self.step_ms <= self._largest_delta_ms:
            self.step_ms *= 2

    def check(self) -> None:
        """Raise InternalError when an invariant of the module does not hold."""
        times, rest = divmod(self.step_ms, self.interval_ms)
        if rest or times & (times - 1) or self.step_ms <= self._largest_delta_ms:
            raise InternalError(f"checkpoint time invariant 2: a step of {self.step_ms} ms")

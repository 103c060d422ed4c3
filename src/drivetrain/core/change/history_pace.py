"""How fast earlier messages are read again while the application runs.

Problem: a month of messages could keep every core busy for an hour, while the application needs them for the
messages that arrive. And the time that a part of them takes is unknown until it has been read.

Design: they are read in parts, one after the other. After each part the reader pauses, so that reading takes
at most a share of the time (`run.history-share`). A part is a fraction of the largest batch: it grows until
parts take about the wanted time of a batch, and shrinks when one takes longer. Every part also takes time
that does not depend on its size, at most as long as the quickest one. A part may always take twice that:
smaller ones would take as long, and reading might never catch up with the messages that arrive.

Invariants:

1. The fraction is above 0 and at most 1.
2. A pause is never negative, and 0 with a share of 1.

Called by `spark.run.history_reader`.
"""

from __future__ import annotations

from drivetrain.errors import InternalError

_FIRST = 1 / 16
_LEAST = 1 / 4096


class HistoryPace:
    """The pace of one history: `share` of the time (above 0, at most 1), in parts of about `target_ms`.

    >>> pace = HistoryPace(0.5, 10_000)
    >>> pace.record(1_000), pace.fraction
    (1000, 0.125)
    """

    def __init__(self, share: float, target_ms: int) -> None:
        self._share = share
        self._target_ms = target_ms
        self._quickest_ms: int | None = None
        self.fraction = _FIRST
        """How much of the largest batch the next part may take."""

    def record(self, duration_ms: int) -> int:
        """A part took so long; returns the pause after it, in ms."""
        quickest_ms = duration_ms if self._quickest_ms is None else min(duration_ms, self._quickest_ms)
        self._quickest_ms = quickest_ms
        wanted_ms = max(self._target_ms, 2 * quickest_ms)
        if duration_ms > wanted_ms:
            self.fraction = max(_LEAST, self.fraction / 2)
        else:
            self.fraction = min(1.0, self.fraction * min(2.0, wanted_ms / max(1, duration_ms)))
        self.check()
        return int(duration_ms * (1 - self._share) / self._share)

    def check(self) -> None:
        """Raise InternalError if an invariant does not hold."""
        if not 0 < self.fraction <= 1 or not 0 < self._share <= 1:
            raise InternalError(
                f"a history is read in parts of {self.fraction}, at {self._share} of the time"
            )

"""How fast earlier messages are read again while the application runs.

Problem: a month of messages could keep every core busy for an hour, while the application needs them for the
messages that arrive. And the time that a part of them takes is unknown until it has been read.

Design: they are read in parts, one after the other. After each part the reader pauses, so that reading takes
at most a share of the time (`run.history-share`). A part is a fraction of the largest batch: it grows while
parts take less than half of the wanted time of a batch, and shrinks when one takes longer.

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
        self.fraction = _FIRST
        """How much of the largest batch the next part may take."""

    def record(self, duration_ms: int) -> int:
        """A part took so long; returns the pause after it, in ms."""
        if duration_ms > self._target_ms:
            self.fraction = max(_LEAST, self.fraction / 2)
        elif duration_ms < self._target_ms / 2:
            self.fraction = min(1.0, self.fraction * 2)
        self.check()
        return int(duration_ms * (1 - self._share) / self._share)

    def check(self) -> None:
        """Raise InternalError if an invariant does not hold."""
        if not 0 < self.fraction <= 1 or not 0 < self._share <= 1:
            raise InternalError(
                f"a history is read in parts of {self.fraction}, at {self._share} of the time"
            )

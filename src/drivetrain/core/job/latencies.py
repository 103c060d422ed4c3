"""How late results were: the last ones, as quantiles.

Problem: one slow batch in a hundred is what users complain about, and an average hides it.

Design: the latencies of the last `KEPT` batches, and exact quantiles of them.

Invariants:

1. A quantile is one of the latencies that were added; there is none before the first.

Called by `spark.batch.query_figures`.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Final

KEPT: Final = 200


class Latencies:
    """The last `KEPT` latencies in ms.

    >>> seen = Latencies()
    >>> for ms in (30, 10, 20):
    ...     seen.add(ms)
    >>> seen.share(0.5), seen.share(0.99)
    (20, 30)
    """

    def __init__(self) -> None:
        self._kept: Final[deque[int]] = deque(maxlen=KEPT)

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, ms: int) -> None:
        """Add the time from the newest message of a result until the result was shown."""
        self._kept.append(ms)

    def share(self, fraction: float) -> int | None:
        """The least latency that at least this share of the batches did not exceed; None without any."""
        if not self._kept:
            return None
        ordered = sorted(self._kept)
        return ordered[max(0, math.ceil(fraction * len(ordered)) - 1)]

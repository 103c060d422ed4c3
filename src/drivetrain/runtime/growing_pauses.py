"""Pauses between attempts at a request that may succeed later, for a limited time.

Called by `repeated_requests`, `sql_database`, `redis_connection` and `repeated_commits`.
"""

from __future__ import annotations

import time


class GrowingPauses:
    """Pauses from `first_s` up to `longest_s` seconds, as far as they end within `for_s` seconds from now."""

    def __init__(self, for_s: float, *, first_s: float, longest_s: float) -> None:
        self._until_s = time.monotonic() + for_s
        self._next_s = first_s
        self._longest_s = longest_s

    @property
    def are_over(self) -> bool:
        """Whether the next pause would end too late, so that the last attempt was the last one."""
        return time.monotonic() + self._next_s > self._until_s

    def wait(self) -> None:
        """Sleep for one pause."""
        time.sleep(self._next_s)
        self._next_s = min(2 * self._next_s, self._longest_s)

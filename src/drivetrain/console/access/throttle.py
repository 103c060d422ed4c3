"""How often a password may be tried: a pure core.

Problem: passwords can be guessed, and each guess costs the console memory and time.

Design: after `FREE` failures of a name from an address, each further one doubles the time until the next try,
up to `LONGEST_MS`. Failures of a name from all addresses together count as well, but more of them are free.
So an attacker with many addresses is slowed down, and cannot lock a user out for long.

Invariants:

1. Names and addresses without a try for `FORGOTTEN_MS` are forgotten; at most `MOST` are remembered.

Called by `console.access.access`.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from drivetrain.errors import InternalError

FREE: Final = 5
FREE_FROM_ANYWHERE: Final = 50
FIRST_MS: Final = 1_000
LONGEST_MS: Final = 60_000
FORGOTTEN_MS: Final = 15 * 60_000
MOST: Final = 10_000


class Throttle:
    """Failures by name and address.

    >>> throttle = Throttle()
    >>> for _ in range(6):
    ...     throttle.failed("ada", "10.0.0.9", 0)
    >>> throttle.wait_ms("ada", "10.0.0.9", 0), throttle.wait_ms("ada", "10.0.0.1", 0)
    (1000, 0)
    """

    def __init__(self) -> None:
        self._failures: Final[OrderedDict[tuple[str, str], tuple[int, int]]] = OrderedDict()

    def wait_ms(self, name: str, address: str, now_ms: int) -> int:
        """How long to wait before the next try."""
        here = self._wait(self._failures.get((name, address)), FREE, now_ms)
        return max(here, self._wait(self._failures.get((name, "")), FREE_FROM_ANYWHERE, now_ms))

    def failed(self, name: str, address: str, now_ms: int) -> None:
        """A try failed."""
        for key in ((name, address), (name, "")):
            count, last_ms = self._failures.pop(key, (0, now_ms))
            forgotten = now_ms - last_ms >= FORGOTTEN_MS
            self._failures[key] = (1 if forgotten else count + 1, now_ms)
        while len(self._failures) > MOST:
            self._failures.popitem(last=False)

    def succeeded(self, name: str, address: str) -> None:
        """A try succeeded."""
        self._failures.pop((name, address), None)

    def check(self) -> None:
        """Raise InternalError if the invariant does not hold."""
        if len(self._failures) > MOST:
            raise InternalError("throttle invariant 1: too much is remembered")

    @staticmethod
    def _wait(failures: tuple[int, int] | None, free: int, now_ms: int) -> int:
        if failures is None or failures[0] <= free:
            return 0
        count, last_ms = failures
        doubled = min(LONGEST_MS, FIRST_MS << min(16, count - free - 1))
        return max(0, last_ms + doubled - now_ms) if now_ms - last_ms < FORGOTTEN_MS else 0

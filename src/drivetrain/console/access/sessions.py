"""Sessions of browsers that have signed in: a pure core.

Design: a session is a random text in a cookie; the console keeps its SHA-256, in memory: after a restart the
console has no sessions, and users sign in again.

Invariants:

1. There are at most `MOST` sessions; a further one replaces the one that was unused for longest.
2. A session ends `IDLE_MS` after its last use, and `LONGEST_MS` after it began.

Called by `console.access.access`.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Final

from drivetrain.console.access.roles import Role

MOST: Final = 10_000
IDLE_MS: Final = 12 * 3_600_000
LONGEST_MS: Final = 7 * 24 * 3_600_000


@dataclass(frozen=True, slots=True)
class Session:
    """A session of the user `name`; `basis` is the hash of what proved it, as it was then."""

    name: str
    role: Role
    basis: str
    began_ms: int
    used_ms: int

    def is_over(self, now_ms: int) -> bool:
        """Whether it has ended."""
        return now_ms - self.used_ms >= IDLE_MS or now_ms - self.began_ms >= LONGEST_MS


class Sessions:
    """The sessions by the hash of their cookies."""

    def __init__(self) -> None:
        self._sessions: Final[OrderedDict[str, Session]] = OrderedDict()

    def begin(self, proof: str, name: str, role: Role, basis: str, now_ms: int) -> None:
        """A browser has signed in."""
        self._sessions[proof] = Session(name, role, basis, now_ms, now_ms)
        while len(self._sessions) > MOST:
            self._sessions.popitem(last=False)

    def use(self, proof: str, now_ms: int) -> Session | None:
        """The session, which is used now; None if it is over."""
        session = self._sessions.pop(proof, None)
        if session is None or session.is_over(now_ms):
            return None
        self._sessions[proof] = replace(session, used_ms=now_ms)
        return session

    def end(self, proof: str) -> None:
        """Its user has signed out."""
        self._sessions.pop(proof, None)

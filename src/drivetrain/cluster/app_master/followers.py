"""Who follows an application, and when they are told.

Invariants:
1. A follower is told the status at once, and again after each change, soon rather than at once.
2. A follower that has ended is forgotten.

Called by `app_master`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from drivetrain.actor import ActorRef, Context
from drivetrain.cluster.messages.following import JobStatus, Status
from drivetrain.errors import DrivetrainError

_MOST = 1_000
"""Who has followed for longest makes room for one more; it may ask again."""


class Followers:
    """The followers of the actor whose context is given; `is_behind` when they have not heard the latest."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._followers: dict[ActorRef, None] = {}
        self.is_behind = True

    def add(self, follower: ActorRef, status: JobStatus) -> None:
        """From now on tell `follower`; harmless when repeated."""
        if follower not in self._followers and len(self._followers) >= _MOST:
            self.forget(next(iter(self._followers)))
        self._context.watch(follower)
        self._followers[follower] = None
        follower.tell(Status(status), self._context.me)

    def forget(self, follower: ActorRef) -> None:
        """Tell it no more; harmless when unknown."""
        if follower in self._followers:
            del self._followers[follower]
            self._context.unwatch(follower)

    def tell(self, status: Callable[[], JobStatus]) -> None:
        """Tell all of them, if there is something new."""
        if not self.is_behind or not self._followers:
            return
        self.is_behind = False
        told = Status(status())
        for follower in self._followers:
            with contextlib.suppress(DrivetrainError):  # too large for its frames: the next may not be
                follower.tell(told, self._context.me)

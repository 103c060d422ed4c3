"""The followers of an application: sends them its status.

Invariants:
1. A new follower gets the status at once, and after each change again within a short delay.
2. A follower that has ended is removed.

Called by `app_master`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from drivetrain.actor import ActorRef, Context
from drivetrain.cluster.messages.following import JobStatus, Status
from drivetrain.errors import DrivetrainError

_MOST = 1_000
"""Beyond this many, a new follower replaces the oldest, which may follow again."""


class Followers:
    """The followers of the actor whose context is given; `is_behind` when they lack the latest status."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._followers: dict[ActorRef, None] = {}
        self.is_behind = True

    def add(self, follower: ActorRef, status: JobStatus) -> None:
        """Add a follower and send it `status`; idempotent."""
        if follower not in self._followers and len(self._followers) >= _MOST:
            self.forget(next(iter(self._followers)))
        self._context.watch(follower)
        self._followers[follower] = None
        follower.tell(Status(status), self._context.me)

    def forget(self, follower: ActorRef) -> None:
        """Remove a follower, if it is known."""
        if follower in self._followers:
            del self._followers[follower]
            self._context.unwatch(follower)

    def tell(self, status: Callable[[], JobStatus]) -> None:
        """Send all followers the status if it has changed."""
        if not self.is_behind or not self._followers:
            return
        self.is_behind = False
        message = Status(status())
        for follower in self._followers:
            with contextlib.suppress(DrivetrainError):  # too large for a message; the next may not be
                follower.tell(message, self._context.me)

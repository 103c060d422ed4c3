"""The leader's actors, each of which lives for one term; a failure of one ends the term.

No message ends a term: see `cluster.guarded`. An actor that fails nevertheless, because an invariant of its
core is broken, would restart with the state of the beginning of the term, and so lose every later change.
Instead, it stops acting and the leader resigns: the next one starts from the registry of a majority.

Called by `application_registry`, `application_manager`, `worker_manager`, `scheduler`: they derive from it.
"""

from __future__ import annotations

from collections.abc import Awaitable

from drivetrain.actor import Message
from drivetrain.cluster.guarded import GuardedActor
from drivetrain.cluster.master.master_messages import LeaderActorFailed


class LeaderActor(GuardedActor):
    """An actor that lives for one term; subclasses define `act`, and `leave` if the end needs work."""

    leading_term: int = 0
    is_void = False

    def receive(self, message: Message) -> Awaitable[None] | None:
        """Handle a message, unless this instance replaces one that failed."""
        return None if self.is_void else super().receive(message)

    def leave(self) -> None:
        """Called when the term is over, for the cluster or for this actor."""

    def post_stop(self) -> None:
        """Call `leave`, unless the previous instance has done so."""
        if not self.is_void:
            self.leave()

    def post_restart(self, cause: BaseException) -> None:
        """Stop acting, and let the leader resign."""
        self.is_void = True
        why = f"{type(self).__name__} failed: {type(cause).__name__}: {cause}"
        self.context.parent.tell(LeaderActorFailed(self.leading_term, why))

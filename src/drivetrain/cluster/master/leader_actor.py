"""What the actors of a leader have in common: they hold office for one term, and a failure ends it.

No message ends a term: see `cluster.guarded`. An actor that fails all the same, as an invariant of its core
is broken, would start again from what was taken over at the beginning of the term, and so forget what has
happened since. It does nothing any more instead, and the leader resigns: the next one begins anew from what
a majority knows.

Called by `registry`, `applications`, `workers` and `scheduler`, which derive from `Officer`.
"""

from __future__ import annotations

from collections.abc import Awaitable

from drivetrain.actor import Message
from drivetrain.cluster.guarded import GuardedActor
from drivetrain.cluster.master.own_messages import OfficeFailed


class Officer(GuardedActor):
    """An actor that lives for one term; subclasses write `act`, and `leave` if there is something to do."""

    office_term: int = 0
    is_void = False

    def receive(self, message: Message) -> Awaitable[None] | None:
        """Act, unless this instance replaces one that failed."""
        return None if self.is_void else super().receive(message)

    def leave(self) -> None:
        """The term is over, for the cluster or for this actor."""

    def post_stop(self) -> None:
        """Leave, unless the instance before this one has done so."""
        if not self.is_void:
            self.leave()

    def post_restart(self, cause: BaseException) -> None:
        """Do nothing any more, and have the leader resign."""
        self.is_void = True
        why = f"{type(self).__name__} failed: {type(cause).__name__}: {cause}"
        self.context.parent.tell(OfficeFailed(self.office_term, why))

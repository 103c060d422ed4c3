"""What the actors of a leader have in common: they hold office for one term, and a failure ends it.

An actor that failed would start again from what was taken over at the beginning of the term, and so forget
what has happened since. It does nothing any more instead, and the leader resigns: the next one begins anew
from what a majority knows.

Called by `registry`, `applications`, `workers` and `scheduler`, which derive from `Officer`.
"""

from __future__ import annotations

from drivetrain.actor import Actor, Message
from drivetrain.cluster.master.local import OfficeFailed


class Officer(Actor):
    """An actor that lives for one term; subclasses write `act`."""

    office_term: int = 0
    is_void = False

    def receive(self, message: Message) -> None:
        """Act, unless this instance replaces one that failed."""
        if not self.is_void:
            self.act(message)

    def act(self, message: Message) -> None:
        """Handle one message."""
        raise NotImplementedError

    def post_restart(self, cause: BaseException) -> None:
        """Do nothing any more, and have the leader resign."""
        self.is_void = True
        why = f"{type(self).__name__} failed: {type(cause).__name__}: {cause}"
        self.context.parent.tell(OfficeFailed(self.office_term, why))

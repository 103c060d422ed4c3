"""Guardians: the top of the tree.

Problem: every actor needs a parent that decides about its failures, and a system must end in order: first the
user's actors, which still need the kernel's, then the kernel's, then the rest.

Design: the root has two children, `/user` above the user's actors and `/system` above the kernel's own. The
system ends by stopping `/user`; the root watches it, then stops `/system`, then itself. A failure that
escalates to a guardian reaches the root, whose policy is to stop: the whole system ends, and the failure is
what `wait_terminated` raises.

Called by the system.
"""

from __future__ import annotations

from typing import Final

from drivetrain.actor.actor import Actor
from drivetrain.actor.kernel_messages import Terminated
from drivetrain.actor.message import Message
from drivetrain.core.liveness.supervision import Directive, SupervisionPolicy

USER: Final = "user"
SYSTEM: Final = "system"

STOP_ALWAYS: Final = SupervisionPolicy(directives={BaseException: Directive.STOP})


class Guardian(Actor):
    """The parent of actors without another parent; `policy` decides what happens when one of them fails."""

    __slots__ = ("supervision",)

    def __init__(self, policy: SupervisionPolicy) -> None:
        self.supervision = policy

    def receive(self, message: Message) -> None:
        """Handle nothing."""
        self.context.unhandled(message)


class RootGuardian(Actor):
    """The root: ends the system in order once `/user` has stopped."""

    __slots__ = ()

    supervision = STOP_ALWAYS

    def pre_start(self) -> None:
        """Watch both halves."""
        for child in self.context.children:
            self.context.watch(child)

    def receive(self, message: Message) -> None:
        """Stop the next part when one has stopped."""
        match message:
            case Terminated(actor) if actor.path.names == (USER,):
                kernel = self.context.child(SYSTEM)
                if kernel is not None:
                    self.context.stop(kernel)
            case Terminated():
                self.context.stop()
            case _:
                self.context.unhandled(message)

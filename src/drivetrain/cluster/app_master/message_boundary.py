"""Around the handling of one message by an application master: who suffers when it raises.

Problem: executors, workers, masters and clients all speak to an application master. A message that one of
them got wrong must not end the application; a defect of ours that a message meets must be seen; and an
application whose own code raises must fail, instead of waiting for what will never come.

Design: as `cluster.guarded`, for messages of other processes and for answers of theirs; what is a defect of
ours is shown among the application's errors, too. What an application master tells itself must not fail: then
the application has failed. So it has when a hook raises that its user wrote, unless a client has sent what
the hook was called for.

Invariants:
1. An exception ends the application only if no other process has sent the message, or if the user's code
raised
   it, for no client.
2. What is refused is logged with its type and sender, ever more rarely, counted, and answered if an answer is
   expected.

Called by `app_master`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from drivetrain.actor import ActorRef, Context, Message
from drivetrain.cluster.access.system_names import Role, read_name
from drivetrain.cluster.app_master.own_messages import Answered
from drivetrain.cluster.error_views import defect_view
from drivetrain.cluster.guarded import Mishaps, is_defect, is_own, refuse
from drivetrain.cluster.messages.following import ErrorView

_WHO: Final = "the application master"


class Bounded(Protocol):
    """What the boundary needs of its application master."""

    def note(self, error: ErrorView) -> None:
        """Remember an error."""

    def fail(self, error: Exception) -> None:
        """The application has failed with this."""

    def recovered(self) -> None:
        """Put right what a refused message has left half done."""


class MessageBoundary:
    """The boundary of `owner`, whose actor's context is given; `are_hooks_ours` says who wrote its hooks."""

    def __init__(self, owner: Bounded, context: Context, *, are_hooks_ours: bool) -> None:
        self._owner: Final = owner
        self._context: Final = context
        self._are_hooks_ours: Final = are_hooks_ours
        self.mishaps: Final = Mishaps()

    def take(self, message: Message, handle: Callable[[Message], None]) -> None:
        """Have a message handled."""
        try:
            handle(message)
        except Exception as error:  # noqa: BLE001 - this is the boundary, see the module
            if _is_from_outside(message):
                self._refuse(message, error)
            else:
                self._owner.fail(error)

    def call_hook(self, hook: Callable[[], None]) -> None:
        """Call a hook because of another process: what the user's own raises fails the application."""
        try:
            hook()
        except Exception as error:
            if self._are_hooks_ours or _is_client(self._context.sender):
                raise
            self._owner.fail(error)

    def _refuse(self, message: Message, error: Exception) -> None:
        # The answer to a question of ours has no sender: it comes as a message of our own.
        received = message.answer if isinstance(message, Answered) and message.answer else message
        kind = f"{_WHO} could not handle {type(received).__name__}"
        sender = self._context.sender
        self._note(kind, error, sender)
        refuse(self._context.me, sender, error)
        try:
            self._owner.recovered()
        except Exception as failed:  # noqa: BLE001 - as above
            self._note(f"{_WHO} could not recover", failed, None)

    def _note(self, kind: str, error: Exception, sender: ActorRef | None) -> None:
        if self.mishaps.note(kind, error, sender) and is_defect(error):
            self._owner.note(defect_view(kind, error, self.mishaps.defects))


def _is_from_outside(message: Message) -> bool:
    """Whether another process has sent a message, or the answer in it."""
    return not is_own(message) or (isinstance(message, Answered) and message.answer is not None)


def _is_client(sender: ActorRef | None) -> bool:
    name = None if sender is None else read_name(sender.path.address.system)
    return name is not None and name.role is Role.CLIENT

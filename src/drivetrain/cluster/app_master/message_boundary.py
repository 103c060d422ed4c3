"""The boundary around an application master's message handling: decides what an exception ends.

Problem: executors, workers, masters and clients all send messages to an application master. A faulty message
must not end the application; a defect of Drivetrain that a message reveals must become visible; and an
application whose own code raises must fail, instead of waiting forever.

Design: as in `cluster.guarded`, an exception from handling a message or an answer of another process ends
only that message; if it is a defect of Drivetrain, the application's errors show it, too. An exception from
handling an application master's message to itself fails the application. So does one from a user's hook,
unless the hook was called for a client's message.

Invariants:
1. An exception ends the application only if the message came from this process, or if the user's code raised
   it, and not for a client.
2. A refusal is logged with the message's type and sender, ever more rarely, counted, and answered if the
   sender expects an answer.

Called by `app_master`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from drivetrain.actor import ActorRef, Context, Message
from drivetrain.cluster.access.system_names import Role, read_name
from drivetrain.cluster.app_master.app_master_messages import AskOutcome
from drivetrain.cluster.guarded import ErrorCounts, is_defect, is_own, refuse
from drivetrain.cluster.messages.following import ErrorView
from drivetrain.runtime.error_views import defect_view

_WHO: Final = "the application master"


class BoundaryOwner(Protocol):
    """The methods of its application master that the boundary needs."""

    def note(self, error: ErrorView) -> None:
        """Record an error for followers."""

    def fail(self, error: Exception) -> None:
        """Fail the application with this error."""

    def recovered(self) -> None:
        """Repair what the handler of a refused message left half done."""


class MessageBoundary:
    """The boundary of `owner`, an actor with this context; `are_hooks_ours`: no user wrote its hooks."""

    def __init__(self, owner: BoundaryOwner, context: Context, *, are_hooks_ours: bool) -> None:
        self._owner: Final = owner
        self._context: Final = context
        self._are_hooks_ours: Final = are_hooks_ours
        self.mishaps: Final = ErrorCounts()

    def take(self, message: Message, handle: Callable[[Message], None]) -> None:
        """Handle a message with `handle`."""
        try:
            handle(message)
        except Exception as error:  # noqa: BLE001 - this is the boundary, see the module
            if _is_from_outside(message):
                self._refuse(message, error)
            else:
                self._owner.fail(error)

    def call_hook(self, hook: Callable[[], None]) -> None:
        """Call a hook on behalf of another process; an exception in a user's hook fails the application."""
        try:
            hook()
        except Exception as error:
            if self._are_hooks_ours or _is_client(self._context.sender):
                raise
            self._owner.fail(error)

    def _refuse(self, message: Message, error: Exception) -> None:
        # The answer to a request of this process has no sender: it arrives within a message of its own.
        received = message.answer if isinstance(message, AskOutcome) and message.answer else message
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
    """Whether another process sent the message, or the answer in it."""
    return not is_own(message) or (isinstance(message, AskOutcome) and message.answer is not None)


def _is_client(sender: ActorRef | None) -> bool:
    name = None if sender is None else read_name(sender.path.address.system)
    return name is not None and name.role is Role.CLIENT

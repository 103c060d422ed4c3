"""The errors between actors.

The branches are those of `drivetrain.errors`: by who must act. The errors that an asker sees are the
outcomes of its ask; every ask has exactly one outcome.
"""

from __future__ import annotations

from drivetrain.errors import InternalError, PeerViolationError, UnavailableError, UserError


class InvalidPathError(UserError):
    """A text is not an address or a path, or a name cannot be part of one."""

    code = "actor-path"


class NameTakenError(UserError):
    """A living or stopping sibling has this name; unlike `InvalidPathError` the name itself is fine."""

    code = "actor-name-taken"


class NotAMessageError(UserError):
    """The object is not an instance of a `Message` class, or two classes claim one tag."""

    code = "actor-not-a-message"


class DeathPactError(UserError):
    """A watched actor terminated and its watcher did not handle the `Terminated` message."""

    code = "actor-death-pact"


class ContextError(UserError):
    """A context was used wrongly: to reply without a sender, or to stop another actor's child."""

    code = "actor-context"


class MessageRefusedError(UserError):
    """A message cannot leave this process: it does not serialize, or is larger than the frame limit.

    Raised by `tell` and `ask` at the sender, immediately; nothing was sent.
    """

    code = "actor-message-refused"


class UnknownMessageError(PeerViolationError):
    """A tag from the wire is not that of any message class known here."""

    code = "actor-unknown-message"


class MalformedMessageError(PeerViolationError):
    """A body from the wire does not decode as the message class that its tag names."""

    code = "actor-malformed-message"


class AskError(UnavailableError):
    """An ask had an outcome other than a reply; the subclasses distinguish which."""

    code = "ask"


class AskTimeoutError(AskError):
    """No reply arrived in time. The message may or may not have been handled."""

    code = "ask-timeout"


class ActorStoppedError(AskError):
    """The asked actor has stopped, or does not exist: the message was not handled."""

    code = "actor-stopped"


class MailboxFullError(AskError):
    """The asked actor's mailbox is full: the message was not handled; try again later."""

    code = "mailbox-full"


class UnhandledMessageError(AskError):
    """The asked actor does not handle messages of this type."""

    code = "actor-unhandled"


class UnreachableError(AskError):
    """The asked actor's system cannot be reached. The message may or may not have been handled."""

    code = "actor-unreachable"


class ActorFailedError(AskError):
    """The asked actor failed while it handled the message, or answered with a `Failure`.

    `failure_code` is its error code, "actor-failed" for an exception that is not one of ours.
    """

    code = "actor-failed"

    def __init__(self, what: str, *, where: str | None, failure_code: str, remedy: str | None = None) -> None:
        super().__init__(what, where=where, remedy=remedy)
        self.failure_code = failure_code


class UnexpectedReplyError(AskError):
    """The reply does not have the type that the asker expected."""

    code = "ask-unexpected-reply"


class ActorCancelledError(UnavailableError):
    """Someone else cancelled what an actor waited for; its supervisor treats it like any other failure."""

    code = "actor-cancelled"


class ActorNotFoundError(UnavailableError):
    """There is no actor at the path that was looked up."""

    code = "actor-not-found"


class LookupTimeoutError(UnavailableError):
    """The other system did not answer the look-up of a path in time."""

    code = "actor-lookup-timeout"


class StillRunningError(UnavailableError):
    """An actor did not stop in time."""

    code = "actor-still-running"


class SystemStoppedError(UnavailableError):
    """The actor system has terminated, or is about to: it can start nothing any more."""

    code = "actor-system-stopped"


class StuckActorsError(UnavailableError):
    """Some actors did not stop in time when the system terminated; it was closed without them."""

    code = "actor-stuck"


class ActorStateError(InternalError):
    """An event is not possible in the state an actor is in; nothing was changed."""

    code = "actor-state"

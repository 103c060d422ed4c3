"""Actor systems: references, supervision, asks, watches and their transports."""

from drivetrain.actor.actor import Actor
from drivetrain.actor.actor_errors import (
    ActorCancelledError,
    ActorFailedError,
    ActorNotFoundError,
    ActorStoppedError,
    AskError,
    AskTimeoutError,
    ContextError,
    DeathPactError,
    InvalidPathError,
    LookupTimeoutError,
    MailboxFullError,
    MalformedMessageError,
    MessageRefusedError,
    NameTakenError,
    NotAMessageError,
    StillRunningError,
    StuckActorsError,
    SystemStoppedError,
    UnexpectedReplyError,
    UnhandledMessageError,
    UnknownMessageError,
    UnreachableError,
)
from drivetrain.actor.context import Context
from drivetrain.actor.dead_letters import DeadLetter, DeadLetterReason, DeadLetters
from drivetrain.actor.kernel_messages import Failure, PoisonPill, Terminated, TerminationCause
from drivetrain.actor.message import Message
from drivetrain.actor.path import ActorPath, Address
from drivetrain.actor.provider import Envelope, RemoteProvider, UndeliverableReason
from drivetrain.actor.reference import ActorRef
from drivetrain.actor.system import ActorSystem
from drivetrain.actor.system_views import SystemView
from drivetrain.actor.timers import Timers

__all__ = [
    "Actor",
    "ActorCancelledError",
    "ActorFailedError",
    "ActorNotFoundError",
    "ActorPath",
    "ActorRef",
    "ActorStoppedError",
    "ActorSystem",
    "Address",
    "AskError",
    "AskTimeoutError",
    "Context",
    "ContextError",
    "DeadLetter",
    "DeadLetterReason",
    "DeadLetters",
    "DeathPactError",
    "Envelope",
    "Failure",
    "InvalidPathError",
    "LookupTimeoutError",
    "MailboxFullError",
    "MalformedMessageError",
    "Message",
    "MessageRefusedError",
    "NameTakenError",
    "NotAMessageError",
    "PoisonPill",
    "RemoteProvider",
    "StillRunningError",
    "StuckActorsError",
    "SystemStoppedError",
    "SystemView",
    "Terminated",
    "TerminationCause",
    "Timers",
    "UndeliverableReason",
    "UnexpectedReplyError",
    "UnhandledMessageError",
    "UnknownMessageError",
    "UnreachableError",
]

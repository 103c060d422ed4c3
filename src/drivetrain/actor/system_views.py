"""Views of an actor system, for its actors and for the kernel's own modules.

Problem: the system is made of cells, asks and references, and each of them uses the system. If
they named `ActorSystem`, every module of the kernel would import every other one.

Design: two protocols, which `ActorSystem` satisfies. `SystemView` is what the code of actors may use, as
`Context.system`; it cannot end the system or change its interface to others. `KernelView` is what the
kernel's modules need besides: what all cells share, and the few things that only the system can do. Neither
names a cell.

Called by the modules below the system: cells, contexts, references, asks, watches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeVar

from drivetrain.actor.reference import Asker

if TYPE_CHECKING:
    import asyncio
    import contextvars
    import random

    from drivetrain.actor.carrier import Carriers
    from drivetrain.actor.dead_letters import DeadLetters
    from drivetrain.actor.dispatch import Dispatcher
    from drivetrain.actor.kernel_messages import Terminated
    from drivetrain.actor.mailbox import SpareQueues
    from drivetrain.actor.message import Message
    from drivetrain.actor.path import ActorPath, Address
    from drivetrain.actor.provider import Envelope, RemoteProvider
    from drivetrain.actor.purgatory import ThreadSafePurgatory
    from drivetrain.actor.receiver import Factory
    from drivetrain.actor.reference import ActorRef
    from drivetrain.actor.remote_watches import RemoteWatches
    from drivetrain.config import Config
    from drivetrain.core.waiting.waiting_operations import DelayedOperation

T = TypeVar("T")


class SystemView(Asker, Protocol):
    """The part of the system that actors may use; `ActorSystem` documents each member."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop that it runs on, also the source of time."""

    @property
    def rng(self) -> random.Random:
        """Its only source of randomness."""

    @property
    def config(self) -> Config:
        """Its settings."""

    @property
    def address(self) -> Address:
        """Its address; final once a provider is attached."""

    @property
    def provider(self) -> RemoteProvider | None:
        """The connection to other systems, if any."""

    @property
    def dead_letters(self) -> DeadLetters:
        """The undelivered messages."""

    @property
    def purgatory(self) -> ThreadSafePurgatory[DelayedOperation]:
        """Holds asks and everything else that waits for a condition with a timeout."""

    def spawn(
        self, factory: Factory, name: str | None = None, *, mailbox_capacity: int | None = None
    ) -> ActorRef:
        """Start a top-level actor."""

    def stop(self, actor: ActorRef) -> None:
        """Stop a local actor."""

    async def wait_stopped(self, actor: ActorRef, *, timeout_ms: int | None = None) -> Terminated:
        """Wait until an actor has terminated."""

    def reference(self, path: ActorPath) -> ActorRef:
        """Return the reference that a path means."""

    async def lookup(self, path: str, *, timeout_ms: int | None = None) -> ActorRef:
        """Find the actor at a path now."""

    def run_blocking(self, function: Callable[[], T]) -> asyncio.Future[T]:
        """Run a blocking function in a thread."""

    def tell_threadsafe(self, actor: ActorRef, message: Message, sender: ActorRef | None = None) -> None:
        """Send a message from a thread other than the loop's."""


class KernelView(SystemView, Protocol):
    """The part of the system that only the kernel's modules use."""

    failures: int
    """How many failures of actors supervisors have decided."""

    @property
    def async_context(self) -> contextvars.Context:
        """The context of the kernel's callbacks and tasks, instead of that of the code that caused them."""

    @property
    def mailbox_capacity(self) -> int:
        """How many messages fit into a mailbox, unless its actor was started with another number."""

    @property
    def dispatcher(self) -> Dispatcher:
        """The queue of cells that wait for a turn."""

    @property
    def carriers(self) -> Carriers:
        """The carriers, which continue waiting handlers."""

    @property
    def spare_queues(self) -> SpareQueues:
        """The pool of queues that idle cells have returned."""

    @property
    def remote_watches(self) -> RemoteWatches:
        """The watches between this system and others."""

    def spawn_kernel(self, factory: Factory, name: str | None = None) -> ActorRef:
        """Start an actor that serves the system."""

    def next_uid(self) -> int:
        """Return a number that was never used in this incarnation."""

    def deliver_outbound(self, envelope: Envelope) -> None:
        """Pass a message for another system to the provider."""

    def fail(self, failure: BaseException) -> None:
        """Record a failure that escalated to the root."""

    def begin_to_close(self) -> None:
        """Close the actors' services: there are no actors left."""

"""The interface between the kernel and the remote layer.

Problem: actors must not notice whether their peers are in this process, and the kernel must not depend on
sockets, frames or heartbeats.

Design: an `Envelope` is a message under way between two systems. The kernel passes outgoing envelopes to
its `RemoteProvider` and receives incoming ones at `ActorSystem.deliver_inbound`. Watching works the same
way: the kernel keeps the tables of watches, the provider carries `Watch`, `Unwatch` and
`Terminated` envelopes and detects dead systems.

Rules, for the provider:

1. `attach_provider` is called once, before the first reference leaves the process. `host` and `port` are
   then final: they become part of the system's address and of every path.
2. `deliver` keeps the order per target system and never blocks. It passes what it cannot send to
   `system.undeliverable(envelope, reason)`, which makes it a dead letter and fails a waiting ask. It
   raises `MessageRefusedError` (or a subclass) at once when the message itself can never be sent.
3. An `Identify` may go to an address with `ANY_INCARNATION`: to the current incarnation at that host and port
   now. Its target keeps that address; the `Identified` in return has the real one.
4. `watch(target, watcher)`: monitor the target's system, and get a `Watch(watcher)` to the target: send it
   again after each re-association with the same incarnation, until `unwatch`. The receiving kernel
   answers with a `Terminated` envelope when the target stops, and at once when it is gone already. After
   `Terminated` has arrived the kernel ends the watch with `unwatch`, which then need not be sent.
5. When a system is dead (declared so, or a newer incarnation has taken its place), call
   `system.address_terminated(address)`. Every local watcher of an actor there then gets `Terminated`
   exactly once, local actors forget their watchers there, and asks that wait for a reply from there fail
   with `UnreachableError`. Watches there are over: the kernel does not call `unwatch`. A system that was
   declared dead and comes back with the same incarnation can be watched, and declared dead, again.
6. Incoming envelopes whose target is not this incarnation are refused: `deliver_inbound` makes dead
   letters of them; the provider is free to refuse them earlier.
7. All calls happen in the thread of the event loop.

Rules, kept by the kernel:

8. `deliver_inbound`, `undeliverable` and `address_terminated` never raise for messages from outside and
   run no user code before they return.
9. At most one `watch` per (target, watcher) is open; `unwatch` is called for none that is not.

What the provider uses of `ActorSystem`: `name`, `address` (final after `attach_provider`), `loop`, `rng`,
`config`, `codec` (`serialize(message) -> (tag, body)`, `deserialize(tag, body) -> Message`),
`reference(path)`, `deliver_inbound(envelope)`, `undeliverable(envelope, reason)` and
`address_terminated(address)`.

Called by the kernel and by the remote layer.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Protocol

import msgspec

from drivetrain.actor.message import Message
from drivetrain.actor.path import ActorPath

if TYPE_CHECKING:
    from drivetrain.actor.reference import ActorRef


class Envelope(msgspec.Struct, frozen=True):
    """A message under way between two systems; `sender` is where an answer goes, if any.

    `target.uid` is `ANY_UID` only for a look-up by path.
    """

    target: ActorPath
    message: Message
    sender: ActorPath | None = None


class UndeliverableReason(Enum):
    """Why an envelope could not be sent."""

    UNREACHABLE = "unreachable"  # no connection, and none expected in time; or declared dead
    STALE = "stale incarnation"  # the address names an earlier incarnation of that system
    QUEUE_FULL = "queue full"  # too many messages wait for that system already
    STOPPED = "provider stopped"


class RemoteProvider(Protocol):
    """Carries envelopes to other systems; the module's docstring has the rules."""

    @property
    def host(self) -> str:
        """The host at which others reach this system."""
        ...

    @property
    def port(self) -> int:
        """The port at which others reach this system."""
        ...

    def deliver(self, envelope: Envelope) -> None:
        """Send `envelope` when possible, without blocking; raises `MessageRefusedError` (rules 2 and 3)."""
        ...

    def watch(self, target: ActorRef, watcher: ActorRef) -> None:
        """Watch the remote `target` for the local `watcher` (rule 4)."""
        ...

    def unwatch(self, target: ActorRef, watcher: ActorRef) -> None:
        """End a watch, and inform the target's system (rule 4)."""
        ...

    async def stop(self) -> None:
        """Flush what can be flushed in a short time, close every connection and free all resources.

        Called once, after all actors have stopped; later calls of the other methods are answered as
        undeliverable.
        """
        ...

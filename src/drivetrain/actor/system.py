"""An actor system: the tree of actors of one process, and the services that it needs.

Problem: actors need a loop, time, randomness, configuration, and an interface to other systems; tests need
all of them under control.

Design: an `ActorSystem` owns one tree (`/user`, `/system`), runs on one event loop and takes everything from
outside: the loop's own time, an `rng`, a `Config`, a `RemoteProvider`. Nothing is global: many systems can
live in one process, as in the simulator. Create it where its loop runs.

Invariants: those of its parts (`check` verifies all), and:
1. A uid is never used twice in one incarnation.
2. After `wait_terminated` there are no cells, open asks or carriers left, unless actors were stuck.

Called by programs, by the remote layer (`provider` states the rules) and by the simulator.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from contextvars import copy_context
from typing import Final, TypeVar

from drivetrain.actor import inbound, lifecycle
from drivetrain.actor.absent_references import MissingRef, RemoteRef
from drivetrain.actor.actor_errors import ContextError, InvalidPathError, StuckActorsError, SystemStoppedError
from drivetrain.actor.ask import Asks
from drivetrain.actor.blocking_pool import BlockingPool
from drivetrain.actor.carrier import Carriers
from drivetrain.actor.cell import Cell, LocalRef
from drivetrain.actor.codec import MessageCodec
from drivetrain.actor.dead_letters import DeadLetters
from drivetrain.actor.dispatch import Dispatcher
from drivetrain.actor.guardian import SYSTEM, USER, Guardian, RootGuardian
from drivetrain.actor.invariants import check_cells
from drivetrain.actor.kernel_messages import Terminated
from drivetrain.actor.mailbox import SpareQueues
from drivetrain.actor.message import Message
from drivetrain.actor.path import ASKS, ActorPath, Address, is_system_name
from drivetrain.actor.provider import Envelope, RemoteProvider, UndeliverableReason
from drivetrain.actor.purgatory import Reaper, ThreadSafePurgatory, loop_clock
from drivetrain.actor.receiver import Factory
from drivetrain.actor.reference import ActorRef
from drivetrain.actor.remote_watches import RemoteWatches
from drivetrain.actor.termination_watcher import wait_stopped
from drivetrain.actor.tree import cells_below, find_cell, lookup, start_child
from drivetrain.actor.turns import ActorCell
from drivetrain.actor.watch import system_terminated
from drivetrain.config import Config
from drivetrain.config.catalog import actor as keys
from drivetrain.core.liveness.supervision import SupervisionPolicy
from drivetrain.core.waiting.waiting_operations import DelayedOperation
from drivetrain.errors import InternalError

T = TypeVar("T")

_CARRIERS_END_S: Final = 1.0


class ActorSystem:
    """One system named `name` on the running event loop.

    `rng` decides about jitter and the incarnation; None means a generator seeded by the operating system.
    `supervision` handles failures of top-level actors. `blocking_threads` run blocking functions.
    Raises `InvalidPathError` for a name that cannot be part of an address.
    """

    def __init__(
        self,
        name: str,
        *,
        rng: random.Random | None = None,
        provider: RemoteProvider | None = None,
        config: Config | None = None,
        incarnation: int | None = None,
        supervision: SupervisionPolicy | None = None,
        blocking_threads: int = 8,
    ) -> None:
        if not is_system_name(name):
            raise InvalidPathError("not a name for an actor system", got=repr(name))
        self.name: Final = name
        self.loop: Final = asyncio.get_running_loop()
        self.rng: Final = rng if rng is not None else random.Random()
        self.config: Final = config if config is not None else Config()
        self.async_context: Final = copy_context()
        """Callbacks and tasks of the kernel run in this context, not in that of the code that caused them."""
        incarnation = incarnation if incarnation is not None else self.rng.randrange(1, 2**48)
        self.address = Address(name, None, None, incarnation)
        self.provider: RemoteProvider | None = None
        self.dispatcher: Final = Dispatcher(self.loop, self.async_context)
        self.carriers: Final = Carriers(self.loop, self.async_context)
        self.spare_queues: Final = SpareQueues()
        self.dead_letters: Final = DeadLetters()
        self.remote_watches: Final = RemoteWatches()
        self.codec: Final = MessageCodec(self.reference)
        self.failures = 0
        """How many failures of actors supervisors have decided."""
        self.purgatory: Final[ThreadSafePurgatory[DelayedOperation]] = ThreadSafePurgatory(
            now_ms=loop_clock(self.loop), purge_limit=self.config[keys.PURGE_LIMIT]
        )
        """Holds asks and everything else that waits for a condition with a timeout."""
        self._reaper: Final = Reaper(
            self.purgatory,
            interval_ms=self.config[keys.REAPER_INTERVAL],
            loop=self.loop,
            context=self.async_context,
        )
        self._reaper.start()
        self.asks: Final = Asks(self, self.purgatory)
        self._blocking: Final = BlockingPool(self.loop, blocking_threads)
        self.mailbox_capacity: Final = self.config[keys.MAILBOX_CAPACITY]
        self._last_uid = 0
        self._failure: BaseException | None = None
        self._terminated: Final[asyncio.Future[None]] = self.loop.create_future()
        self._closing: asyncio.Task[None] | None = None
        self.root: Final = ActorCell(self, None, "", self.next_uid(), RootGuardian, self.mailbox_capacity)
        self.root.schedule()  # before its children, so that it watches them before they can stop
        policy = supervision if supervision is not None else SupervisionPolicy()
        self._user: Final = start_child(self.root, lambda: Guardian(policy), USER, None)
        self._kernel: Final = start_child(self.root, lambda: Guardian(policy), SYSTEM, None)
        if provider is not None:
            self.attach_provider(provider)

    def __repr__(self) -> str:
        return f"<ActorSystem {self.address}>"

    # ---- actors

    def spawn(
        self, factory: Factory, name: str | None = None, *, mailbox_capacity: int | None = None
    ) -> ActorRef:
        """Start a top-level actor, below `/user`; see `Context.spawn`."""
        return start_child(self._user, factory, name, mailbox_capacity).ref

    def spawn_kernel(self, factory: Factory, name: str | None = None) -> ActorRef:
        """Start an actor that serves the system, below `/system`: it stops after all of the user's."""
        return start_child(self._kernel, factory, name, None).ref

    def stop(self, actor: ActorRef) -> None:
        """Stop a local actor, whoever its parent is; a waiting handler is cancelled."""
        if not isinstance(actor, LocalRef) or actor.cell.system is not self or actor.cell.is_guardian:
            raise ContextError(
                "only actors of this system can be stopped like this",
                got=str(actor.path),
                remedy="send a PoisonPill to others; end the system with terminate()",
            )
        lifecycle.stop(actor.cell, interrupt=True)

    async def wait_stopped(self, actor: ActorRef, *, timeout_ms: int | None = None) -> Terminated:
        """Wait, outside of any actor, until `actor` has terminated, here or elsewhere; returns how.

        `timeout_ms` None means for ever. Raises `StillRunningError` after the timeout, or
        `SystemStoppedError` when this system ends first.
        """
        return await wait_stopped(self, actor, timeout_ms)

    async def ask(
        self,
        asked: ActorRef,
        message: Message,
        reply: type[Message] | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> Message:
        """Ask from outside of any actor; see `ActorRef.ask`."""
        if self._terminated.done():
            raise SystemStoppedError("the actor system has terminated", where=self.name)
        if timeout_ms is None:
            timeout_ms = self.config[keys.ASK_TIMEOUT]
        return await self.asks.ask(asked, message, reply, timeout_ms)

    def reference(self, path: ActorPath) -> ActorRef:
        """Return the reference that `path` means; a `MissingRef` for a local path without an actor."""
        if path.address != self.address:
            return RemoteRef(self, path)
        if path.names[:1] == (ASKS,):
            return self.asks.find(path.uid) or MissingRef(self, path)
        cell = find_cell(self.root, path)
        return MissingRef(self, path) if cell is None else cell.ref

    async def lookup(self, path: str, *, timeout_ms: int | None = None) -> ActorRef:
        """Find the actor at `path` now: "/user/name" here, or "drivetrain://system@host:port/user/name".

        `timeout_ms` None means `actor.lookup.timeout`, shorter than an ask's. Raises `InvalidPathError`,
        `ActorNotFoundError`, `LookupTimeoutError`, or `UnreachableError`.
        """
        return await lookup(self, self.root, path, timeout_ms)

    def run_blocking(self, function: Callable[[], T]) -> asyncio.Future[T]:
        """Run a blocking function in a thread; see `Context.blocking`."""
        return self._blocking.run(function)

    def tell_threadsafe(self, actor: ActorRef, message: Message, sender: ActorRef | None = None) -> None:
        """Send from a thread other than the loop's; errors of the sender are reported to the loop."""
        self.loop.call_soon_threadsafe(actor.tell, message, sender)

    # ---- the interface to other systems; `provider` states the rules

    def attach_provider(self, provider: RemoteProvider) -> None:
        """Connect the system to others: its address is final from now on."""
        if self.provider is not None:
            raise InternalError("a provider is attached already", where=str(self.address))
        self.provider = provider
        self.address = Address(self.name, provider.host, provider.port, self.address.incarnation)

    def deliver_outbound(self, envelope: Envelope) -> None:
        """Pass a message for another system to the provider."""
        if self.provider is None:
            self.undeliverable(envelope, UndeliverableReason.UNREACHABLE)
        else:
            self.provider.deliver(envelope)

    def deliver_inbound(self, envelope: Envelope) -> None:
        """Deliver a message from another system."""
        inbound.deliver(self, self.root, envelope)

    def undeliverable(self, envelope: Envelope, reason: UndeliverableReason) -> None:
        """Handle a message that could not be sent."""
        inbound.return_undelivered(self, envelope, reason)

    def address_terminated(self, address: Address) -> None:
        """Handle the death of another system."""
        system_terminated(self.remote_watches, address)
        self.asks.system_terminated(address)

    # ---- the end

    async def terminate(self, *, timeout_ms: int = 10_000) -> None:
        """Stop all actors, then everything else, and wait for it; may be called again.

        Raises `StuckActorsError` when actors have not stopped after `timeout_ms`: the system is closed
        anyway.
        """
        lifecycle.stop(self._user, interrupt=True)
        try:
            await asyncio.wait_for(asyncio.shield(self._terminated), timeout_ms / 1000)
        except TimeoutError:
            stuck = [str(cell.path) for cell in self.cells() if cell.work is not None]
            self.begin_to_close()
            await asyncio.shield(self._terminated)
            raise StuckActorsError(
                f"{len(stuck)} actors did not stop within {timeout_ms} ms",
                where=self.name,
                got=", ".join(stuck[:10]),
                remedy="a handler or hook waits and resists its cancellation",
            ) from None

    async def wait_terminated(self) -> None:
        """Wait until the system has terminated; raises the failure that ended it, if one did."""
        await asyncio.shield(self._terminated)
        if self._failure is not None:
            raise self._failure

    def join_blocking(self) -> None:
        """Wait in another thread, after termination, until the running blocking functions have finished."""
        self._blocking.join()

    @property
    def is_terminated(self) -> bool:
        """Whether the system has terminated."""
        return self._terminated.done()

    def fail(self, failure: BaseException) -> None:
        """Record a failure that escalated to the root; the first one counts."""
        if self._failure is None:
            self._failure = failure

    # ---- for the kernel's own modules

    def next_uid(self) -> int:
        """Return a number that was never used in this incarnation."""
        self._last_uid += 1
        return self._last_uid

    def begin_to_close(self) -> None:
        """Close the actors' services: there are no actors left, or they are stuck."""
        if self._closing is None:
            self._closing = self.loop.create_task(self._close(), name="actor-system-close")

    def cells(self) -> Iterator[Cell]:
        """Yield every cell, parents first."""
        return cells_below(self.root)

    def check(self) -> None:
        """Verify the invariants of every part; raises `InternalError` naming the first that is broken."""
        check_cells(self, list(self.cells()))
        self.asks.check()
        self.purgatory.check()
        if self.is_terminated and self.root.is_stopped and (self.asks.open or self.carriers.total):
            raise InternalError("system invariant 2: something outlived the system", where=self.name)

    async def _close(self) -> None:
        try:
            self.asks.close()
            if self.provider is not None:
                await self.provider.stop()
            self._reaper.stop()
            self._blocking.close()
            carriers = self.carriers.close()
            if carriers:
                await asyncio.wait(carriers, timeout=_CARRIERS_END_S)
        finally:
            if not self._terminated.done():
                self._terminated.set_result(None)

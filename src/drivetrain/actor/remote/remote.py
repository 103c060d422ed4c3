"""The remote layer of an actor system: the interface between the kernel and the network.

Problem: see `drivetrain.actor.provider`, whose rules this module follows.

Design: one `Remote` per system. It listens, keeps one `Association` per place, carries the watches to other
systems, and lets a `HeartbeatMonitor` detect dead ones. Systems that watch us are monitored like those that
we watch, so that a dead watcher is forgotten. Connections whose handshake is not done are unproven: few,
small and short-lived.

Invariants:
1. The rules of `drivetrain.actor.provider`.
2. An incarnation that was replaced or sent `Goodbye` is never contacted again; one that was declared dead can
   return with a new session.
3. Invalid input from a peer or a stranger is refused with a log line, of which there are few, and disturbs
   no other peer.
4. Nothing is kept of a system that has not proved its name, beyond its connection.

Called by the kernel, and by programs that connect a system with `attach_remote`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Callable
from contextvars import Context
from typing import TYPE_CHECKING, Final

from drivetrain.actor.actor_errors import InvalidPathError, MalformedMessageError, UnknownMessageError
from drivetrain.actor.kernel_messages import Failure, Terminated, Unwatch, Watch
from drivetrain.actor.path import SCHEME, Address
from drivetrain.actor.provider import Envelope, UndeliverableReason
from drivetrain.actor.remote.association import Association
from drivetrain.actor.remote.associations import Associations
from drivetrain.actor.remote.auth import NONCE_BYTES
from drivetrain.actor.remote.handshake import AcceptorHandshake, Agreement, DialerHandshake, LocalIdentity
from drivetrain.actor.remote.inbound_message import InboundMessage
from drivetrain.actor.remote.link import Link
from drivetrain.actor.remote.monitor import DeclareDead, HeartbeatMonitor
from drivetrain.actor.remote.peer_warnings import PeerWarnings
from drivetrain.actor.remote.pending_handshakes import Dial, PendingHandshakes
from drivetrain.actor.remote.remote_errors import AddressInUseError, HandshakeError, PortsInUseError
from drivetrain.actor.remote.remote_settings import RemoteSettings
from drivetrain.actor.remote.session import Session
from drivetrain.actor.remote.tcp import TcpTransport
from drivetrain.actor.remote.transport import Connection, ConnectionEvents, Listener, Transport
from drivetrain.actor.remote.watches import OpenWatches
from drivetrain.actor.remote.wire import Item
from drivetrain.core.liveness.phi_detector import PhiAccrualDetector
from drivetrain.errors import DrivetrainError

if TYPE_CHECKING:
    from drivetrain.actor.reference import ActorRef
    from drivetrain.actor.system import ActorSystem

log = logging.getLogger(__name__)

Entropy = Callable[[int], bytes]

_FLUSH_POLL_S: Final = 0.005
_PRUNE_TICKS: Final = 100
REFUSED: Final = "refused"
"""The code of the `Failure` that answers a message refused by the guard."""


class Remote:
    """The remote layer of `system`; created by `attach_remote`."""

    def __init__(
        self, system: ActorSystem, settings: RemoteSettings, transport: Transport, entropy: Entropy
    ) -> None:
        self._transport: Final = transport
        self._entropy: Final = entropy
        self._places: Final = Associations(lambda place: Association(self, place))
        self._watches: Final = OpenWatches()
        self._watchers: Final[dict[Address, None]] = {}
        self._listener: Listener | None = None
        self._ticker: asyncio.TimerHandle | None = None
        self._ticks = 0
        self._keys: Final = settings.shared_keys
        self.system: Final = system
        self.settings: Final = settings
        self.loop: Final = system.loop
        self.context: Final[Context] = system.async_context
        self.is_stopping = False
        self.monitor: Final = HeartbeatMonitor(
            settings.heartbeat_interval_ms, settings.heartbeat_pause_ms, self._new_detector
        )
        self._unproven: Final = PendingHandshakes(
            self.loop, settings.max_handshakes, settings.connect_timeout_ms / 1000, self._admitted
        )
        self._dropped: Final = PeerWarnings(log, self.loop.time)

    # ---- RemoteProvider

    @property
    def host(self) -> str:
        """The host at which others reach this system."""
        return self.settings.host

    @property
    def port(self) -> int:
        """The port at which others reach this system."""
        if self.settings.port == 0 and self._listener is not None:
            return self._listener.port
        return self.settings.port

    def deliver(self, envelope: Envelope) -> None:
        """Send a message to another system; raises `MessageRefusedError`."""
        address = envelope.target.address
        if self.is_stopping:
            self.system.undeliverable(envelope, UndeliverableReason.STOPPED)
        elif (
            not address.is_remote_capable or self._is_here(address) or not self._places.has_room_for(address)
        ):
            self.system.undeliverable(envelope, UndeliverableReason.UNREACHABLE)
        else:
            tag, body = self.system.codec.serialize(envelope.message)
            association = self._places.find(address)
            if isinstance(envelope.message, Terminated | Watch | Unwatch):
                association.deliver_system(envelope, tag, body)
            else:
                association.deliver(envelope, tag, body)

    def watch(self, target: ActorRef, watcher: ActorRef) -> None:
        """Watch an actor of another system."""
        address = target.path.address
        is_over = (
            self.is_stopping
            or not address.is_remote_capable
            or self._is_here(address)
            or self._places.find(address).is_stale(address)
        )
        if is_over:
            # Later, because the kernel is just opening the watch.
            self.loop.call_soon(self.system.address_terminated, address, context=self.context)
            return
        self._watches.open(target, watcher)
        self.monitor.watch(address, self._now_ms())
        self.deliver(Envelope(target.path, Watch(watcher), watcher.path))

    def unwatch(self, target: ActorRef, watcher: ActorRef) -> None:
        """End a watch."""
        if self._watches.close(target, watcher):
            self.deliver(Envelope(target.path, Unwatch(watcher), watcher.path))
            self._forget_if_unwatched(target.path.address)

    async def stop(self) -> None:
        """Send what waits, send `Goodbye`, close everything."""
        if self.is_stopping:
            return
        self.is_stopping = True
        for association in self._places:
            association.prepare_to_stop()
        if self._ticker is not None:
            self._ticker.cancel()
        if self._listener is not None:
            await self._listener.wait_closed()
        self._unproven.close()
        end_s = self.loop.time() + self.settings.stop_timeout_ms / 1000
        while self.loop.time() < end_s and any(one.unsent_bytes for one in self._places):
            await asyncio.sleep(_FLUSH_POLL_S)
        for association in self._places:
            association.close()

    def connection_error(self, system: str, place: str) -> Exception | None:
        """Why the last attempt to connect to `system` at HOST:PORT failed; None when it did not."""
        address = Address.parse(f"{SCHEME}{system}@{place}")
        association = self._places.get(address)
        return None if association is None else association.trouble

    # ---- starting

    async def wait_started(self) -> None:
        """Listen, and become the system's provider.

        Raises `AddressInUseError`, `PortsInUseError`, `BindError`.
        """
        settings = self.settings
        self._listener = await self._wait_listening()
        self.system.attach_provider(self)
        self._ticker = self.loop.call_later(
            settings.heartbeat_interval_ms / 1000, self._tick, context=self.context
        )

    async def _wait_listening(self) -> Listener:
        settings, listen = self.settings, self._transport.wait_listening
        host = settings.bind_host or settings.host
        port = settings.port if settings.bind_port is None else settings.bind_port
        if port != 0 or settings.ports is None:
            return await listen(host, port, self._accept)
        # From a random one on: the port of a process that has just ended is not used again at once.
        ports, start = settings.ports, int.from_bytes(self._entropy(4), "big")
        for number in range(len(ports)):
            with contextlib.suppress(AddressInUseError):
                return await listen(host, ports[(start + number) % len(ports)], self._accept)
        raise PortsInUseError(host, ports)

    # ---- connections

    def _accept(self, connection: Connection) -> ConnectionEvents:
        handshake = AcceptorHandshake(self._self(), self._admits, self._entropy(NONCE_BYTES))
        return self._unproven.accept(connection, handshake)

    def _admits(self, dialer: Address) -> int:
        if self.is_stopping:
            raise HandshakeError("this system stops", reason="stopping")
        if self._is_here(dialer):
            raise HandshakeError(f"{dialer} claims the address of this system", reason="claim")
        association = self._places.get(dialer)
        # Nothing is proven yet: nothing is kept of what was claimed.
        return 0 if association is None else association.admits(dialer)

    def _dialed(self, link: Link, agreement: Agreement) -> None:
        self._unproven.know(link)
        self._admitted(link, agreement)

    def _admitted(self, link: Link, agreement: Agreement) -> None:
        self._places.find(agreement.peer).link_opened(link, agreement)

    async def wait_dialed(self, place: Address, session: int) -> Link:
        """Connect to a place, for a session; raises `ConnectError`, `HandshakeError`, TimeoutError."""
        handshake = DialerHandshake(self._self(), place, session, self._entropy(NONCE_BYTES))
        dial = Dial(self._transport, handshake, self._dialed)
        return await dial.wait_opened(
            place.host or "", place.port or 0, self.settings.connect_timeout_ms / 1000
        )

    def _self(self) -> LocalIdentity:
        return LocalIdentity(self.system.address, self._keys, self.settings.frame_limit_bytes)

    def _is_here(self, address: Address) -> bool:
        me = self.system.address
        return (address.host, address.port) == (me.host, me.port)

    # ---- incoming

    def take_in(self, session: Session, item: Item) -> None:
        """Deliver a message of a peer to the kernel; one that does not decode is dropped with a log line."""
        try:
            message = self.system.codec.deserialize(item[2], memoryview(item[3]))
            envelope = session.read(item, message)
        except (UnknownMessageError, MalformedMessageError, InvalidPathError) as error:
            self._dropped.warn(f"dropped a message from {session.peer}: {error.what}")
            self._answer_failure(session, item, Failure.of(error))
            return
        peer = session.peer
        if peer is None:
            return
        refusal = self._refusal(peer, envelope)
        if refusal is not None:
            self._dropped.warn(f"dropped a message from {peer}: {item[2]}: {refusal}")
            self._answer_failure(session, item, Failure(REFUSED, refusal))
            return
        match message:
            case Watch():
                self._watchers[peer] = None
                self.monitor.watch(peer, self._now_ms())
            case Terminated(actor):
                if self._watches.close(actor, self.system.reference(envelope.target)):
                    # The kernel's `unwatch` then sends nothing: the other side knows already.
                    self._forget_if_unwatched(peer)
        self.system.deliver_inbound(envelope)

    def _refusal(self, peer: Address, envelope: Envelope) -> str | None:
        """The reason to refuse a message; None to accept it."""
        match envelope.message:
            case Terminated(actor) | Watch(actor) | Unwatch(actor) if actor.path.address != peer:
                return f"it speaks for {actor.path}"
        guard = self.settings.guard
        if guard is None:
            return None
        return guard(InboundMessage(peer, envelope.target, envelope.sender, envelope.message))

    def refuse(self, envelope: Envelope, error: DrivetrainError) -> None:
        """Handle a message that turned out to be impossible to send."""
        log.warning("cannot send to %s: %s", envelope.target, error.what)
        sender = None if envelope.sender is None else self.system.reference(envelope.sender)
        if sender is not None and sender.expects_answer:
            sender.tell(Failure.of(error))
        else:
            self.system.undeliverable(envelope, UndeliverableReason.UNREACHABLE)

    def _answer_failure(self, session: Session, item: Item, failure: Failure) -> None:
        try:
            sender = None if item[1] is None else self.system.reference(session.read_sender(item[1]))
        except InvalidPathError:
            return
        if sender is not None and sender.expects_answer:
            sender.tell(failure)

    # ---- liveness

    def answered(self, address: Address, count: int) -> None:
        """A peer answered a heartbeat."""
        self.monitor.answered(address, count, self._now_ms())

    def acknowledged(self, address: Address) -> None:
        """A peer acknowledged what we had sent."""
        self.monitor.acknowledged(address, self._now_ms())

    def greeted(self, address: Address) -> None:
        """A peer has completed a handshake, which proves that it is alive."""
        self.monitor.greeted(address, self._now_ms())

    def is_watching_place(self, place: Address) -> bool:
        """Whether any incarnation of the system at `place` is monitored."""
        return any(place.matches(address) for address in self.monitor.addresses)

    def watch_again(self, peer: Address) -> None:
        """Send every open watch on the peer: its session is new, and it may have no watches."""
        for target, watcher in self._watches.of(peer):
            self.deliver(Envelope(target.path, Watch(watcher), watcher.path))

    def system_over(self, address: Address, why: str) -> None:
        """An incarnation has ended for good."""
        association = self._places.find(address)
        if not association.is_stale(address):
            association.retire(address)
            self._end_life(address, why, logging.INFO)

    def _end_life(self, address: Address, why: str, level: int) -> None:
        log.log(level, "%s is over: %s", address, why)
        self.monitor.forget(address)
        self._watches.end(address)
        self._watchers.pop(address, None)
        self._places.find(address).life_over(address)
        self.system.address_terminated(address)

    def _forget_if_unwatched(self, address: Address) -> None:
        if not self._watches.is_watching(address) and address not in self._watchers:
            self.monitor.forget(address)

    def _tick(self) -> None:
        settings = self.settings
        self._ticker = self.loop.call_later(
            settings.heartbeat_interval_ms / 1000, self._tick, context=self.context
        )
        for effect in self.monitor.tick(self._now_ms()):
            if isinstance(effect, DeclareDead):
                why = f"no heartbeat was answered for {effect.silent_ms} ms"
                self._end_life(effect.address, why, logging.WARNING)
            else:
                self._places.find(effect.address).send_heartbeat(effect.count)
        for association in self._places:
            association.send_again()
        self._ticks += 1
        if self._ticks % _PRUNE_TICKS == 0:
            self._places.prune()

    def _now_ms(self) -> int:
        return int(self.loop.time() * 1000)

    def _new_detector(self) -> PhiAccrualDetector:
        interval_ms = self.settings.heartbeat_interval_ms
        return PhiAccrualDetector(
            threshold=self.settings.threshold,
            heartbeat_interval_ms=interval_ms,
            acceptable_pause_ms=self.settings.heartbeat_pause_ms,
            # The usual floor is for intervals of seconds; with short ones it would only delay detection.
            min_std_ms=min(100, interval_ms),
        )


async def attach_remote(
    system: ActorSystem,
    settings: RemoteSettings | None = None,
    *,
    transport: Transport | None = None,
    entropy: Entropy = secrets.token_bytes,
) -> Remote:
    """Connect an actor system to others: listen, and give its references an address.

    Without `settings` it listens on a free port of the loopback address. `transport` is TCP by default;
    `entropy(n)` returns n random bytes for handshakes. Raises `AddressInUseError`, `BindError`.
    """
    settings = settings if settings is not None else RemoteSettings()
    transport = transport if transport is not None else TcpTransport(settings.tls)
    remote = Remote(system, settings, transport, entropy)
    await remote.wait_started()
    return remote

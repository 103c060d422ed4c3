"""The `Transport` of one simulated process.

Design: hosts are node names. Connecting takes one way there and one back, each with the faults in force.
As with a real kernel, a connection to a frozen process succeeds (its backlog takes it) and is accepted when
the process thaws; one to a closed port of a running machine is refused; one to a machine that is off or
cut off never completes, so callers need a timeout.

Invariants:
1. The invariants of `drivetrain.actor.remote.transport`.
2. A process that dies while it connects leaves no open end behind on its own side.

Called by code in a simulated node, through `Node.transport`.
"""

from __future__ import annotations

import asyncio
from contextvars import Context, copy_context
from typing import Final

from drivetrain.actor.remote.remote_errors import AddressInUseError, ConnectError
from drivetrain.actor.remote.transport import Connection, Opener
from drivetrain.simulator.network import SimulatedNetwork
from drivetrain.simulator.process_life import CURRENT_LIFE, Life
from drivetrain.simulator.simulated_connection import SimulatedConnection


class SimulatedListener:
    """An open port of a simulated process."""

    def __init__(
        self,
        network: SimulatedNetwork,
        host: str,
        port: int,
        life: Life | None,
        context: Context,
        accept: Opener,
    ) -> None:
        self._network: Final = network
        self.context: Final = context
        self.accept: Final = accept
        self.life: Final = life
        self.host: Final = host
        self.port: Final = port

    async def wait_closed(self) -> None:
        """Close the port."""
        if self._network.listeners.get((self.host, self.port)) is self:
            del self._network.listeners[self.host, self.port]


class SimulatedTransport:
    """Listens and connects for the node `host`, in the process that is the current `Life`."""

    def __init__(self, network: SimulatedNetwork, host: str) -> None:
        self._network: Final = network
        self._host: Final = host

    async def wait_listening(self, host: str, port: int, accept: Opener) -> SimulatedListener:
        """Open a port of this node; `host` must be the node's name. Port 0 chooses one."""
        network = self._network
        if host != self._host:
            raise ConnectError(
                f"a simulated node cannot bind to {host}",
                expected=self._host,
                remedy="bind to the node's own name",
            )
        if port == 0:
            port = network.free_port()
        if (host, port) in network.listeners:
            raise AddressInUseError(host, port)
        listener = SimulatedListener(network, host, port, CURRENT_LIFE.get(), copy_context(), accept)
        network.listeners[host, port] = listener
        network.record(f"{host} listens on port {port}")
        return listener

    async def wait_connected(self, host: str, port: int, opened: Opener) -> Connection:
        """Connect to a port of a node; see the module for which nodes answer."""
        attempt = _Attempt(self._network, self._host, host, port, opened)
        attempt.start()
        return await attempt.outcome


class _Attempt:
    """One attempt to connect, from the first signal to the two joined ends."""

    def __init__(self, network: SimulatedNetwork, source: str, host: str, port: int, opened: Opener) -> None:
        self._network: Final = network
        self._source: Final = source
        self._target: Final = host
        self._port: Final = port
        self._opened: Final = opened
        self._life: Final = CURRENT_LIFE.get()
        self._context: Final = copy_context()
        self._number: Final = network.next_connection_number()
        self.outcome: Final[asyncio.Future[Connection]] = network.loop.create_future()

    def start(self) -> None:
        """Send the first signal."""
        network = self._network
        network.record(f"{self._source} connects to {self._target}:{self._port} ({self._number})")
        # Machines answer for their processes, hence the empty contexts: a frozen process does not stop them.
        network.carry(self._source, self._target, Context(), self._reached_machine)

    def _reached_machine(self) -> None:
        network = self._network
        if not network.has_power(self._target):
            return
        listener = network.listeners.get((self._target, self._port))
        if listener is None:
            network.carry(self._target, self._source, self._context, self._refused)
            return
        end = SimulatedConnection(
            network,
            self._number,
            self._target,
            f"{self._source}:{40_000 + self._number}",
            listener.life,
            listener.context,
        )

        def accept() -> None:
            end.own(listener.accept(end))

        network.loop.call_soon(accept, context=listener.context)
        network.carry(self._target, self._source, Context(), lambda: self._answered(end))

    def _refused(self) -> None:
        if not self.outcome.done():
            self.outcome.set_exception(
                ConnectError(
                    f"{self._target}:{self._port} refused the connection",
                    remedy="check that the process runs and listens there",
                )
            )

    def _answered(self, far: SimulatedConnection) -> None:
        is_dead = self._life is not None and not self._life.is_alive
        near = SimulatedConnection(
            self._network,
            self._number,
            self._source,
            f"{self._target}:{self._port}",
            self._life,
            self._context,
        )
        near.join(far)
        if is_dead or self.outcome.cancelled():
            near.abandon()
            return

        def opened() -> None:
            if self.outcome.cancelled():
                near.abort()
                return
            near.own(self._opened(near))
            self.outcome.set_result(near)

        self._network.loop.call_soon(opened, context=self._context)

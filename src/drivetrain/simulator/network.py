"""The simulated network: which node reaches which, how long frames take, and which of them get lost.

Problem: the faults that break protocols (loss, delay, duplicates, reordering, partitions, peers that vanish
silently) happen rarely on a real network and never on demand.

Design: everything between two nodes passes `carry`, which draws its fate from the `NetworkFaults` in force
between them. A blocked direction drops a frame or holds it until it heals, by a seeded choice per frame,
because both happen on real networks: routers drop, TCP resends. An arrival runs as a callback of the
receiving process, so a frozen process handles it when it thaws and a dead one never does.

Invariants:
1. Nothing passes a direction while it is blocked.
2. Signals that make or end connections are delayed, never lost or duplicated, unless the direction is
   blocked: TCP repeats them.
3. Same seed, same calls: same fates. Draws depend on the order of sends only.

Called by `SimulatedTransport` and its connections, and by the scenario (`block`, `partition`, `isolate`,
`heal`, `set_faults`). Source: the fault models of Jepsen, FoundationDB and TigerBeetle.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from contextvars import Context
from random import Random
from typing import Final, Protocol

from drivetrain.actor.remote.transport import Opener
from drivetrain.simulator.faults import NetworkFaults
from drivetrain.simulator.loop import SimulatedLoop
from drivetrain.simulator.process_life import Life
from drivetrain.simulator.simulation_errors import SimulationError
from drivetrain.simulator.trace import Trace

Describe = Callable[[bytes], str]

_FIRST_EPHEMERAL_PORT: Final = 49_152
_HELD_ODDS: Final = 0.5


def describe_size(frame: bytes) -> str:
    """The size and checksum of a frame, for the trace."""
    return f"{len(frame)} B crc {zlib.crc32(frame):08x}"


class OpenPort(Protocol):
    """The part of a listening port that the network uses."""

    @property
    def life(self) -> Life | None:
        """The process; None: one that is not simulated."""

    @property
    def context(self) -> Context:
        """The context in which it accepts connections."""

    @property
    def accept(self) -> Opener:
        """The function to call with the process's end of a new connection."""


class OpenEnd(Protocol):
    """The part of a connection's end that the network uses."""

    is_open: bool

    @property
    def life(self) -> Life | None:
        """The owning process; None: one that is not simulated."""

    def end_with_process(self) -> None:
        """Close it, because its process has died."""


class SimulatedNetwork:
    """Nodes by name, the faults between them, and the ports that are open.

    `describe` turns a frame into a short text for the trace.
    """

    def __init__(
        self, loop: SimulatedLoop, random: Random, trace: Trace, describe: Describe = describe_size
    ) -> None:
        self.loop: Final = loop
        self.random: Final = random
        self.trace: Final = trace
        self.describe = describe
        self.listeners: Final[dict[tuple[str, int], OpenPort]] = {}
        self.connections: Final[list[OpenEnd]] = []
        self._hosts: Final[dict[str, bool]] = {}
        self._faults = NetworkFaults()
        self._link_faults: Final[dict[tuple[str, str], NetworkFaults]] = {}
        self._blocked: Final[dict[tuple[str, str], list[Callable[[], None]]]] = {}
        self._next_port = _FIRST_EPHEMERAL_PORT
        self._connection_count = 0

    # ---- for the scenario

    def set_faults(self, faults: NetworkFaults, *, between: tuple[str, str] | None = None) -> None:
        """Apply these faults from now on: everywhere, or only between two nodes (both ways).

        Setting them everywhere removes those set between two nodes.
        """
        if between is None:
            self._faults = faults
            self._link_faults.clear()
            self.record(f"faults {faults}")
            return
        one, other = self._known(between[0]), self._known(between[1])
        self._link_faults[one, other] = self._link_faults[other, one] = faults
        self.record(f"faults between {one} and {other}: {faults}")

    def block(self, source: str, target: str) -> None:
        """Let nothing pass from one node to another; the opposite direction stays as it is."""
        if (self._known(source), self._known(target)) not in self._blocked:
            self._blocked[source, target] = []
            self.record(f"block {source} -> {target}")

    def partition(self, *groups: Iterable[str]) -> None:
        """Cut both ways between every two nodes of different groups."""
        sides = [list(group) for group in groups]
        for at, side in enumerate(sides):
            others = [name for other in sides[:at] + sides[at + 1 :] for name in other]
            for source in side:
                for target in others:
                    self.block(source, target)

    def isolate(self, name: str) -> None:
        """Cut one node off from all others."""
        self.partition([name], [other for other in self._hosts if other != name])

    def heal(self, source: str | None = None, target: str | None = None) -> None:
        """Open the direction again, or all; held frames arrive in the order in which they were sent."""
        for way in list(self._blocked):
            if source in (None, way[0]) and target in (None, way[1]):
                held = self._blocked.pop(way)
                self.record(f"heal {way[0]} -> {way[1]}, {len(held)} held")
                for send in held:
                    send()

    def is_blocked(self, source: str, target: str) -> bool:
        """Whether nothing passes from `source` to `target` now."""
        return (source, target) in self._blocked

    # ---- for nodes

    def add_host(self, name: str) -> None:
        """Add a node, with power."""
        self._hosts[name] = True

    def set_power(self, name: str, is_on: bool) -> None:
        """Set whether the node's machine answers at all; without power, it does not even refuse."""
        self._hosts[self._known(name)] = is_on

    def has_power(self, name: str) -> bool:
        """Whether the node exists and its machine is on."""
        return self._hosts.get(name, False)

    def end_life(self, life: Life) -> None:
        """Close the ports and connections of a process that has died, as its operating system would."""
        for place in [place for place, listener in self.listeners.items() if listener.life is life]:
            del self.listeners[place]
        for connection in self._connections_of(life):
            connection.end_with_process()

    # ---- for transports and connections

    def carry(
        self,
        source: str,
        target: str,
        context: Context | None,
        arrive: Callable[[], None],
        *,
        after_s: float = 0.0,
    ) -> float | None:
        """Carry a signal that makes or ends a connection; returns its arrival time, None when it is lost.

        It arrives later than the virtual time `after_s`, so that it does not overtake earlier signals.
        """
        if self.is_blocked(source, target):
            return None
        arrival = max(self.loop.time() + self.faults(source, target).delay_s(self.random), after_s + 1e-6)
        self.loop.call_at(arrival, arrive, context=context)
        return arrival

    def hold(self, source: str, target: str, send: Callable[[], None]) -> bool:
        """Decide the fate of a frame in a blocked direction: held until it heals (returns True), or lost."""
        if self.random.random() >= _HELD_ODDS:
            return False
        self._blocked[source, target].append(send)
        return True

    def faults(self, source: str, target: str) -> NetworkFaults:
        """The faults in force from `source` to `target`."""
        return self._link_faults.get((source, target), self._faults)

    def free_port(self) -> int:
        """A port that was never used in this simulation."""
        self._next_port += 1
        return self._next_port - 1

    def add_connection(self, connection: OpenEnd) -> None:
        """Keep track of an open end."""
        if len(self.connections) > 64 and len(self.connections) > 2 * sum(
            c.is_open for c in self.connections
        ):
            self.connections[:] = [kept for kept in self.connections if kept.is_open]
        self.connections.append(connection)

    def next_connection_number(self) -> int:
        """The number of the next connection, in the order of requests, for the trace."""
        self._connection_count += 1
        return self._connection_count

    def record(self, what: str) -> None:
        """Write a line of the network to the trace."""
        self.trace.write(self.loop.time(), "network", what)

    def _connections_of(self, life: Life) -> Iterator[OpenEnd]:
        return (
            connection
            for connection in list(self.connections)
            if connection.life is life and connection.is_open
        )

    def _known(self, name: str) -> str:
        if name not in self._hosts:
            raise SimulationError("no such node", got=repr(name), expected=f"one of {', '.join(self._hosts)}")
        return name

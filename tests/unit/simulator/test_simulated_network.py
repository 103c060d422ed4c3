"""The simulated network: what arrives, in which order, and what peers learn of each other's end."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

import pytest

from drivetrain.actor.remote.remote_errors import AddressInUseError, ConnectError
from drivetrain.actor.remote.transport import Connection, Frame
from drivetrain.simulator import NetworkFaults, Node, Simulation

CALM = NetworkFaults(stall=0.0)


class Recorder:
    """Owns a connection and keeps its events; `echo` answers every frame."""

    def __init__(self, connection: Connection, *, echo: bool = False) -> None:
        self.connection = connection
        self.frames: list[bytes] = []
        self.events: list[str] = []
        self.error: Exception | None = None
        self._echo = echo

    def frame_received(self, frame: Frame) -> None:
        assert "lost" not in self.events
        self.frames.append(bytes(frame))
        if self._echo:
            self.connection.send(bytes(frame))

    def connection_lost(self, error: Exception | None) -> None:
        self.events.append("lost")
        self.error = error

    def writing_paused(self) -> None:
        self.events.append("paused")

    def writing_resumed(self) -> None:
        self.events.append("resumed")


class Pair:
    """A server node "b" that accepts on port 7, and a client node "a"."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.accepted: list[Recorder] = []
        self.opened: list[Recorder] = []
        self.a, self.b = simulation.nodes("a", "b")

    def _keep(self, kept: list[Recorder]) -> Callable[[Connection], Recorder]:
        def keep(connection: Connection) -> Recorder:
            kept.append(Recorder(connection))
            return kept[-1]

        return keep

    async def serve(self, node: Node) -> None:
        await node.transport.wait_listening("b", 7, self._keep(self.accepted))

    async def dial(self, node: Node) -> None:
        await node.transport.wait_connected("b", 7, self._keep(self.opened))

    async def connect(self) -> tuple[Recorder, Recorder]:
        """Start both nodes; the client's and the server's end."""
        if not self.b.is_alive:
            await self.b.start(self.serve)
        await (self.a.run(lambda: self.dial(self.a)) if self.a.is_alive else self.a.start(self.dial))
        await self.simulation.wait_until(lambda: len(self.accepted) == len(self.opened), "accepted")
        return self.opened[-1], self.accepted[-1]


def run(seed: int, scenario: Callable[[Pair], object], faults: NetworkFaults = CALM) -> None:
    async def main(simulation: Simulation) -> None:
        simulation.network.set_faults(faults)
        await scenario(Pair(simulation))  # type: ignore[misc]

    Simulation(seed, until_s=600).run(main)


def numbered(count: int) -> list[bytes]:
    return [str(number).encode() for number in range(count)]


def test_frames_arrive_once_and_in_order_on_a_calm_network() -> None:
    async def scenario(pair: Pair) -> None:
        client, server = await pair.connect()
        for frame in numbered(200):
            client.connection.send(frame)
        await pair.simulation.sleep(1)
        assert server.frames == numbered(200)
        assert client.connection.buffered_bytes == 0

    for seed in range(5):
        run(seed, scenario, NetworkFaults(stall=0.2))


def test_frames_are_lost_doubled_and_overtaken_as_often_as_told() -> None:
    async def scenario(pair: Pair) -> None:
        client, server = await pair.connect()
        for frame in numbered(2000):
            client.connection.send(frame)
        await pair.simulation.sleep(10)
        counts = Counter(server.frames)
        assert 100 < 2000 - len(counts) < 300
        assert 100 < sum(count == 2 for count in counts.values()) < 300
        assert max(counts.values()) == 2
        assert server.frames != sorted(server.frames, key=int)

    run(1, scenario, NetworkFaults(loss=0.1, duplication=0.1, reordering=0.2))


def test_nothing_passes_a_partition_and_part_of_it_arrives_after_healing() -> None:
    async def scenario(pair: Pair) -> None:
        client, server = await pair.connect()
        network = pair.simulation.network
        network.partition(["a"], ["b"])
        for frame in numbered(100):
            client.connection.send(frame)
            server.connection.send(frame)
        await pair.simulation.sleep(60)
        assert not server.frames
        assert not client.frames
        network.heal()
        await pair.simulation.sleep(1)
        assert 20 < len(server.frames) < 80
        assert server.frames == sorted(server.frames, key=int)
        assert client.frames

    run(1, scenario)


def test_one_direction_can_be_blocked_alone() -> None:
    async def scenario(pair: Pair) -> None:
        client, server = await pair.connect()
        pair.simulation.network.block("a", "b")
        client.connection.send(b"x")
        server.connection.send(b"y")
        await pair.simulation.sleep(1)
        assert (client.frames, server.frames) == ([b"y"], [])

    run(1, scenario)


def test_a_crash_resets_the_peers_connection_and_closes_the_port() -> None:
    async def scenario(pair: Pair) -> None:
        client, _ = await pair.connect()
        pair.b.crash()
        await pair.simulation.sleep(1)
        assert client.events == ["lost"]
        assert isinstance(client.error, ConnectionResetError)
        with pytest.raises(ConnectError):
            await pair.a.run(lambda: pair.dial(pair.a))

    run(1, scenario)


def test_a_power_cut_is_silent_until_the_machine_is_back() -> None:
    async def scenario(pair: Pair) -> None:
        client, _ = await pair.connect()
        pair.b.lose_power()
        client.connection.send(b"x")
        await pair.simulation.sleep(30)
        assert client.events == []
        with pytest.raises(TimeoutError):
            await pair.a.run(lambda: asyncio.wait_for(pair.dial(pair.a), 5))
        await pair.b.start(pair.serve)
        client.connection.send(b"y")
        await pair.simulation.sleep(1)
        assert client.events == ["lost"]

    run(1, scenario)


def test_a_frozen_process_gets_its_frames_when_it_thaws_and_pushes_back_meanwhile() -> None:
    async def scenario(pair: Pair) -> None:
        client, server = await pair.connect()
        server.connection.allow_frames(1 << 20)
        pair.b.freeze()
        frames = [bytes([number]) * 300_000 for number in range(5)]
        for frame in frames:
            client.connection.send(frame)
        await pair.simulation.sleep(20)
        assert server.frames == []
        assert client.events == ["paused"]
        pair.b.thaw()
        await pair.simulation.sleep(1)
        assert server.frames == frames
        assert client.events == ["paused", "resumed"]

    run(1, scenario)


def test_a_frame_larger_than_allowed_ends_the_connection() -> None:
    async def scenario(pair: Pair) -> None:
        client, server = await pair.connect()
        client.connection.send(bytes(5000))
        await pair.simulation.sleep(1)
        assert server.frames == []
        assert (client.events, server.events) == (["lost"], ["lost"])

    run(1, scenario)


def test_closing_lets_what_was_sent_arrive_first_and_tells_both_ends_once() -> None:
    async def scenario(pair: Pair) -> None:
        client, server = await pair.connect()
        for frame in numbered(20):
            client.connection.send(frame)
        client.connection.close()
        client.connection.send(b"too late")
        await pair.simulation.sleep(1)
        assert server.frames == numbered(20)
        assert (client.events, server.events) == (["lost"], ["lost"])
        assert (client.error, server.error) == (None, None)

    run(1, scenario)


def test_a_port_has_one_listener() -> None:
    async def scenario(pair: Pair) -> None:
        await pair.connect()
        with pytest.raises(AddressInUseError):
            await pair.b.run(lambda: pair.serve(pair.b))

    run(1, scenario)


def test_an_attempt_that_was_given_up_leaves_no_open_connection() -> None:
    async def scenario(pair: Pair) -> None:
        await pair.b.start(pair.serve)

        async def give_up(node: Node) -> None:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(pair.dial(node), 0.0001)

        await pair.a.start(give_up)
        await pair.simulation.sleep(1)
        assert not pair.opened
        assert [server.events for server in pair.accepted] == [["lost"]] * len(pair.accepted)

    run(1, scenario, NetworkFaults(min_delay_ms=1.0, stall=0.0))


def test_frames_of_a_dead_process_are_not_sent() -> None:
    async def scenario(pair: Pair) -> None:
        client, server = await pair.connect()
        pair.a.crash()
        client.connection.send(b"from beyond")
        await pair.simulation.sleep(1)
        assert server.frames == []
        assert server.events == ["lost"]

    run(1, scenario)

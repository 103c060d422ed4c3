"""A scenario in which everything that the simulator offers happens; the seed alone decides its trace."""

from __future__ import annotations

import logging

from drivetrain.actor.remote.transport import Connection, Frame
from drivetrain.simulator import NetworkFaults, Node, ProcessEndedError, Simulation

log = logging.getLogger("drivetrain.busy")


class Echo:
    def __init__(self, connection: Connection, node: Node) -> None:
        self._connection = connection
        self._node = node

    def frame_received(self, frame: Frame) -> None:
        log.info("%s got %d bytes", self._node.name, len(frame))
        if len(frame) < 40:
            self._connection.send(bytes(frame) + self._node.entropy(1))

    def connection_lost(self, error: Exception | None) -> None:
        log.info("%s lost a connection: %s", self._node.name, error)

    def writing_paused(self) -> None: ...

    def writing_resumed(self) -> None: ...


async def serve(node: Node) -> None:
    await node.transport.wait_listening(node.name, 1, lambda connection: Echo(connection, node))
    await node.disk.append("log", b"line\n")
    await node.disk.sync("log")
    for _ in range(5):
        await node.disk.append("log", b"more\n")


async def busy(simulation: Simulation) -> None:
    simulation.network.set_faults(NetworkFaults.harsh())
    nodes = simulation.nodes("a", "b", "c")
    for node in nodes:
        await node.start(serve)
    # A set of names, on purpose: its order differs between processes, and `sorted` is what makes it right.
    for source in sorted({node.name for node in nodes}):
        for target in nodes:
            if target.name != source:
                node = simulation.node(source)
                opened = await node.run(
                    lambda node=node, target=target: node.transport.wait_connected(
                        target.name, 1, lambda connection, node=node: Echo(connection, node)
                    )
                )
                opened.send(b"hello")
    for _ in range(10):
        await simulation.sleep(0.1)
        match simulation.random.randrange(4):
            case 0:
                simulation.network.isolate("a")
            case 1:
                simulation.network.heal()
            case 2:
                node = simulation.random.choice(nodes)
                node.crash()
                try:
                    await node.start(serve)
                except ProcessEndedError:
                    simulation.record("ended")
            case 3:
                node = simulation.random.choice(nodes)
                node.freeze()
                await simulation.sleep(0.05)
                node.thaw()

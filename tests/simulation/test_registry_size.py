"""What was deleted leaves no trace for ever, and a registry of any size is taken over."""

from __future__ import annotations

import dataclasses

from master_cluster import Cluster

from drivetrain.cluster.master.master_settings import MasterSettings
from drivetrain.cluster.messages.applications import ApplicationSpec, Kill, Submit
from drivetrain.core.cluster.map_log import decode, restore
from drivetrain.core.cluster.replicated_map import ReplicatedMap
from drivetrain.simulator import NetworkFaults, Node, Simulation, simulate

KIB = 1024


class SmallRegistry(Cluster):
    """Masters that drop tombstones soon, and send little at a time."""

    def settings(self, node: Node) -> MasterSettings:
        return dataclasses.replace(super().settings(node), most_tombstones=10)


def map_of(node: Node) -> ReplicatedMap:
    """What a master has on its disk."""
    records, _ = decode(node.disk.content("registry.log") or b"", node.name)
    return restore(records, node.name)


@simulate(seeds=2)
async def test_tombstones_are_dropped_within_a_term_and_nothing_deleted_comes_back(
    simulation: Simulation,
) -> None:
    cluster = SmallRegistry(simulation, 3, kept_applications=2)
    await cluster.start()
    kept = await cluster.submit("kept")
    away = next(node for node in cluster.masters if node is not cluster.leader())
    term = cluster.term()
    for number in range(45):
        if number == 5:
            simulation.random.choice([away.crash, away.lose_power])()  # with some that are deleted later
        await cluster.ask(Kill(await cluster.submit(f"a{number}")))
    await simulation.sleep(2)
    here = [node for node in cluster.masters if node is not away]
    leader = cluster.leader()
    assert leader is not None
    assert cluster.term() == term
    sizes = [len(map_of(node)) for node in here]
    assert max(sizes) < 20, sizes  # of 46 applications
    await cluster.start_master(away)
    await cluster.until(lambda: map_of(away).values() == map_of(leader).values(), "it has caught up")
    assert len(map_of(away)) < 20
    # The next leader may be the one that was away.
    leader.crash()
    await cluster.until(lambda: cluster.leader() not in (None, leader), "another leader")
    assert [line.app_id for line in await cluster.lines()] == ["a44-46", "a43-45", kept]
    await cluster.start_master(leader)
    await cluster.until(lambda: len({map_of(node).summary() for node in cluster.masters}) == 1, "all agree")
    cluster.check()


@simulate(seeds=2, until_s=900)
async def test_a_registry_of_many_messages_is_taken_over_under_loss(simulation: Simulation) -> None:
    cluster = SmallRegistry(simulation, 3, kept_applications=100)
    cluster.frame_limit_bytes = 64 * KIB
    await cluster.start()
    ids = []
    for number in range(40):
        spec = ApplicationSpec(f"a{number}", "", "app.py", settings={"text": "x" * 6 * KIB})
        ids.append((await cluster.ask(Submit(f"s{number}", spec))).app_id)  # type: ignore[attr-defined]
    simulation.network.set_faults(NetworkFaults(loss=0.05))
    for _ in range(3):
        leader = cluster.leader() or simulation.random.choice(cluster.masters)
        leader.crash()
        await cluster.until(lambda gone=leader: cluster.leader() not in (None, gone), "another leader")  # type: ignore[misc]
        await cluster.submit(f"b{cluster.term()}")
        await cluster.start_master(leader)
        await simulation.sleep(2)
    simulation.network.set_faults(NetworkFaults())
    found = {line.app_id for line in await cluster.lines()}
    assert set(ids) <= found
    await cluster.until(lambda: len({map_of(node).summary() for node in cluster.masters}) == 1, "all agree")

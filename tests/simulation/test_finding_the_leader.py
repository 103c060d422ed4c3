"""Clients that look for the leader: the right one, or an error that says why there is none."""

from __future__ import annotations

import pytest
from worker_sim import PORT, SECRET, World

from drivetrain.actor import ActorSystem
from drivetrain.actor.remote import RemoteSettings, attach_remote
from drivetrain.cluster.access.keyring import Keyring
from drivetrain.cluster.access.permissions import guard_of
from drivetrain.cluster.leader import NoLeaderError, NoMasterError, SecretRefusedError, find_leader
from drivetrain.cluster.messages.leadership import Leader
from drivetrain.simulator import NetworkFaults, Simulation, simulate

MASTERS = tuple(f"{name}:{PORT}" for name in ("m1", "m2", "m3"))


async def look(world: World, timeout_ms: int = 10_000, secret: str = SECRET) -> Leader:
    """What a client on a node of its own finds."""
    node = world.simulation.node("client")

    async def main(_: object) -> Leader:
        system = ActorSystem("client", rng=node.random)
        settings = RemoteSettings(
            host=node.name, port=PORT, keys=Keyring("client", lambda: (secret,)), guard=guard_of("client")
        )
        await attach_remote(system, settings, transport=node.transport, entropy=node.entropy)
        try:
            return await find_leader(system, MASTERS, timeout_ms)
        finally:
            await system.terminate()

    return await node.start(main)


@simulate(seeds=15)
async def test_the_leader_of_the_highest_term_is_found_on_a_bad_network(simulation: Simulation) -> None:
    world = World(simulation)
    simulation.network.set_faults(NetworkFaults.harsh())
    await world.start("m1")
    world.elect("m2", told=("m3",))  # the first one does not know it yet, and still says that it leads
    leader = await look(world, 60_000)
    assert leader.address in ("m1:7", "m2:7")
    if leader.address == "m1:7":  # nobody else's answer came in time
        assert leader.term == 1
    assert leader.master == world.references[str(leader.address).partition(":")[0]]


@simulate(seeds=10)
async def test_with_all_answers_at_hand_the_highest_term_counts(simulation: Simulation) -> None:
    world = World(simulation)
    await world.start("m1")
    world.elect("m2", told=("m3",))
    leader = await look(world)
    assert (leader.term, leader.address) == (2, "m2:7")


@simulate(seeds=10)
async def test_a_leader_that_is_named_but_dead_is_waited_for_until_another_leads(
    simulation: Simulation,
) -> None:
    world = World(simulation)
    await world.start("m1")
    world.masters[0].crash()
    simulation.loop.call_later(3.0, world.elect, "m3")
    leader = await look(world)
    assert (leader.term, leader.address) == (2, "m3:7")


@simulate(seeds=10)
async def test_without_a_leader_the_error_says_how_many_answer(simulation: Simulation) -> None:
    world = World(simulation)
    await world.start("m1")
    for name in world.belief:
        world.belief[name] = (1, "")
    world.masters[2].crash()
    began_ms = simulation.now_ms
    with pytest.raises(NoLeaderError) as raised:
        await look(world, 5_000)
    assert simulation.now_ms - began_ms < 8_000
    error = raised.value
    assert (error.code, error.exit_code) == ("no-quorum", 4)
    assert (error.expected, error.got) == ("2 of 3 masters", "2 answer; silent: m3:7")
    assert error.where == "m1:7, m2:7, m3:7"


@simulate(seeds=10)
async def test_without_any_master_the_error_names_all_and_the_remedy(simulation: Simulation) -> None:
    world = World(simulation)
    await world.start("m1")
    for master in world.masters:
        master.crash()
    with pytest.raises(NoMasterError) as raised:
        await look(world, 5_000)
    error = raised.value
    assert error.where == "m1:7, m2:7, m3:7"
    assert "cluster.masters" in str(error.remedy)
    assert error.code == "masters-unreachable"


@simulate(seeds=10)
async def test_another_secret_is_told_at_once(simulation: Simulation) -> None:
    world = World(simulation)
    await world.start("m1")
    began_ms = simulation.now_ms
    with pytest.raises(SecretRefusedError) as raised:
        await look(world, 60_000, secret=SECRET[::-1])
    assert simulation.now_ms - began_ms < 10_000
    assert "DRIVETRAIN_SECRET" in str(raised.value)
    assert SECRET[::-1] not in str(raised.value)

"""Masters under partitions, loss, crashes and power cuts: one leader, nothing acknowledged is lost."""

from __future__ import annotations

from typing import Any

from master_scale import scale
from master_world import LEASE_MS, World

from drivetrain.simulator import NetworkFaults, Node, Simulation, simulate

ROUNDS = 5


async def torment(  # noqa: C901 - a table of bad things
    world: World, workers: list[Node]
) -> None:
    """Do something bad to the network, a master, a worker or an application master."""
    simulation = world.simulation
    random, network = simulation.random, simulation.network
    node = random.choice(world.masters)
    leader = world.leader()
    match random.randrange(13):
        case 0:
            network.set_faults(
                random.choice([NetworkFaults(), NetworkFaults.harsh(), NetworkFaults(loss=0.2)])
            )
        case 1:
            network.isolate((leader or node).name)
        case 2:
            names = [each.name for each in world.masters]
            random.shuffle(names)
            cut = random.randrange(1, len(names))
            network.partition(names[:cut], names[cut:])
        case 3:
            network.block(node.name, random.choice([n for n in world.masters if n is not node]).name)
        case 4 | 5:
            network.heal()
        case 6 | 7:
            victim = leader or node
            if victim.is_alive:
                random.choice([victim.crash, victim.lose_power])()
        case 8:
            dead = [each for each in world.masters if not each.is_alive]
            for each in dead:
                await world.start_master(each)
        case 9:
            victim = leader or node
            if victim.is_alive:
                victim.freeze()
                await simulation.sleep(random.choice([0.2, LEASE_MS / 1000 * 1.5, 3.0]))
                victim.thaw()
        case 12 if leader is not None:
            await world.resign(leader)
        case 11:
            machine = random.choice([*world.masters, *workers])
            machine.step_clock(random.choice([-1, 1]) * random.choice([5_000, 3_600_000]))
        case 10:
            worker = random.choice(workers)
            if worker.is_alive and random.random() < 0.5:
                worker.crash()
                await world.start_worker(worker)
            for app_master in [each for each in world.records.app_masters if world.lives(each)][:1]:
                system: Any = app_master.system
                system.stop(app_master)


async def scenario(simulation: Simulation, masters: int) -> None:
    world = World(simulation, masters)
    workers = simulation.nodes("w0", "w1")
    client = simulation.node("c0")
    for node in world.masters:
        await world.start_master(node)
    for node in workers:
        await world.start_worker(node)
    client.start(world.client)
    for _ in range(ROUNDS):
        await simulation.sleep(simulation.random.uniform(0.2, 1.5))
        await torment(world, workers)
        world.check()

    simulation.network.heal()
    simulation.network.set_faults(NetworkFaults())
    for machine in (*world.masters, *workers):
        machine.step_clock(-machine.clock_skew_ms)
    for node in world.masters:
        if not node.is_alive:
            await world.start_master(node)
    before = world.records.outcomes["list"]
    await world.until(lambda: world.records.outcomes["list"] > before + 2, "clients are answered again")
    client.crash()
    await simulation.node("c1").start(world.last_listing)
    world.check()
    live = set(world.records.accepted.values()) - world.records.maybe_killed

    def one_each() -> bool:
        return all(len(world.active(app_id)) == 1 for app_id in live)

    await world.until(one_each, "every live application has exactly one active application master")
    world.check()
    assert world.records.accepted, "nothing was ever accepted"


@simulate(seeds=3, until_s=300)
async def test_three_masters_keep_their_promises_under_faults(simulation: Simulation) -> None:
    await scenario(simulation, 3)


@simulate(seeds=1, until_s=300)
async def test_five_masters_keep_their_promises_under_faults(simulation: Simulation) -> None:
    await scenario(simulation, 5)


@simulate(seeds=1, at_most=3, until_s=900)
async def test_applications_of_many_workers_that_are_lost_at_once_start_elsewhere(
    simulation: Simulation,
) -> None:
    figures = await scale(simulation, workers=200, applications=40, lost=20)
    assert figures["applications_hit"] > 0

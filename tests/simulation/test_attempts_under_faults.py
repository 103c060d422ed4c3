"""Attempts of fragments in a cluster: executors die between any two effects, freeze, and are replaced."""

from __future__ import annotations

import pytest
from app_master_world import succeeded
from attempt_world import AttemptWorld, attempt_world

from drivetrain.simulator import NetworkFaults, Simulation, simulate

pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")  # its process was killed


async def torment(world: AttemptWorld, what: int) -> None:
    """Do something bad to one of them."""
    random, living, simulation = world.random, world.living(), world.simulation
    match what:
        case 0 if living:
            world.kill(random.choice(living))
        case 1 if living:
            node = world.executors[random.choice(living)]
            world.zombies += 1
            node.freeze()
            await simulation.sleep(random.choice([0.5, 3.0, 8.0]))
            if node.is_alive:
                node.thaw()
        case 2:
            world.term += 1
            world.leader = random.choice(["m1", "m2"])
        case 3:
            worker = random.choice(world.workers)
            if worker.is_alive:
                worker.crash()
                world.reap()
                await simulation.sleep(random.uniform(0.2, 3.0))
                await worker.start(world._worker)
        case 4:
            simulation.network.set_faults(NetworkFaults.harsh())
        case 5:
            world.kill_app_master()
        case 6:
            simulation.network.isolate(random.choice([node.name for node in world.workers]))
            await simulation.sleep(random.uniform(0.5, 5.0))
            simulation.network.heal()
        case 7 if world.app_master.is_alive and not world.is_over():
            zombie = world.app_master
            world.zombies += 1
            zombie.freeze()
            await simulation.sleep(random.choice([0.1, 1.0, 4.0]))
            if world.app_master is zombie and not world.is_over():
                await world.start_app_master()
            await simulation.sleep(random.choice([0.1, 1.0, 4.0]))
            if zombie.is_alive:
                zombie.thaw()
        case _:
            world.harm()


@simulate(seeds=8, at_most=1000)
async def test_every_message_is_shown_once_whatever_happens_to_executors(simulation: Simulation) -> None:
    await scenario(simulation)


async def scenario(simulation: Simulation) -> None:
    with attempt_world(simulation) as world:
        random = simulation.random
        await world.start()
        simulation.loop.create_task(world.lead(), name="lead")
        for _ in range(random.choice([0, 2, 4, 8])):
            for _ in range(random.randrange(1, 20)):
                await simulation.sleep(0.1)
                world.check()
            await torment(world, random.randrange(10))
        world.kills_left = 0
        simulation.network.heal()
        simulation.network.set_faults(NetworkFaults())

        def is_over() -> bool:
            world.check()
            return world.is_over()

        await simulation.wait_until(is_over, "the end in the registry", timeout_s=300.0, poll_s=0.1)
        assert succeeded(world), world.result.error
        world.drawn.check_end(world.target)

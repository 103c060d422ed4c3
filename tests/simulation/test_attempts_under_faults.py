"""Attempts of fragments in a cluster: executors die between any two effects, freeze, and are replaced."""

from __future__ import annotations

import shutil

import pytest
from app_master_world import succeeded
from attempt_world import AttemptWorld, attempt_world
from shell_engine import OF_A_VERSION

from drivetrain.core.change.live_change import Outcome
from drivetrain.crash_points import CrashPoint
from drivetrain.simulator import NetworkFaults, Node, Simulation, simulate

pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")  # its process was killed


async def torment(world: AttemptWorld, what: int) -> None:
    """Do something bad to one of them."""
    random, living, simulation = world.random, world.living(), world.simulation
    match what:
        case 0 if living:
            world.kill(random.choice(living))
        case 1 | 2 if living:
            await freeze(world, world.executors[random.choice(living)])
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
            world.term += 1
            world.leader = random.choice(["m1", "m2"])
        case 6:
            await lose_machine(world, random.choice(world.workers))
        case 7 | 8 if world.app_master.is_alive and not world.is_over():
            await freeze(world, world.app_master)
        case _:
            world.harm()


async def lose_machine(world: AttemptWorld, worker: Node) -> None:
    """A worker is out of reach, so that its executors are given up, and some of them are frozen meanwhile."""
    random, network = world.random, world.simulation.network
    network.isolate(worker.name)
    its_own = [world.executors[id] for id in world.living() if world.owner_worker[id] is worker]
    frozen = [node for node in its_own if random.random() < 0.7]
    for node in frozen:
        world.zombies += 1
        node.freeze()
    await world.simulation.sleep(random.uniform(2.0, 12.0))
    for node in frozen:
        if node.is_alive:
            node.thaw()
    await world.simulation.sleep(random.uniform(0.0, 3.0))
    network.heal()


async def freeze(world: AttemptWorld, node: Node) -> None:
    """Stop a process for a while; the leader may take an application master for dead, and start another."""
    world.zombies += 1
    node.freeze()
    await world.simulation.sleep(world.random.choice([0.1, 1.0, 4.0]))
    if node is world.app_master and not world.is_over():
        await world.start_app_master()
    await world.simulation.sleep(world.random.choice([0.1, 1.0, 4.0]))
    if node.is_alive:
        node.thaw()


@simulate(seeds=8, at_most=1000)
async def test_every_message_is_shown_once_whatever_happens_to_executors(simulation: Simulation) -> None:
    await scenario(simulation)


async def scenario(simulation: Simulation) -> None:
    """Run an application to its end, tormented on the way."""
    with attempt_world(simulation) as world:
        random = simulation.random
        await begin(world)
        torments = []
        for _ in range(random.choice([0, 3, 6, 12])):
            for _ in range(random.randrange(1, 10)):
                await simulation.sleep(0.1)
                world.check()
            torments.append(simulation.loop.create_task(torment(world, random.randrange(10))))
        for task in torments:
            await task
        world.kills_left = 0
        simulation.network.heal()
        simulation.network.set_faults(NetworkFaults())
        await end(world)


async def begin(world: AttemptWorld) -> None:
    await world.start()
    world.simulation.loop.create_task(world.lead(), name="lead")
    await world.simulation.node("user").start(world.changer.serve)


async def end(world: AttemptWorld) -> None:
    """Nothing befalls the application any more: it finishes, and has shown everything."""

    def is_over() -> bool:
        world.check()
        return world.is_over()

    await world.simulation.wait_until(is_over, "the end in the registry", timeout_s=300.0, poll_s=0.1)
    assert succeeded(world), world.result.error
    world.drawn.check_end(world.target)
    world.changer.check_end()


OF_KAFKA = (CrashPoint.IN_TRANSACTION, CrashPoint.AFTER_TRANSACTION)
"""Points of Kafka's transactions, which the sinks here have not."""


@pytest.mark.parametrize("point", [point for point in CrashPoint if point not in OF_KAFKA])
@simulate(seeds=1, at_most=20)
async def test_an_application_goes_on_though_processes_die_at_a_point_again_and_again(
    simulation: Simulation, point: CrashPoint
) -> None:
    with attempt_world(simulation, [point] * 3) as world:
        await begin(world)
        await end(world)
        assert world.kills == 3, "processes were to die there"


@simulate(seeds=3)
async def test_a_state_that_is_lost_takes_the_application_back_even_to_its_beginning(
    simulation: Simulation,
) -> None:
    with attempt_world(simulation, []) as world:
        await begin(world)
        state = world.place / "state"
        await simulation.wait_until(lambda: any(state.glob("*/fragments/*/checkpoint/commits/0")), "a batch")
        world.kill_executors()
        for checkpoint in state.glob("*/fragments/*/checkpoint"):
            shutil.rmtree(checkpoint)
        world.harms += 1
        await end(world)
        assert world.newest_transaction[0] > 1, "it was to go back, as another life"


@simulate(seeds=4)
async def test_a_trial_ends_before_the_application_does(simulation: Simulation) -> None:
    with attempt_world(simulation, []) as world:
        world.changer.changes_left = 40
        world.changer.pauses_s = (0.01, 0.05)
        await begin(world)
        await end(world)
        assert world.changer.outcomes, "it was to change"
        if Outcome.DONE in world.changer.outcomes.values() and sum(world.drawn.counts.values()) > 40:
            shown = [row for _, rows in world.target.shown().values() for row in rows]
            assert any(row >= OF_A_VERSION for row in shown), "nothing went through another version"

"""An application of a cluster whose state is in an object store: its workers are lost, cut off and killed."""

from __future__ import annotations

import pytest
from moved_world import MovedWorld, moved_world
from test_attempts_under_faults import begin, end, end_calmly, freeze

from drivetrain.crash_points import CrashPoint
from drivetrain.runtime.wanted_scaling import WantedScalingFile
from drivetrain.simulator import NetworkFaults, Simulation, simulate
from nightly_run import deaths

pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")  # its process was killed


async def torment(world: MovedWorld, what: int) -> None:
    """Do something bad to one of them."""
    random, living, simulation = world.random, world.living(), world.simulation
    worker = random.choice(world.workers)
    if world.is_over():
        return
    match what:
        case 0 if living:
            world.kill(random.choice(living))
        case 1 if living:
            await freeze(world, world.executors[random.choice(living)])
        case 2 | 3 if worker.is_alive:
            world.lose(worker)
            await simulation.sleep(random.uniform(0.2, 3.0))
            await worker.start(world._worker)
        case 4:
            simulation.network.set_faults(NetworkFaults.harsh())
        case 5:
            world.kill_app_master()
        case 6 | 7:
            await cut_off(world)
        case _ if world.app_master.is_alive:
            await freeze(world, world.app_master)


async def cut_off(world: MovedWorld) -> None:
    """The leader takes the application master for lost, whose machine reaches the store and its executors."""
    world.zombies += 1
    former = world.app_master
    await world.start_app_master()
    await world.simulation.sleep(world.random.uniform(2.0, 15.0))
    if former.is_alive and not world.is_over() and former is not world.app_master:
        former.crash()


async def scenario(simulation: Simulation, points: list[CrashPoint] | None = None) -> MovedWorld:
    with moved_world(simulation, points) as world:
        random = simulation.random
        await begin(world)
        torments = []
        for _ in range(random.choice([3, 6, 12]) * (points is None)):
            copied, steps = len(world.copied), random.randrange(1, 50)
            # Mostly something is lost after there was something to lose.
            for step in range(50):
                await simulation.sleep(0.1)
                world.check()
                if step >= steps and (len(world.copied) > copied or random.random() < 0.1):
                    break
            torments.append(simulation.loop.create_task(torment(world, random.randrange(10))))
        await end_calmly(world, torments)
        return world


@simulate(seeds=3, at_most=2000)
async def test_every_message_is_shown_once_whatever_happens_to_the_workers(simulation: Simulation) -> None:
    await scenario(simulation)


POINTS = [
    CrashPoint.COPY_UPLOADED,
    CrashPoint.COPY_NAMED,
    CrashPoint.AFTER_RECORD,
    CrashPoint.AFTER_PUBLICATION,
]


@pytest.mark.parametrize("points", deaths(POINTS, 2, 3), ids="+".join)
@simulate(seeds=1, at_most=100)
async def test_another_worker_continues_though_processes_die_between_two_effects(
    simulation: Simulation, points: list[CrashPoint]
) -> None:
    world = await scenario(simulation, points)
    assert world.kills == len(points), "processes were to die there"


OF_CHANGES = [
    CrashPoint.BEFORE_VERSION,
    CrashPoint.AFTER_VERSION,
    CrashPoint.BEFORE_OUTCOME,
    CrashPoint.AFTER_OUTCOME,
]


@pytest.mark.parametrize("points", deaths(OF_CHANGES, 2, 2), ids="+".join)
@simulate(seeds=1, at_most=100)
async def test_another_worker_runs_the_version_that_was_decided_though_processes_die_meanwhile(
    simulation: Simulation, points: list[CrashPoint]
) -> None:
    with moved_world(simulation, points) as world:
        world.changer.changes_left = 40
        await begin(world)
        await end(world)
        assert world.kills or simulation.seed, "processes were to die there"


@simulate(seeds=1, at_most=200)
async def test_a_change_counts_on_another_worker_before_any_checkpoint_has_followed(
    simulation: Simulation,
) -> None:
    with moved_world(simulation, []) as world:
        world.changer.changes_left, world.changer.at_once = 1, 1.0
        world.drawn.trunks = 0.0
        await begin(world)
        await simulation.wait_until(lambda: 2 in world.changer.in_force, "a change", poll_s=0.001)
        home, copied = world.homes[1], len(world.copied)
        world.lose(home)
        world.prefers = next(worker for worker in world.workers if worker is not home)
        await end(world)
        assert world.homes[max(world.homes)] is not home
        assert world.continued >= 2, "another worker has not found the change"
        assert copied == 0 or simulation.seed, "it was to change before the first checkpoint"


@pytest.mark.parametrize("is_done", [False, True])
@simulate(seeds=1, at_most=200)
async def test_a_scaling_is_done_on_another_worker_if_no_checkpoint_has_it(
    simulation: Simulation, *, is_done: bool
) -> None:
    with moved_world(simulation, []) as world:
        world.scaler.left = 1
        await begin(world)

        def has_come() -> bool:
            state = world.state()
            wanted = None if state is None else WantedScalingFile(state).read()
            return wanted is not None and wanted.is_done is is_done

        # It may be in a checkpoint before it is seen here; the application may end before it is asked for.
        await simulation.wait_until(lambda: has_come() or world.is_over(), "a scaling", poll_s=0.001)
        home = world.homes[max(world.homes)]
        if not world.is_over():
            world.lose(home)
            world.prefers = next(worker for worker in world.workers if worker is not home)
        await end(world)
        is_sure = simulation.seed < 4  # elsewhere the fragment may end before
        assert world.promises.wanted or not is_sure, "it was to be scaled"
        assert not world.promises.in_vain or not is_sure, "it was to be scaled on another worker, too"


@simulate(seeds=1, at_most=200)
async def test_an_application_master_that_is_cut_off_can_show_nothing_more(simulation: Simulation) -> None:
    with moved_world(simulation, []) as world:
        await begin(world)
        await simulation.wait_until(lambda: bool(world.copied), "a checkpoint", poll_s=0.01)
        former, frozen = world.app_master, [world.executors[id] for id in world.living()]
        for node in (former, *frozen):
            node.freeze()
        world.prefers = next(worker for worker in world.workers if worker is not world.homes[1])
        await world.start_app_master()
        await simulation.wait_until(lambda: world.claimed_epoch() == 2, "its successor's claim", poll_s=0.1)
        decided = len(world.decided)
        for node in (former, *frozen):
            node.thaw()
        await end(world)
        assert {epoch for epoch, _ in world.decided[decided:]} == {2}
        assert world.claimed_epoch() == 2


@simulate(seeds=1, at_most=200)
async def test_an_executor_of_a_former_epoch_that_wakes_late_claims_nothing(simulation: Simulation) -> None:
    with moved_world(simulation, []) as world:
        await begin(world)
        await simulation.wait_until(lambda: bool(world.living()), "an executor", poll_s=0.001)
        late = [world.executors[id] for id in world.living()]
        for node in late:
            node.freeze()
        world.prefers = next(worker for worker in world.workers if worker is not world.homes[1])
        await world.start_app_master()
        await simulation.wait_until(lambda: world.claimed_epoch() == 2, "its successor's claim", poll_s=0.1)
        for node in late:
            node.thaw()
        await end(world)
        assert world.claimed_epoch() == 2

"""A start from a savepoint takes effect once, though application masters die before the registry notes it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import msgspec
import pytest
from app_master_world import succeeded
from attempt_world import AttemptWorld, attempt_world
from moved_world import MovedWorld, moved_world
from test_attempts_under_faults import end

from drivetrain.core.checkpoint.transaction import Phase, Transaction
from drivetrain.runtime.checkpoints.savepoint import newest_record, write_savepoint
from drivetrain.runtime.checkpoints.transaction_file import CheckpointFiles
from drivetrain.runtime.run_directory import RunDirectory
from drivetrain.simulator import Simulation, simulate

pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")  # its process was killed


def rundir_of(world: AttemptWorld) -> RunDirectory:
    application = world.drawn.built(0)
    return RunDirectory(str(world.known_state().parent), application.name, application.naming_settings)


def decided(world: AttemptWorld) -> Transaction | None:
    return None if world.state() is None else CheckpointFiles(rundir_of(world).home).transaction()


async def end_all(world: AttemptWorld) -> None:
    """End every process of the application, and wait until the kernel has freed what they held."""
    world.kill_app_master()
    world.kill_executors()
    await world.simulation.sleep(10.0)
    world.kill_executors()


async def saved_from_a_run(world: AttemptWorld) -> Path | None:
    """A savepoint of the application, which has run for a while, and whose state is gone.

    None for the few that end before their first checkpoint.
    """

    def is_quiet() -> bool:
        found = decided(world)
        return found is not None and found.phase is Phase.COMMITTED and found.record is not None

    await world.start()
    for _ in range(100):
        await world.simulation.wait_until(lambda: is_quiet() or world.is_over(), "a checkpoint", poll_s=0.01)
        if world.is_over():
            return None
        world.kill_app_master()
        if is_quiet():
            break
        await world.start_app_master()
    await end_all(world)
    rundir, place = rundir_of(world), world.place / "saved"
    write_savepoint(rundir, place, lambda: newest_record(rundir), lambda: None)
    shutil.rmtree(rundir.path.parent)
    world.newest_transaction = (-1, -1, -1)
    world.registry = world.clock_ms = world.restarts = None
    world.told_ms = 0
    if isinstance(world, MovedWorld):
        world.store.objects.clear()
    world.harms += 1  # the clock is not compared with the files of one directory
    return place


async def begin_and_die(world: AttemptWorld) -> None:
    """Start an application master that dies before the registry hears of what it prepared."""
    simulation, random = world.simulation, world.random
    executors = len(world.executors)
    await world.start_app_master()
    await simulation.wait_until(lambda: len(world.executors) > executors, "an executor", poll_s=0.01)
    for master in world.masters:
        simulation.network.isolate(master.name)
    if random.random() < 0.7:
        epoch = world.epoch

        def has_prepared() -> bool:
            by = None if world.state() is None else rundir_of(world).preparation.by
            return by is not None and by.epoch == epoch

        await simulation.wait_until(has_prepared, "a state", poll_s=0.01)
    await simulation.sleep(random.choice((0.0, 0.0, 0.1, 1.0)))
    await end_all(world)
    simulation.network.heal()
    assert world.spec.savepoint is not None, "the registry was not to hear of it"


@pytest.mark.parametrize("made", [attempt_world, moved_world])
@simulate(seeds=2, at_most=300)
async def test_a_start_begins_again_until_the_registry_notes_it(
    simulation: Simulation, made: Callable[..., AbstractContextManager[AttemptWorld]]
) -> None:
    with made(simulation, []) as world:
        place = await saved_from_a_run(world)
        if place is None:
            assert simulation.seed, "it was to run for a while"
            return
        world.spec = msgspec.structs.replace(world.spec, savepoint=str(place))
        world.submission = "another submission"
        for _ in range(world.random.randrange(1, 4)):
            await begin_and_die(world)
        await world.start_app_master()
        simulation.loop.create_task(world.lead(), name="lead")
        await end(world)
        assert world.spec.savepoint is None


@simulate(seeds=1, at_most=20)
async def test_a_state_of_another_submission_is_kept_though_a_start_is_asked_for_again(
    simulation: Simulation,
) -> None:
    with attempt_world(simulation, []) as world:
        place = await saved_from_a_run(world)
        if place is None:
            assert simulation.seed, "it was to run for a while"
            return
        await world.start_app_master()
        await simulation.wait_until(lambda: decided(world) is not None, "a state", poll_s=0.01)
        await end_all(world)
        world.spec = msgspec.structs.replace(world.spec, savepoint=str(place))
        world.submission = "another submission"
        for _ in range(2):
            world.registry = None
            await world.start_app_master()
            await simulation.wait_until(world.is_over, "the end in the registry", timeout_s=300.0)
            assert not succeeded(world)
            assert "already has a state here" in str(world.result.error)
            await end_all(world)
            assert decided(world) is not None

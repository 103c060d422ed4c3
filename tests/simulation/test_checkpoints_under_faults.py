"""Checkpoints over random graphs, with everybody dying between any two effects and words lost or repeated."""

from __future__ import annotations

from checkpoint_world import World

from drivetrain.core.checkpoint.coordinator import StopRequested
from drivetrain.core.checkpoint.transaction import Phase
from drivetrain.simulator import Simulation, simulate

FAULTY_STEPS = 2_500
CALM_STEPS = 60_000


@simulate(seeds=20)
async def test_every_checkpoint_is_one_cut_and_the_end_is_what_the_oracle_says(
    simulation: Simulation,
) -> None:
    world = World(simulation)
    for _ in range(FAULTY_STEPS):
        world.step()
    world.calm()
    _finish(world)


@simulate(seeds=20)
async def test_after_a_stop_nothing_is_decided_that_nobody_carries_out(simulation: Simulation) -> None:
    world = World(simulation)
    for _ in range(simulation.random.randint(0, FAULTY_STEPS)):
        world.step()
    world.deaths = 0.0
    world.at_coordinator(StopRequested())
    for _ in range(CALM_STEPS):
        if world.coordinator is not None and world.coordinator.has_settled:
            break
        world.step()
    decided = world.stored
    assert decided is None or decided.phase is not Phase.COMMITTING
    for _ in range(500):
        world.step()
    assert world.stored == decided, "answers that were under way changed it"
    world.die()
    world.calm()
    _finish(world)


def _finish(world: World) -> None:
    for step in range(CALM_STEPS):
        if world.is_done():
            break
        if step % 1_000 == 999:
            world.want_checkpoint()
        world.step()
    assert world.is_done(), f"stuck at {world.stored}"

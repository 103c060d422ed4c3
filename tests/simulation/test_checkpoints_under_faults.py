"""Checkpoints over random graphs, with everybody dying between any two effects and words lost or repeated."""

from __future__ import annotations

from checkpoint_world import World

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
    for step in range(CALM_STEPS):
        if world.is_done():
            break
        if step % 1_000 == 999:
            world.want_checkpoint()
        world.step()
    assert world.is_done(), f"stuck at {world.stored}"

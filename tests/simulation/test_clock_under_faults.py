"""The clock of an application whose fragments and whose clock service die, over channels with windows."""

from __future__ import annotations

import asyncio

from clock_world import World

from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS
from drivetrain.simulator import Simulation, simulate


@simulate(seeds=30)
async def test_the_clock_never_goes_back_nor_passes_a_message_and_comes_to_its_end(
    simulation: Simulation,
) -> None:
    world = World(simulation)
    newest_ms = max(world.messages.values())
    world.waits = {world.random.randint(0, newest_ms): False for _ in range(3)}
    lives = [asyncio.ensure_future(world.live_service())]
    lives += [asyncio.ensure_future(world.live_fragment(id)) for id in world.graph]
    await asyncio.wait_for(asyncio.gather(*lives), 3_000)
    assert world.told[-1] == FINAL_CLOCK_MS
    assert all(world.waits.values()), "somebody still waits"
    assert all(checkpoint.processed == set(world.messages) for checkpoint in world.checkpoints.values())

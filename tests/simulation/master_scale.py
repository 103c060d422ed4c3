"""Many workers and applications on one leader, and the times until all are registered and running."""

from __future__ import annotations

import time

from master_world import World

from drivetrain.cluster.messages.applications import Accepted, ApplicationSpec, GetWorkers, Submit, Workers
from drivetrain.simulator import Simulation


async def scale(
    simulation: Simulation, workers: int, applications: int, lost: int, each: int = 10
) -> dict[str, float]:
    """Register workers (`each` per process), submit applications, lose `lost` workers at once.

    Returns seconds, virtual and of the wall clock, until all were registered, ran, and ran again.
    """
    world = World(simulation, 1, workers_each=each, worker_beat_ms=2_000)
    await world.start_master(world.masters[0])
    figures: dict[str, float] = {}
    begin = (simulation.now_ms, time.perf_counter())

    def note(what: str) -> None:
        nonlocal begin
        figures[f"{what}_virtual_s"] = (simulation.now_ms - begin[0]) / 1000
        figures[f"{what}_wall_s"] = time.perf_counter() - begin[1]
        begin = (simulation.now_ms, time.perf_counter())

    await world.until(lambda: world.leader() is not None, "a leader")
    nodes = [simulation.node(f"w{number}") for number in range(workers // each)]
    for node in nodes:
        await world.start_worker(node)
    client = simulation.node("c0")
    system = await client.start(lambda node: world.connect(node, "client", 7))

    async def registered() -> int:
        answer = await client.run(lambda: world.ask_leader(system, GetWorkers()))
        return len(answer.workers) if isinstance(answer, Workers) else 0

    while await registered() < workers:
        await simulation.sleep(0.1)
    note("register")

    ids: list[str] = []
    for number in range(applications):
        message = Submit(f"s{number}", ApplicationSpec(f"a{number}", "", "app.py"))
        answer = await client.run(lambda message=message: world.ask_leader(system, message))
        assert isinstance(answer, Accepted)
        ids.append(answer.app_id)
    await world.until(lambda: all(len(world.active(app)) == 1 for app in ids), "all run", 300.0)
    note("start")

    hit = [app for app in ids if int(world.active(app)[0].context.me.path.address.host[1:]) < lost // each]
    for node in nodes[: lost // each]:
        node.crash()
    await world.until(lambda: all(len(world.active(app)) == 1 for app in ids), "all run again", 300.0)
    note("reschedule")
    figures["applications_hit"] = len(hit)
    world.check()
    return figures

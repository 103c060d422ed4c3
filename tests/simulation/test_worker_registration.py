"""A worker among masters that die, are cut off, refuse, and believe the wrong things."""

from __future__ import annotations

import msgspec
from worker_sim import SLOTS, World

from drivetrain.cluster.messages.launching import EndEpoch, Launch, LaunchFailed, ProcessExited, ProcessKind
from drivetrain.simulator import NetworkFaults, Simulation, simulate

NAMES = ("m1", "m2", "m3")


def disturb(world: World) -> None:
    """Let one bad thing happen."""
    rng, network = world.simulation.random, world.simulation.network
    match rng.choice(["nothing", "crash", "cut", "freeze", "freeze the worker"]):
        case "crash":
            victim = rng.choice(world.masters)
            if victim.is_alive:
                victim.crash()
            else:
                victim.start(world.serve_master)
        case "cut":
            network.block(rng.choice(NAMES), "box")
        case "freeze":
            rng.choice([node for node in (*world.masters, world.box) if node.is_alive]).freeze()
        case "freeze the worker":
            world.box.freeze()


async def repair(world: World, probability: float) -> None:
    """Let each bad thing pass with this probability."""
    rng = world.simulation.random
    if rng.random() < probability:
        world.simulation.network.heal()
    for node in (*world.masters, world.box):
        if node.is_frozen and rng.random() < probability:
            node.thaw()
        if not node.is_alive and rng.random() < probability:
            await node.start(world.serve_master)


@simulate(seeds=10)
async def test_a_worker_is_registered_with_whoever_leads_in_the_end(simulation: Simulation) -> None:
    world = World(simulation)
    simulation.network.set_faults(NetworkFaults.harsh())
    await world.start()
    await simulation.wait_until(lambda: world.is_known_to("m1"), "the first registration")
    assert world.worker is not None
    rng = simulation.random
    for _ in range(8):
        world.elect(rng.choice(NAMES), tuple(name for name in NAMES if rng.random() < 0.6))
        disturb(world)
        world.refuses = rng.random() < 0.2
        await simulation.sleep(rng.uniform(0.1, 12.0))
        await repair(world, 0.6)
        world.worker.check()

    await repair(world, 1.0)
    world.refuses = False
    last = rng.choice(NAMES)
    world.elect(last)
    await simulation.wait_until(lambda: world.is_known_to(last), f"the worker is registered with {last}")
    assert world.ends == []


@simulate(seeds=5)
async def test_a_leader_that_was_superseded_while_frozen_does_not_get_the_worker_back(
    simulation: Simulation,
) -> None:
    world = World(simulation)
    await world.start("m1")
    await simulation.wait_until(lambda: world.is_known_to("m1"), "the first registration")
    world.masters[0].freeze()
    world.elect("m2", told=("m2", "m3"))
    began_ms = simulation.now_ms
    await simulation.wait_until(lambda: world.is_known_to("m2"), "the second registration")
    assert simulation.now_ms - began_ms < 10_000

    world.masters[0].thaw()  # it still believes that it leads, in the first term
    world.actors["m1"].has.clear()
    await simulation.sleep(60)
    assert world.is_known_to("m2")
    assert world.actors["m1"].has == {}


@simulate(seeds=5)
async def test_a_refused_worker_asks_again_every_ten_seconds(simulation: Simulation) -> None:
    world = World(simulation)
    world.refuses = True
    await world.start()
    await simulation.wait_until(lambda: len(world.refused_ms) >= 4, "four refusals")
    gaps = [later - earlier for earlier, later in zip(world.refused_ms, world.refused_ms[1:], strict=False)]
    assert all(10_000 <= gap < 11_000 for gap in gaps), gaps
    world.refuses = False
    await simulation.wait_until(lambda: world.is_known_to("m1"), "the registration")


@simulate(seeds=5)
async def test_without_a_leader_a_worker_ends_after_the_timeout_with_what_it_launched(
    simulation: Simulation,
) -> None:
    world = World(simulation, leader_timeout_ms=30_000)
    await world.start()
    await simulation.wait_until(lambda: world.is_known_to("m1"), "the registration")
    (worker,) = world.workers.values()

    async def launch() -> None:
        worker.tell(world.launch(1, "m1"), world.references["m1"])

    await world.masters[0].run(launch)
    await simulation.wait_until(lambda: bool(world.launched), "the launch")
    for name in NAMES:
        world.belief[name] = (world.term, "")
    began_ms = simulation.now_ms
    await simulation.wait_until(lambda: bool(world.ends), "the worker ends")
    assert 30_000 <= simulation.now_ms - began_ms < 40_000
    assert world.ends[0].code == "leader-timeout"
    launcher = world.launcher
    assert launcher is not None
    await simulation.wait_until(lambda: launcher.is_closed, "everything it launched has ended")


@simulate(seeds=10)
async def test_launches_are_done_once_and_their_ends_are_told_however_often_they_are_sent(
    simulation: Simulation,
) -> None:
    world = World(simulation)
    await world.start()
    await simulation.wait_until(lambda: world.is_known_to("m1"), "the registration")
    (worker,) = world.workers.values()
    simulation.network.set_faults(NetworkFaults.harsh())
    over: set[str] = set()

    async def send(number: int) -> None:
        worker.tell(world.launch(number, "m1"), world.references["m1"])

    def count() -> set[str]:
        ends = [told for told in world.told if isinstance(told, LaunchFailed | ProcessExited)]
        return {end.launch_id for end in ends if getattr(end, "code", "") != "no-slots"}

    wanted = {f"launch-{number}" for number in range(12)}
    for _ in range(400):
        over = count()
        if over == wanted:
            break
        # What an owner does that has heard nothing: it says it again.
        for number in range(12):
            if f"launch-{number}" not in over and simulation.random.random() < 0.5:
                await world.masters[0].run(lambda number=number: send(number))  # type: ignore[misc]
        assert world.worker is not None
        assert world.launcher is not None
        world.worker.check()
        assert len(world.launcher.running) <= SLOTS
        await simulation.sleep(simulation.random.uniform(0.1, 3.0))
    assert over == wanted
    assert sorted(world.launched) == sorted(wanted)  # each once
    simulation.network.set_faults(NetworkFaults())
    await simulation.wait_until(lambda: world.is_known_to("m1"), "the slots are known to be free")


@simulate(seeds=10)
async def test_executors_of_a_dead_application_master_are_killed_at_once(simulation: Simulation) -> None:
    world = World(simulation)
    await world.start()
    await simulation.wait_until(lambda: world.is_known_to("m1"), "the first registration")
    (worker,), launcher = world.workers.values(), world.launcher
    assert launcher is not None

    def executor(number: int, epoch: int, app_id: str = "app-1") -> Launch:
        made = world.launch(number, "m1", epoch)
        return msgspec.structs.replace(made, kind=ProcessKind.EXECUTOR, app_id=app_id, slots=0)

    for launch in (world.launch(1, "m1"), executor(2, 1), executor(3, 1), executor(4, 1, "app-2")):
        worker.tell(launch)
    await simulation.wait_until(lambda: len(world.launched) == 4, "four launches")
    await simulation.sleep(2.1)
    killed_here = simulation.random.random() < 0.5
    if killed_here and launcher.running.get("launch-1"):
        launcher._end("launch-1", -9)
    else:  # it ran on another machine: the leader says so
        worker.tell(EndEpoch("app-1", 1))
    await simulation.sleep(0.1)
    assert not {"launch-2", "launch-3"} & launcher.running.keys()
    assert "launch-4" not in launcher.stopped
    worker.tell(executor(5, 1))
    worker.tell(executor(6, 2))
    await simulation.wait_until(lambda: "launch-6" in world.launched, "the next epoch begins")
    assert "launch-5" not in world.launched

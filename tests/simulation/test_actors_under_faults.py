"""Ask, tell and watch between actor systems while the network and the processes fail."""

from __future__ import annotations

from actor_world import ASK_TIMEOUT_MS, Stop, World

from drivetrain.simulator import NetworkFaults, Simulation, simulate

ROUNDS = 8


async def torment(world: World) -> None:
    """Do something bad to the network or to a process."""
    simulation = world.simulation
    random, network = simulation.random, simulation.network
    node = random.choice(world.nodes)
    match random.randrange(8):
        case 0:
            network.set_faults(
                random.choice([NetworkFaults(), NetworkFaults.harsh(), NetworkFaults(loss=0.3)])
            )
        case 1:
            network.isolate(node.name)
        case 2:
            network.block(
                node.name, random.choice([other for other in world.nodes if other is not node]).name
            )
        case 3:
            network.heal()
        case 4 if node.is_alive:
            random.choice([node.crash, node.lose_power])()
        case 5 if not node.is_alive:
            await world.start(node)
        case 6 if node.is_alive:
            await world.freeze(node, random.choice([0.1, 0.8, 3.0]))
        case 7 if node.is_alive:
            server = world.server_of(node)
            if server is None:
                await world.serve_again(node)
            else:
                server.tell(Stop())


@simulate(seeds=5, until_s=300)
async def test_asks_tells_and_watches_keep_their_promises_under_faults(simulation: Simulation) -> None:
    world = World(simulation, "abc")
    simulation.network.set_faults(simulation.random.choice([NetworkFaults(), NetworkFaults.harsh()]))
    for node in world.nodes:
        await world.start(node)
    for _ in range(ROUNDS):
        await simulation.sleep(simulation.random.uniform(0.1, 2.0))
        await torment(world)
        world.check()

    simulation.network.heal()
    simulation.network.set_faults(NetworkFaults())
    for node in world.nodes:
        if not node.is_alive:
            await world.start(node)
        await world.serve_again(node)
    before = world.records.outcomes["Reply"]
    await simulation.wait_until(
        lambda: world.records.outcomes["Reply"] > before + 30, "asks succeed again after all has healed"
    )
    await simulation.sleep(5)
    world.check()
    dead_are_known(world)

    for name, system in [(node.name, world.systems[node.name]) for node in world.nodes]:
        await simulation.node(name).run(system.terminate)
    await simulation.sleep(ASK_TIMEOUT_MS / 1000 + 1)
    assert not [ask for ask in world.records.open_asks if is_of_the_living(world, ask)], (
        "an ask without an outcome"
    )
    world.check()


def dead_are_known(world: World) -> None:
    """Every watch of a living process on an actor that is gone has been told so."""
    for node in world.nodes:
        for watching in world.records.watches[f"{node.name}#{node.life_number}"]:
            name = watching.target.path.address.system
            is_gone = (
                watching.target in world.records.stopped
                or world.systems[name].address != watching.target.path.address
            )
            assert not is_gone or watching.terminated, (
                f"nobody told {node.name} that {watching.target.path} is gone"
            )


def is_of_the_living(world: World, ask: str) -> bool:
    life = ask.partition(">")[0]
    return any(life == f"{node.name}#{node.life_number}" for node in world.nodes)

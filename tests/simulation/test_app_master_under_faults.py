"""The application master while executors crash and freeze, messages are lost, and leaders change."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from app_master_world import BATCHES, GRAPH, World, succeeded

from drivetrain.actor import ActorFailedError, ActorPath
from drivetrain.cluster.app_master.app_master_messages import HandOverRequested
from drivetrain.cluster.app_master.followers import Followers
from drivetrain.cluster.app_master.stream.stream_app_master import StreamAppMaster
from drivetrain.cluster.messages.applications import ApplicationState
from drivetrain.cluster.messages.following import Follow, JobState, StopApplication
from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS
from drivetrain.simulator import NetworkFaults, Simulation, simulate


async def torment(world: World, what: int) -> None:
    """Do something bad to one of them."""
    random, living = world.random, world.living()
    match what:
        case 0 if living:
            world.records.crashes += 1
            world.kill(random.choice(living))
        case 1 if living:
            launch_id = random.choice(living)
            node = world.executors[launch_id]
            world.disturbed.add(launch_id)
            node.freeze()
            await world.simulation.sleep(random.choice([0.5, 3.0, 8.0]))
            if node.is_alive:
                node.thaw()
        case 2:
            world.term += 1
            world.leader = random.choice(["m1", "m2"])
        case 3:
            worker = random.choice(world.workers)
            if worker.is_alive:
                world.records.crashes += 1
                worker.crash()
                world.reap()
                await world.simulation.sleep(random.uniform(0.2, 3.0))
                await worker.start(world._worker)
        case 4:
            world.is_calm = False
            world.simulation.network.set_faults(NetworkFaults(loss=0.05, max_delay_ms=20.0, reset=0.01))
        case 5 if world.epoch == 1 and not world.is_over():
            world.records.crashes += 1
            world.app_master.crash()
            await world.simulation.sleep(random.uniform(0.1, 1.0))
            await world.start_app_master()
        case 6:
            world.is_calm = False
            world.simulation.network.isolate(random.choice([node.name for node in world.workers]))
            await world.simulation.sleep(random.uniform(0.5, 5.0))
            world.simulation.network.heal()


def tended(world: World, condition: object) -> bool:
    """Let the kernel do its part, check the cores, and ask."""
    world.reap()
    job = getattr(world.actor, "job", None) if world.app_master.is_alive else None
    if world.actor is not None and job is not None:
        job.check()
        world.actor.pool.check()
        world.hear_clock(world.actor.clock())
    return bool(condition())  # type: ignore[operator]


def check_the_end(world: World) -> None:
    """What must hold of a run that finished."""
    records, result = world.records, world.result
    assert not records.violations, "; ".join(records.violations)
    assert world.registry is not None
    assert world.registry.state is ApplicationState.SUCCEEDED, result.error
    assert result.state is JobState.FINISHED
    assert {f: records.finished[f] for f in GRAPH} == dict.fromkeys(GRAPH, 1)
    assert {view.fragment: view.state for view in result.fragments} == dict.fromkeys(GRAPH, "finished")
    assert records.concluded >= 1
    assert result.printed == "done"
    assert result.clock_ms == world.registry.clock_ms == FINAL_CLOCK_MS
    # What attempts have said last, and was acknowledged, is in; nothing is counted twice.
    epoch = result.epoch
    known = sum(batches for (e, _, _), batches in records.final.items() if e == epoch)
    total = result.accumulators.get("batches", 0)
    assert known <= total <= records.counted[epoch]
    counters = [view.figures.counters for view in result.fragments]
    assert sum(one.batches for one in counters) == total
    assert sum(one.phases.sink_ms for one in counters) == total
    assert sum(sum(one.blocked_ms.values()) for one in counters) == total
    if not records.crashes and not world.disturbed and world.is_calm:
        assert total == records.counted[epoch] == BATCHES * len(GRAPH)
    assert not world.spec.begins_anew, "the registry still says that the state is to begin anew"
    if world.begins_anew:
        assert records.cleared >= 1, "--fresh, or a replay, was not obeyed"
        assert records.cleared == 1 or records.crashes or world.disturbed or not world.is_calm
    else:
        assert records.cleared == 0


@simulate(seeds=10)
async def test_every_fragment_finishes_once_whatever_fails(simulation: Simulation) -> None:
    random = simulation.random
    world = World(
        simulation,
        failures=random.choice([0, 2, 5]),
        refusals=random.choice([0, 0, 2]),
        fresh=random.random() < 0.2,
        replay_from_ms=5 if random.random() < 0.2 else None,
    )
    await world.start()
    for _ in range(random.choice([0, 1, 3, 5])):
        await simulation.sleep(random.uniform(0.0, 2.0))
        await torment(world, random.randrange(7))
    simulation.network.heal()
    simulation.network.set_faults(NetworkFaults())
    await simulation.wait_until(lambda: tended(world, world.is_over), "the end in the registry")
    check_the_end(world)
    await simulation.wait_until(lambda: tended(world, lambda: not world.living()), "nothing left running")
    await simulation.wait_until(
        lambda: not any(c.path.name == "app-master" for c in world.app_system.cells()), "its end"
    )


@simulate(seeds=10)
async def test_an_application_master_that_is_asked_to_end_hands_over_without_an_end(
    simulation: Simulation,
) -> None:
    world = World(simulation, failures=simulation.random.choice([0, 2]), refusals=0)
    await world.start()
    await simulation.sleep(simulation.random.uniform(0.0, 4.0))
    was_over = world.is_over()
    world.records.crashes += 1  # what the first one counted may be counted again
    assert world.actor is not None
    if not was_over:
        world.actor.context.me.tell(HandOverRequested("its worker leaves"))
        await simulation.wait_until(
            lambda: tended(
                world, lambda: not any(c.path.name == "app-master" for c in world.app_system.cells())
            ),
            "it ends",
        )
        assert not world.living(), "executors outlive it"
        assert world.registry is None or world.registry.state is not ApplicationState.FAILED
    if not world.is_over():
        await world.start_app_master()
    await simulation.wait_until(lambda: tended(world, world.is_over), "the end in the registry")
    check_the_end(world)


@simulate(seeds=10)
async def test_fresh_is_obeyed_until_the_registry_knows_and_never_again(simulation: Simulation) -> None:
    begins = simulation.random.choice([{"fresh": True}, {"replay_from_ms": 5}])
    world = World(simulation, failures=0, refusals=0, **begins)
    await world.start()
    await simulation.wait_until(lambda: bool(world.records.prepared), "an executor prepares", poll_s=0.001)
    await simulation.sleep(simulation.random.choice([0.0, 0.001, 0.003, 0.5]))
    was_known = not world.spec.begins_anew
    cleared = world.records.cleared
    world.app_master.crash()
    await world.start_app_master()
    await simulation.wait_until(lambda: tended(world, world.is_over), "the end in the registry")
    assert succeeded(world)
    assert world.records.cleared == cleared if was_known else world.records.cleared > cleared
    # As after `Restart`: nothing of the earlier epochs but the spec and the state are left.
    cleared, prepared = world.records.cleared, world.records.prepared
    world.registry = world.restarts = None
    await world.start_app_master()
    await simulation.wait_until(lambda: tended(world, world.is_over), "the end of the restarted one")
    assert world.records.prepared > prepared
    assert world.records.cleared == cleared
    assert not world.records.violations


@simulate(seeds=10)
async def test_a_stopped_application_is_canceled_and_leaves_nothing(simulation: Simulation) -> None:
    random = simulation.random
    world = World(simulation, failures=random.choice([0, 3]), refusals=0)
    await world.start()
    await simulation.sleep(random.uniform(0.0, 3.0))
    if random.random() < 0.3 and world.living():
        world.kill(random.choice(world.living()))

    async def stop() -> None:
        path = ActorPath.parse(world.paths["am"])
        world.app_system.reference(path).tell(StopApplication(world.epoch, "the user wants it"))

    await world.app_master.run(stop)
    await simulation.wait_until(lambda: tended(world, world.is_over), "the end in the registry")
    await simulation.wait_until(lambda: tended(world, lambda: not world.living()), "nothing left running")
    assert world.registry is not None
    assert world.registry.state in (ApplicationState.KILLED, ApplicationState.SUCCEEDED)
    assert not world.records.violations


@simulate(seeds=5)
async def test_what_is_waited_for_is_told_truthfully(
    simulation: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(simulation, failures=0, refusals=0, fresh=True)
    told: list[str | None] = []
    changed = StreamAppMaster.changed

    def spying(app_master: StreamAppMaster) -> None:
        changed(app_master)
        told.append(app_master.status().waiting_for)

    def watch() -> bool:
        if world.actor is not None and world.app_master.is_alive and hasattr(world.actor, "job"):
            status = world.actor.status()
            ready = [view.state for view in status.executors].count("ready")
            told.append(status.waiting_for)
            if status.waiting_for is None and status.state is JobState.RUNNING:
                assert ready == 2
            if status.waiting_for is not None and "slots" in status.waiting_for:
                assert ready + [view.worker for view in status.executors].count(None) <= 2
                assert None in [view.worker for view in status.executors]
        return tended(world, world.is_over)

    monkeypatch.setattr(StreamAppMaster, "changed", spying)
    await world.start()
    await simulation.wait_until(watch, "the end in the registry", poll_s=0.01)
    steps = [
        "the leading master",
        "the application to be loaded and planned",
        "slots for 2 executors",
        " to start on worker",
        "Spark to start on worker w",
        "the masters to note that the earlier state is forgotten",
        "the end to be noted on worker w",
    ]
    seen = [next((n for n, line in enumerate(told) if line and step in line), None) for step in steps]
    assert None not in seen, told
    assert seen == sorted(n for n in seen if n is not None), told
    assert None in told, "it is said to wait while it processes"
    assert told[-1] is None


@pytest.mark.parametrize("code", ["no-slots", "too-many-slots"])
@simulate(seeds=2)
async def test_without_slots_the_application_fails_and_says_so(simulation: Simulation, code: str) -> None:
    world = World(simulation, failures=0, refusals=0)
    world.refuse = code
    world.settings = {"restart.job-attempts": "2"}
    world.workers = []
    await world.start()
    await simulation.wait_until(lambda: tended(world, world.is_over), "the end in the registry")
    assert world.registry is not None
    assert world.registry.state is ApplicationState.FAILED
    assert world.result.error is not None
    assert "app.executors" in (world.result.error.remedy or "")
    assert not world.executors


@simulate(seeds=2)
async def test_a_clients_message_whose_handling_raises_does_not_end_the_application(
    simulation: Simulation,
) -> None:
    world = World(simulation, failures=0, refusals=0)
    await world.start()

    async def follow() -> str:
        assert world.app_system is not None
        app_master = world.app_system.reference(ActorPath.parse(world.paths["am"]))
        with pytest.raises(ActorFailedError) as raised:
            await app_master.ask(Follow(app_master), timeout_ms=2_000)
        return raised.value.what

    with patch.object(Followers, "add", side_effect=KeyError("something that nobody thought of")):
        assert "nobody thought of" in await world.app_master.run(follow)
    await simulation.wait_until(lambda: tended(world, world.is_over), "the end in the registry")
    check_the_end(world)
    assert succeeded(world)


@simulate(seeds=5)
async def test_an_executor_is_ended_that_was_given_up_because_only_its_worker_is_out_of_reach(
    simulation: Simulation,
) -> None:
    world = World(simulation, failures=0, refusals=0)
    await world.start()
    holder = world.masters[0]
    world.locks["join"] = holder, holder.life_number  # so that the application does not finish
    await simulation.wait_until(lambda: bool(world.running), "an attempt runs")
    (given_up, _), *_ = world.running
    simulation.network.isolate(world.owner_worker[given_up].name)

    def is_given_up() -> bool:
        return world.actor is not None and world.actor.pool.find(given_up) is None

    await simulation.wait_until(is_given_up, "it is given up")
    assert given_up in world.living()
    await simulation.wait_until(lambda: given_up in world.ending, "its end", timeout_s=3.0)

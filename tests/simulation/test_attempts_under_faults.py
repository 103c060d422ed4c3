"""Attempts of fragments in a cluster: executors die between any two effects, freeze, and are replaced."""

from __future__ import annotations

import asyncio
import shutil
from random import Random

import pytest
from app_master_world import succeeded
from attempt_process import ExecutorProcess
from attempt_world import AttemptWorld, attempt_world
from shell_application import OF_A_CHANGE, OF_FRAGMENTS, OF_HANDOVERS, OF_HISTORIES, OF_KAFKA, OF_READERS
from shell_engine import OF_A_VERSION

from drivetrain.actor import Message
from drivetrain.cluster.messages.executing import CancelFragment, Deploy
from drivetrain.core.change.change_events import Outcome
from drivetrain.core.job.fragment_execution import ExecutionState
from drivetrain.crash_points import CrashPoint
from drivetrain.file_lock import FileLock
from drivetrain.simulator import NetworkFaults, Node, Simulation, simulate
from nightly_run import deaths

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
    loses_locks = not world.is_one_machine and Random(f"{world.simulation.seed} locks").random() < 0.5
    for node in frozen:
        world.zombies += 1
        node.freeze()
        if loses_locks:
            world.lose_locks(node)
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


@simulate(seeds=2, at_most=1000)
async def test_every_message_is_shown_once_whatever_happens_to_executors(simulation: Simulation) -> None:
    await scenario(simulation)


@simulate(seeds=1, at_most=1000)
async def test_a_fragment_that_comes_and_goes_takes_every_message_of_its_versions_once(
    simulation: Simulation,
) -> None:
    await scenario(simulation, is_growing=True)


@simulate(seeds=1, at_most=1000)
async def test_a_fragment_with_a_history_takes_every_message_since_then_once(simulation: Simulation) -> None:
    await scenario(simulation, has_history=True)


@simulate(seeds=1, at_most=100)
async def test_a_fragment_gets_former_messages_if_nothing_befalls_those_that_read_them(
    simulation: Simulation,
) -> None:
    with attempt_world(simulation, [], has_history=True) as world:
        world.changer.changes_left = 5
        await begin(world)
        await end(world)
        is_changed = Outcome.DONE in world.changer.outcomes.values()
        assert world.changer.former_rows or not is_changed, "no fragment got former messages"
        assert is_changed or simulation.seed, "nothing has changed"


async def scenario(simulation: Simulation, *, is_growing: bool = False, has_history: bool = False) -> None:
    """Run an application to its end, tormented on the way."""
    with attempt_world(simulation, is_growing=is_growing, has_history=has_history) as world:
        random = simulation.random
        await begin(world)
        torments = []
        for _ in range(random.choice([0, 3, 6, 12])):
            for _ in range(random.randrange(1, 10)):
                await simulation.sleep(0.1)
                world.check()
            torments.append(simulation.loop.create_task(torment(world, random.randrange(10))))
        await end_calmly(world, torments)


async def begin(world: AttemptWorld) -> None:
    await world.start()
    world.simulation.loop.create_task(world.lead(), name="lead")
    await world.simulation.node("user").start(world.changer.serve)
    if world.reader.left:
        world.simulation.loop.create_task(world.reader.supervise(), name="readers")
    if world.scaler.left:
        await world.simulation.node("other-user").start(world.scaler.serve)


async def end_calmly(world: AttemptWorld, torments: list[asyncio.Task[None]]) -> None:
    """Wait until all torments are over; without any further fault the application must end as it should."""
    for task in torments:
        await task
    world.kills_left = 0
    world.simulation.network.heal()
    world.simulation.network.set_faults(NetworkFaults())
    await end(world)


async def end(world: AttemptWorld) -> None:
    """Nothing befalls the application any more: it finishes, and has shown everything."""

    now_s = world.simulation.loop.time
    fine_s = now_s()

    def is_over() -> bool:
        nonlocal fine_s
        world.check()
        if not world.changer.is_stuck():
            fine_s = now_s()
        return world.is_over() or now_s() > fine_s + STUCK_S

    await world.simulation.wait_until(is_over, "the end in the registry", timeout_s=300.0, poll_s=0.1)
    if not world.is_over():
        return  # no message reached its code while it was on trial, and nobody corrects it here
    assert succeeded(world), world.result.error
    world.drawn.check_end(world.target)
    world.changer.check_end()
    world.scaler.check_end()
    world.reader.check_end()


@pytest.mark.parametrize(
    "points",
    [*([point] * 2 for point in OF_HANDOVERS), *deaths([CrashPoint.VERSION_NOTED, *OF_A_CHANGE], 3, 2)],
    ids="+".join,
)
@simulate(seeds=1, at_most=200)
async def test_versions_hand_over_exactly_though_processes_die_between_two_effects(
    simulation: Simulation, points: list[CrashPoint]
) -> None:
    with attempt_world(simulation, points) as world:
        world.changer.at_once, world.changer.changes_left = 0.1, 40
        world.drawn.trunks = 0.0  # a query does not restart at an event time
        await begin(world)
        await end(world)
        is_sure = simulation.seed in (0, 2) and CrashPoint.HANDOVER_RECORDED in points  # they have messages
        assert world.changer.handed_over or not is_sure, "no version was compared with its time"


@simulate(seeds=1, at_most=200)
async def test_a_handover_continues_when_the_return_from_it_is_cancelled(simulation: Simulation) -> None:
    with attempt_world(simulation, [CrashPoint.HANDOVER_RECORDED] * 2) as world:
        changer = world.changer
        changer.at_once, changer.changes_left, changer.turns_back = 0.1, 40, 0.7
        world.drawn.trunks = 0.0
        await begin(world)
        await end(world)
        is_sure = simulation.seed == 0
        assert (changer.returned and changer.handed_over) or not is_sure, "nobody has turned back"


@pytest.mark.parametrize(
    "points",
    [*([point] * 2 for point in (CrashPoint.HISTORY_WANTED, *OF_HISTORIES)), *deaths(OF_A_CHANGE, 4, 1)],
    ids="+".join,
)
@simulate(seeds=1, at_most=200)
async def test_a_process_that_dies_while_former_messages_are_read_leaves_nothing_half(
    simulation: Simulation, points: list[CrashPoint]
) -> None:
    with attempt_world(simulation, points, has_history=True) as world:
        world.changer.changes_left = 12
        await begin(world)
        await end(world)
        assert world.kills or simulation.seed, "a process was to die there"


STUCK_S = 60.0
"""How long an application may take to end, in virtual time, while code that fails is in force."""
OF_SCALING = (CrashPoint.BEFORE_DIVISION, CrashPoint.AFTER_DIVISION)
OF_STATES = (CrashPoint.STATE_EMPTIED, CrashPoint.STATE_RESTORED)  # the stand-in's queries have no state
ELSEWHERE = (
    *OF_KAFKA,
    *OF_FRAGMENTS,
    *OF_HANDOVERS,
    CrashPoint.HISTORY_WANTED,
    *OF_HISTORIES,
    *OF_SCALING,
    *OF_STATES,
    CrashPoint.SAVEPOINT_UPLOADED,
    CrashPoint.COPY_UPLOADED,
    CrashPoint.COPY_NAMED,
    *OF_READERS,
    CrashPoint.ENTRY_DROPPED,
    CrashPoint.SUBSCRIPTION_NOTED,
)


OF_BATCHES = [point for point in CrashPoint if point not in (*ELSEWHERE, *OF_A_CHANGE)]


@pytest.mark.parametrize("points", [*deaths(OF_BATCHES, 7, 3), *deaths(OF_A_CHANGE, 4, 3)], ids="+".join)
@simulate(seeds=1, at_most=20)
async def test_an_application_goes_on_though_processes_die_at_a_point_again_and_again(
    simulation: Simulation, points: list[CrashPoint]
) -> None:
    with attempt_world(simulation, points) as world:
        await begin(world)
        await end(world)
        # Some drawn applications end before there were so many changes.
        is_enough = world.kills == len(points) or (points[0] in OF_A_CHANGE and world.kills > 0)
        assert is_enough, "processes were to die there"


@pytest.mark.parametrize("points", deaths([*OF_FRAGMENTS, *OF_A_CHANGE], 4, 1), ids="+".join)
@simulate(seeds=1, at_most=20)
async def test_a_process_that_dies_while_a_fragment_starts_or_leaves_is_followed_by_another(
    simulation: Simulation, points: list[CrashPoint]
) -> None:
    with attempt_world(simulation, points, is_growing=True) as world:
        await begin(world)
        await end(world)
        # Some drawn applications have too few messages for so many changes; that of seed 1 has enough.
        assert world.kills == len(points) or simulation.seed != 1, "processes were to die there"


@pytest.mark.parametrize("points", deaths(OF_SCALING, 2, 3), ids="+".join)
@simulate(seeds=1, at_most=50)
async def test_a_fragment_is_scaled_though_its_process_dies_in_the_middle(
    simulation: Simulation, points: list[CrashPoint]
) -> None:
    with attempt_world(simulation, points, is_long=True) as world:
        world.scaler.left = 40
        await begin(world)
        await end(world)
        assert world.kills == len(points), "processes were to die there"
        assert world.scaler.listed, "nothing was scaled"


@simulate(seeds=1)
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


@simulate(seeds=1)
async def test_an_executor_that_freezes_out_of_reach_keeps_its_fragments_until_it_wakes_up(
    simulation: Simulation,
) -> None:
    with attempt_world(simulation, []) as world:
        await begin(world)
        process = await running(world)
        simulation.network.isolate(world.owner_worker[process.launch.launch_id].name)
        process.node.freeze()
        own = {attempt.fragment for attempt in process.attempts}

        def is_taken_over() -> bool:
            world.check()
            others = [other for other in world.alive() if other is not process]
            return any(attempt.fragment in own for other in others for attempt in other.attempts)

        await simulation.wait_until(is_taken_over, "another attempt", poll_s=0.1)
        await simulation.sleep(2.0)
        world.check()
        process.node.thaw()
        simulation.network.heal()
        await end(world)


@simulate(seeds=1, at_most=300)
async def test_an_executor_that_wakes_without_its_locks_counts_for_nothing(simulation: Simulation) -> None:
    with attempt_world(simulation, []) as world:
        world.is_one_machine = False
        await begin(world)
        process = await running(world)
        random = simulation.random
        await simulation.sleep(random.uniform(0.0, 1.0))
        simulation.network.isolate(world.owner_worker[process.launch.launch_id].name)
        process.node.freeze()
        world.lose_locks(process.node)
        own = {attempt.fragment for attempt in process.attempts if attempt.driver is not None}

        def is_continued() -> bool:
            world.check()
            others = [other for other in world.alive() if other is not process]
            taken = {a.fragment for other in others for a in other.attempts if a.driver is not None}
            return bool(taken & own) or not own or world.is_over()

        await simulation.wait_until(is_continued, "another attempt that runs", poll_s=0.1)
        others = [a for other in world.alive() if other is not process for a in other.attempts]
        lost = [a for a in process.attempts if a.fragment in {b.fragment for b in others if b.driver}]
        await simulation.sleep(random.choice((0.0, 0.5, 3.0)))
        process.node.thaw()

        def has_noticed() -> bool:  # out of reach, it has only its mark
            world.check()
            return all(attempt.has_ended or attempt.driver is None for attempt in lost)

        await simulation.wait_until(has_noticed, "the end of attempts without locks", poll_s=0.1)
        simulation.network.heal()
        await end(world)


async def running(world: AttemptWorld, executors: int = 1) -> ExecutorProcess:
    """The first of so many executors, once each has a query that has committed a batch."""

    def found() -> list[ExecutorProcess]:
        world.check()
        queries = [(process, query) for process in world.alive() for query in process.engine.queries]
        return [process for process, query in queries if query.is_active and query.committed >= 0]

    await world.simulation.wait_until(lambda: len(set(found())) >= executors, "batches", poll_s=0.02)
    return found()[0]


@simulate(seeds=1)
async def test_an_application_master_that_wakes_up_after_its_successor_decides_nothing(
    simulation: Simulation,
) -> None:
    with attempt_world(simulation, []) as world:
        await begin(world)
        await simulation.wait_until(lambda: world.is_preparing, "a checkpoint begins", poll_s=0.001)
        frozen = world.app_master
        frozen.freeze()
        await world.start_app_master()
        await simulation.wait_until(lambda: world.checks.prepared_epoch == world.epoch, "its successor")
        frozen.thaw()
        await end(world)


@simulate(seeds=1)
async def test_what_a_finished_fragment_owes_is_made_again_though_there_was_no_checkpoint(
    simulation: Simulation,
) -> None:
    with attempt_world(simulation, [], {"channel.window-batches": "50"}) as world:
        await begin(world)
        await simulation.wait_until(lambda: world.checks.prepared_epoch > 0, "preparation")
        state = next((world.place / "state").glob("shells-*"))
        *others, last = [fragment.id for fragment in world.drawn.plan.fragments]
        lock = FileLock(state / "fragments" / last / "lock")
        assert lock.take(), "no attempt has begun"

        def have_finished() -> bool:
            world.check()
            job = None if world.actor is None else world.actor.job
            ended = [] if job is None else [e for e in job.executions if e.state is ExecutionState.FINISHED]
            return len(ended) == len(others)

        await simulation.wait_until(have_finished, "the other fragments' ends", poll_s=0.1)
        execution = world.actor.job.execution(others[0])
        world.kill(execution.executor)
        await simulation.sleep(1.0)
        lock.release()
        await end(world)


@simulate(seeds=1)
async def test_a_fragment_that_ran_elsewhere_is_compiled_again(simulation: Simulation) -> None:
    with attempt_world(simulation, [], {"app.executors": "2"}) as world:
        await begin(world)
        await running(world, executors=2)
        for process in world.alive():
            if process.work._prepared is None:
                world.kill(process.launch.launch_id)
        await end(world)


@simulate(seeds=1)
async def test_a_java_process_that_outlives_its_executor_is_waited_for(simulation: Simulation) -> None:
    with attempt_world(simulation, []) as world:
        world.is_one_machine, world.java_rests_s, world.java_lives_on = True, (1.5,), 1.0
        await begin(world)
        for does_master_die in (True, False):
            await running(world)
            for process in [process for process in world.alive() if process.engine.queries]:
                world.kill(process.launch.launch_id)
            if does_master_die:
                world.kill_app_master()
                await simulation.wait_until(
                    lambda: world.checks.prepared_epoch == world.epoch, "preparation", poll_s=0.1
                )
        await end(world)


@simulate(seeds=1)
async def test_an_executor_starts_the_newest_attempt_and_none_that_was_cancelled_before(
    simulation: Simulation,
) -> None:
    with attempt_world(simulation, []) as world:
        await begin(world)
        process = await running(world)
        executor = process.executor
        attempt = next(attempt for attempt in executor._attempts.values() if not attempt.is_over)
        fragment, next_one = attempt.fragment, attempt.number + 1

        async def tell(*messages: Message) -> None:
            for message in messages:
                executor.context.me.tell(message)

        await process.node.run(
            lambda: tell(CancelFragment(fragment, next_one, False), Deploy(fragment, next_one, world.epoch))
        )
        await simulation.sleep(0.05)
        assert executor._attempts[fragment] is attempt
        assert not attempt._cancelled.is_set(), "an attempt that is not to start has ended another"
        await process.node.run(lambda: tell(Deploy(fragment, next_one + 1, world.epoch)))
        await simulation.wait_until(
            lambda: executor._attempts[fragment].number == next_one + 1, "the newest attempt", timeout_s=5.0
        )
        assert attempt.is_over, "the one before still runs"
        world.check()


@simulate(seeds=1)
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


@simulate(seeds=1, at_most=200)
async def test_another_application_gets_every_message_once_whatever_happens_to_both(
    simulation: Simulation,
) -> None:
    with attempt_world(simulation, [*OF_READERS, *OF_A_CHANGE, *OF_READERS]) as world:
        world.changer.changes_left = 3
        await begin(world)
        await end(world)
        # Some drawn applications are over before their reader is known to live; that of seed 0 is not.
        assert world.reader.taken or simulation.seed != 0, "nothing was read"

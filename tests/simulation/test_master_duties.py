"""What masters owe others: code on a majority, workers refused, answers without a quorum, races settled."""

from __future__ import annotations

import asyncio
import hashlib

import pytest
from master_cluster import PIECE, Cluster
from master_world import LEASE_MS, PORT

from drivetrain import __version__
from drivetrain.actor import Actor, ActorFailedError, ActorSystem, Message, PoisonPill
from drivetrain.actor.purgatory import loop_clock
from drivetrain.cluster.messages.applications import (
    Accepted,
    ApplicationSpec,
    ApplicationState,
    FoundApplication,
    GetApplication,
    Kill,
    Restart,
    Submit,
)
from drivetrain.cluster.messages.code import CodeStored, PutCode
from drivetrain.cluster.messages.leadership import NotLeader
from drivetrain.cluster.messages.registration import (
    AppMasterReport,
    RegisterWorker,
    ReportAccepted,
    WorkerInfo,
    WorkerRefused,
    WorkerRegistered,
)
from drivetrain.cluster.messages.replication import ReplicateCode
from drivetrain.errors import UnavailableError
from drivetrain.simulator import Node, Simulation, simulate


def archive(simulation: Simulation, pieces: float = 3.5) -> tuple[bytes, str]:
    data = simulation.random.randbytes(int(pieces * PIECE))
    return data, hashlib.sha256(data).hexdigest()


# ---- code


@simulate(seeds=2)
async def test_a_complete_archive_is_on_a_majority_and_survives_its_leader(simulation: Simulation) -> None:
    cluster = Cluster(simulation, 3)
    await cluster.start()
    data, sha256 = archive(simulation)
    down = next(node for node in cluster.masters if node is not cluster.leader())
    down.crash()
    assert (await cluster.put(data, sha256)).complete
    assert len(cluster.holders(sha256)) == 2
    await cluster.start_master(down)
    leader = cluster.leader()
    assert leader is not None
    leader.lose_power()
    await cluster.until(lambda: cluster.leader() not in (None, leader), "another leader")
    await cluster.submit(code=sha256)  # whoever leads now has it, or gets it
    found = cluster.leader()
    assert found is not None
    assert await cluster.read(found, sha256) == data


@simulate(seeds=2)
async def test_without_a_majority_an_archive_is_not_said_to_be_complete(simulation: Simulation) -> None:
    cluster = Cluster(simulation, 3)
    await cluster.start()
    data, sha256 = archive(simulation)
    stored = await cluster.put(data, sha256, pieces=3)
    leader = cluster.leader()
    assert leader is not None
    for node in cluster.masters:
        if node is not leader:
            simulation.network.block(leader.name, node.name)  # it still gets its lease, for a moment
    last = PutCode(sha256, stored.stored_bytes, len(data), data[stored.stored_bytes :])
    master = await cluster.master(leader)
    try:
        answer = await cluster.asker.run(lambda: master.ask(last, timeout_ms=5_000))
    except (ActorFailedError, UnavailableError):
        answer = None
    assert not (isinstance(answer, CodeStored) and answer.complete)
    simulation.network.heal()
    assert (await cluster.put(data, sha256)).complete
    assert len(cluster.holders(sha256)) >= 2


@simulate(seeds=2)
async def test_an_upload_goes_on_where_it_was_and_from_the_beginning_with_another_leader(
    simulation: Simulation,
) -> None:
    cluster = Cluster(simulation, 3)
    await cluster.start()
    data, sha256 = archive(simulation)
    await cluster.put(data, sha256, pieces=2)
    asked = await cluster.ask(PutCode(sha256, 0, len(data), b""))
    assert asked == CodeStored(sha256, 2 * PIECE, False)
    # What does not follow is not taken; what comes twice neither.
    for offset in (0, 3 * PIECE):
        again = await cluster.ask(PutCode(sha256, offset, len(data), data[offset : offset + PIECE]))
        assert again == CodeStored(sha256, 2 * PIECE, False)
    leader = cluster.leader()
    assert leader is not None
    leader.crash()
    await cluster.until(lambda: cluster.leader() not in (None, leader), "another leader")
    asked = await cluster.ask(PutCode(sha256, 0, len(data), b""))
    assert asked == CodeStored(sha256, 0, False)
    assert (await cluster.put(data, sha256)).complete
    await cluster.start_master(leader)
    assert await cluster.read(leader, sha256) is None  # the half was removed, and is not taken for the whole


@simulate(seeds=2)
async def test_bytes_that_changed_on_a_disk_are_refused_by_the_hash_and_sent_again(
    simulation: Simulation,
) -> None:
    cluster = Cluster(simulation, 3)
    await cluster.start()
    data, sha256 = archive(simulation)
    other = next(node for node in cluster.masters if node is not cluster.leader())
    wrong = data[:-1] + bytes([data[-1] ^ 1])
    chunks = [
        ReplicateCode(sha256, offset, len(data), wrong[offset : offset + PIECE])
        for offset in range(0, len(data), PIECE)
    ]
    for chunk in chunks[:-1]:
        await cluster.ask_one(other, chunk)
    with pytest.raises(ActorFailedError) as error:
        await cluster.ask_one(other, chunks[-1])
    assert error.value.failure_code == "bad-code"
    assert not [name for name in await other.run(other.disk.names) if sha256 in name]
    assert (await cluster.put(data, sha256)).complete
    await cluster.until(lambda: other.name in cluster.holders(sha256), "it has it, too", timeout_s=5)
    assert await cluster.read(other, sha256) == data


@simulate(seeds=2)
async def test_archives_are_kept_while_an_application_needs_them_and_swept_after(
    simulation: Simulation,
) -> None:
    cluster = Cluster(simulation, 3, kept_applications=1)
    await cluster.start()
    needed, unneeded = archive(simulation), archive(simulation)
    for data, sha256 in (needed, unneeded):
        await cluster.put(data, sha256)
    app_id = await cluster.submit(code=needed[1])
    await cluster.until(lambda: not cluster.holders(unneeded[1]), "the unneeded one is removed")
    await simulation.sleep(10)
    assert len(cluster.holders(needed[1])) >= 2
    assert (await cluster.view(app_id)).spec.code == needed[1]
    await cluster.ask(Kill(app_id))
    await simulation.sleep(10)
    assert cluster.holders(needed[1]), "a record that is over needs its archive, too: it may be restarted"
    assert [n for n in await cluster.masters[0].run(cluster.masters[0].disk.names) if unneeded[1] in n] == []


@simulate(seeds=2)
async def test_an_application_whose_code_nobody_has_is_refused(simulation: Simulation) -> None:
    cluster = Cluster(simulation, 3)
    await cluster.start()
    data, sha256 = archive(simulation)
    await cluster.put(data, sha256, pieces=2)  # not all of it
    assert await cluster.refused(Submit("s", ApplicationSpec("wc", sha256, "app.py"))) == "no-code"


# ---- workers


class Registering(Actor):
    """A worker as far as its registration goes."""

    def receive(self, message: Message) -> None:
        self.context.unhandled(message)


async def registered(cluster: Cluster, host: str, name: str, version: str, skew_ms: int) -> Message:
    """Register from a host of its own; returns the answer."""
    node = cluster.simulation.node(host)
    systems: list[ActorSystem] = []

    async def main(node: Node) -> None:
        systems.append(await cluster.connect(node, "worker", PORT))

    if not node.is_alive:
        await node.start(main)
    system = systems[0]
    clock_ms = cluster.clock_ms() + skew_ms

    async def ask() -> Message | None:
        worker = system.spawn(Registering, "worker")
        info = WorkerInfo(f"{name}.{host}", name, host, 1, version, clock_ms)
        return await cluster.ask_leader(system, RegisterWorker(info, worker))

    answer = await node.run(ask)
    assert answer is not None
    return answer


@simulate(seeds=2)
async def test_workers_of_another_version_or_with_a_clock_far_off_are_refused_with_the_remedy(
    simulation: Simulation,
) -> None:
    cluster = Cluster(simulation, 3)
    await cluster.start()
    old = await registered(cluster, "x0", "old", "0.0.1", 0)
    assert isinstance(old, WorkerRefused)
    assert (old.code, "same version" in old.remedy) == ("version", True)
    assert "0.0.1" in old.why
    assert __version__ in old.why
    limit_ms = cluster.settings(cluster.masters[0]).max_clock_difference_ms
    for number, skew_ms in enumerate((limit_ms + 1_000, -limit_ms - 1_000)):
        wrong = await registered(cluster, f"y{number}", f"y{number}", __version__, skew_ms)
        assert isinstance(wrong, WorkerRefused)
        assert (wrong.code, "NTP" in wrong.remedy) == ("clock", True)
    fine = await registered(cluster, "z0", "z0", __version__, limit_ms // 2)
    assert isinstance(fine, WorkerRegistered)


@simulate(seeds=2)
async def test_a_name_in_use_is_refused_until_its_worker_is_gone(simulation: Simulation) -> None:
    cluster = Cluster(simulation, 3)
    await cluster.start()
    assert isinstance(await registered(cluster, "x0", "big", __version__, 0), WorkerRegistered)
    refused = await registered(cluster, "x1", "big", __version__, 0)
    assert isinstance(refused, WorkerRefused)
    assert (refused.code, "a name of its own" in refused.remedy) == ("name-taken", True)
    assert "x0" in refused.why
    simulation.node("x0").crash()
    await simulation.sleep(5)
    assert isinstance(await registered(cluster, "x2", "big", __version__, 0), WorkerRegistered)


# ---- without a majority


@simulate(seeds=5)
async def test_without_a_majority_every_request_is_answered_and_soon_with_no_quorum(
    simulation: Simulation,
) -> None:
    cluster = Cluster(simulation, 3)
    await cluster.start()
    app_id = await cluster.submit()
    left = simulation.random.choice(cluster.masters)
    was_leading = left is cluster.leader()
    for node in cluster.masters:
        if node is not left:
            node.lose_power()
    settings = cluster.settings(left)
    now = loop_clock(simulation.loop)
    master = await cluster.master(left)
    lost_ms = now()
    for message in (
        Submit("s2", ApplicationSpec("later", "", "app.py")),
        Kill(app_id),
        GetApplication(app_id),
        Restart(app_id),
    ):
        # The stated time counts from when the lease ended; a request of before is answered when it does.
        limit_ms = settings.lease_ms + settings.quorum_timeout_ms + 500
        code = ""
        while code != "no-quorum":
            assert now() - lost_ms < limit_ms, f"{message} after {now() - lost_ms} ms, led: {was_leading}"
            try:
                answer = await cluster.asker.run(
                    lambda message=message: master.ask(message, timeout_ms=2_500)
                )
            except ActorFailedError as error:
                code = error.failure_code
            else:
                assert isinstance(answer, NotLeader | FoundApplication)
                await simulation.sleep(0.05)
    for node in cluster.masters:
        if node is not left:
            await cluster.start_master(node)
    assert (await cluster.view(app_id)).app_id == app_id


@simulate(seeds=5)
async def test_a_request_that_waits_for_a_majority_is_answered_when_the_lease_ends(
    simulation: Simulation,
) -> None:
    cluster = Cluster(simulation, 3)
    await cluster.start()
    leader = cluster.leader()
    assert leader is not None
    master = await cluster.master(leader)
    for node in cluster.masters:
        if node is not leader:
            node.lose_power()
    now = loop_clock(simulation.loop)
    began_ms = now()
    message = Submit("s1", ApplicationSpec("wc", "", "app.py"))
    answer = await cluster.asker.run(lambda: master.ask(message, timeout_ms=60_000))
    assert isinstance(answer, NotLeader), "what became of it is not known: the client asks the next leader"
    assert now() - began_ms < 2 * cluster.settings(leader).lease_ms
    for node in cluster.masters:
        if node is not leader:
            await cluster.start_master(node)
    assert isinstance(await cluster.ask(message), Accepted)


# ---- one worker for an application whose state is in an object store


def remote(executors: int) -> dict[str, str]:
    return {"state.dir": "s3://states/x", "app.executors": str(executors)}


@simulate(seeds=3)
async def test_an_application_with_a_remote_state_gets_one_worker_with_slots_for_all_of_it(
    simulation: Simulation,
) -> None:
    cluster = Cluster(simulation, 1, workers=2)  # of four slots each
    await cluster.start()
    two = await cluster.submit("two", config=remote(2))
    await cluster.wait_active(two, 1)
    three = await cluster.submit("three", config=remote(3))
    await cluster.wait_active(three, 1)
    (master,) = cluster.active(three)
    assert (master.launch.slots, master.launch.submission) == (3, "s-three")
    places = {app: (await cluster.view(app)).worker for app in (three, two)}
    assert places[three] != places[two]

    waits = await cluster.submit("waits", config=remote(4))
    too_large = await cluster.submit("too-large", config=remote(5))
    elsewhere = await cluster.submit("elsewhere", config={"state.dir": "/shared"})
    await cluster.wait_active(elsewhere, 1)
    why = (await cluster.view(too_large)).why
    assert why is not None
    assert "no worker has 5 slots; the most is 4 (an application whose state is in an object store" in why
    assert cluster.active(waits) == []
    await cluster.ask(Kill(two))
    await cluster.wait_active(waits, 1)
    assert (await cluster.view(waits)).worker == places[two]

    for app_id in (waits, elsewhere):
        await cluster.ask(Kill(app_id))
    await cluster.until(lambda: not cluster.active(waits) and not cluster.active(elsewhere), "their ends")
    await simulation.sleep(1.0)
    master.context.me.tell(PoisonPill())  # it dies, and its worker has the state
    await cluster.wait_active(three, 2)
    assert (await cluster.view(three)).worker == places[three]


@simulate(seeds=3)
async def test_all_workers_are_told_that_the_epoch_of_a_dead_application_master_is_over(
    simulation: Simulation,
) -> None:
    cluster = Cluster(simulation, 3, workers=3)
    await cluster.start()
    app_id, other = await cluster.submit(), await cluster.submit("other")
    await cluster.wait_active(app_id, 1)
    await cluster.wait_active(other, 1)
    await simulation.sleep(3.0)  # until the last worker has registered
    (app_master,) = cluster.active(app_id)
    app_master.context.me.tell(PoisonPill())
    await cluster.wait_active(app_id, 2)
    await simulation.sleep(1.0)
    assert sorted(cluster.records.ended_epochs) == [(f"w{n}-0", app_id, 1) for n in range(3)]
    cluster.check()


# ---- kill and restart


@simulate(seeds=5)
async def test_kill_and_restart_at_any_moment_leave_one_application_master_or_none(
    simulation: Simulation,
) -> None:
    random = simulation.random
    cluster = Cluster(simulation, random.choice([1, 3]), workers=2)
    await cluster.start()
    app_id = await cluster.submit()
    is_killed, epochs = False, [0]
    for _ in range(random.randrange(2, 8)):
        await simulation.sleep(random.choice([0.0, 0.001, 0.01, 0.1, 1.0]))
        if random.random() < 0.4:
            if is_killed:
                assert await cluster.refused(Kill(app_id)) == "already-over"
            else:
                killed = await cluster.ask(Kill(app_id), tries=1)
                assert isinstance(killed, FoundApplication)
                assert killed.application.state is ApplicationState.KILLED
                is_killed = True
        else:
            restarted = await cluster.ask(Restart(app_id), tries=1)
            assert isinstance(restarted, FoundApplication)
            assert restarted.application.app_id == app_id
            assert restarted.application.epoch > epochs[-1]
            epochs.append(restarted.application.epoch)
            is_killed = False
    await simulation.sleep(3)
    await cluster.until(
        lambda: len(cluster.active(app_id)) == (0 if is_killed else 1), "one, or none when it was killed"
    )
    alive = [each for ref, each in cluster.records.app_masters.items() if cluster.lives(ref)]
    assert [each for each in alive if not each.is_active] == []
    view = await cluster.view(app_id)
    assert view.state is (ApplicationState.KILLED if is_killed else ApplicationState.ACTIVE)
    assert view.epoch > epochs[-1] or is_killed
    cluster.check()


@simulate(seeds=5)
async def test_kill_and_restart_at_the_same_moment_are_taken_one_after_the_other(
    simulation: Simulation,
) -> None:
    cluster = Cluster(simulation, 3, workers=2)
    await cluster.start()
    app_id = await cluster.submit()
    await cluster.wait_active(app_id, 1)
    asks = [
        cluster.asker.run(lambda m=message: cluster.ask_leader(cluster.system, m))  # type: ignore[misc]
        for message in simulation.random.sample([Kill(app_id), Restart(app_id), Kill(app_id)], 3)
    ]
    answers = await asyncio.gather(*asks)
    states = [a.application.state for a in answers if isinstance(a, FoundApplication)]
    assert ApplicationState.PENDING in states
    await simulation.sleep(3)
    view = await cluster.view(app_id)
    assert view.state in (ApplicationState.ACTIVE, ApplicationState.KILLED)
    await cluster.until(
        lambda: len(cluster.active(app_id)) == (view.state is ApplicationState.ACTIVE), "as the registry says"
    )
    cluster.check()


# ---- fresh


@simulate(seeds=2)
async def test_the_registry_says_fresh_until_an_epoch_has_prepared_and_never_again(
    simulation: Simulation,
) -> None:
    cluster = Cluster(simulation, 3)
    await cluster.start()
    app_id = await cluster.submit(fresh=True)
    await cluster.start_worker(simulation.node("w0"))
    await cluster.wait_active(app_id, 1)
    assert (await cluster.view(app_id)).spec.fresh
    assert cluster.active(app_id)[0].launch.spec.fresh
    # It dies without having prepared: the next one still has to.
    first = cluster.active(app_id)[0]
    simulation.node("w0").crash()
    await cluster.start_worker(simulation.node("w1"))
    await cluster.wait_active(app_id, 2)
    second = cluster.active(app_id)[0]
    assert second is not first
    assert second.launch.spec.fresh
    report = AppMasterReport(app_id, 2, ApplicationState.ACTIVE, prepared=True)
    assert isinstance(await cluster.ask(report), ReportAccepted)
    assert not (await cluster.view(app_id)).spec.fresh
    await cluster.ask(Restart(app_id))
    await cluster.wait_active(app_id, 4)
    assert not cluster.active(app_id)[0].launch.spec.fresh
    leader = cluster.leader()
    assert leader is not None
    leader.lose_power()
    await cluster.until(lambda: cluster.leader() not in (None, leader), "another leader")
    assert not (await cluster.view(app_id)).spec.fresh


@simulate(seeds=2)
async def test_an_application_master_that_asks_twice_for_a_restart_is_restarted_once(
    simulation: Simulation,
) -> None:
    cluster = Cluster(simulation, 3, workers=2)
    await cluster.start()
    app_id = await cluster.submit()
    await cluster.wait_active(app_id, 1)
    epoch = (await cluster.view(app_id)).epoch
    asked = Restart(app_id, epoch=epoch)
    await cluster.ask(asked)
    restarted = (await cluster.view(app_id)).epoch
    assert restarted > epoch
    await cluster.ask(asked)  # the answer was lost, say
    launched = epoch + 2  # the restart is one, the launch another
    await cluster.wait_active(app_id, launched)
    await cluster.ask(asked)
    assert (await cluster.view(app_id)).epoch == launched
    await cluster.ask(Kill(app_id))
    again = await cluster.ask(Restart(app_id, epoch=launched))
    assert isinstance(again, FoundApplication)
    assert again.application.state is ApplicationState.KILLED
    await simulation.sleep(3)
    assert cluster.active(app_id) == []


@simulate(seeds=2)
async def test_a_replay_is_in_the_registry_until_an_epoch_has_begun_it_or_a_restart_withdraws_it(
    simulation: Simulation,
) -> None:
    cluster = Cluster(simulation, 3)
    await cluster.start()
    app_id = await cluster.submit()

    def launched(epoch: int) -> list[int | None]:
        active = [each.launch for each in cluster.active(app_id)]
        return [launch.spec.replay_from_ms for launch in active if launch.epoch == epoch]

    await cluster.start_worker(simulation.node("w0"))
    await cluster.wait_active(app_id, 1)
    await cluster.ask(Restart(app_id, 5))
    await cluster.wait_active(app_id, 3)
    assert launched(3) == [5]
    assert (await cluster.view(app_id)).spec.replay_from_ms == 5
    # It dies without having begun: the next one still has to.
    simulation.node("w0").crash()
    await cluster.start_worker(simulation.node("w1"))
    await cluster.wait_active(app_id, 4)
    assert launched(4) == [5]
    report = AppMasterReport(app_id, 4, ApplicationState.ACTIVE, prepared=True)
    assert isinstance(await cluster.ask(report), ReportAccepted)
    assert (await cluster.view(app_id)).spec.replay_from_ms is None
    await cluster.ask(Restart(app_id, 7))
    leader = cluster.leader()
    assert leader is not None
    leader.lose_power()
    await cluster.until(lambda: cluster.leader() not in (None, leader), "another leader")
    assert (await cluster.view(app_id)).spec.replay_from_ms == 7
    await cluster.ask(Restart(app_id))
    assert (await cluster.view(app_id)).spec.replay_from_ms is None


@simulate(seeds=2)
async def test_an_application_without_event_time_is_not_replayed_and_stays_as_it_is(
    simulation: Simulation,
) -> None:
    cluster = Cluster(simulation, 3)
    await cluster.start()
    spec = ApplicationSpec("shell", "", "shell.py", app_master="shell:Shell")
    accepted = await cluster.ask(Submit("s-shell", spec))
    assert isinstance(accepted, Accepted)
    assert await cluster.refused(Restart(accepted.app_id, 5)) == "cannot-replay"
    view = await cluster.view(accepted.app_id)
    assert (view.epoch, view.spec.replay_from_ms) == (0, None)


@simulate(seeds=5)
async def test_after_a_leader_that_resigns_another_leads_before_the_lease_would_have_ended(
    simulation: Simulation,
) -> None:
    cluster = Cluster(simulation, 3)
    await cluster.start()
    await simulation.sleep(simulation.random.uniform(1.0, 2.0))
    leader = cluster.leader()
    assert leader is not None
    other = next(node for node in cluster.masters if node is not leader)
    other.crash()  # so that two do not stand at once
    began_ms = simulation.now_ms
    await cluster.resign(leader)
    await cluster.until(lambda: cluster.leader() not in (None, leader), "another leads")
    # The leader renews its lease four times in each, so the others were bound for at least three quarters.
    assert simulation.now_ms - began_ms < LEASE_MS * 3 // 4

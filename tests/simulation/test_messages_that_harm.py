"""No message ends a term: absurd, too large, without a sender, or one whose handler fails half way.
Nor does one end a worker, or an application."""

from __future__ import annotations

from collections.abc import Callable
from unittest.mock import patch

import pytest
import worker_sim
from app_master_world import World as AppMasterWorld
from master_cluster import PORT, Cluster
from test_app_master_under_faults import check_the_end, tended

from drivetrain import __version__
from drivetrain.actor import Actor, Message
from drivetrain.cluster.app_master.executors.executor_pool import ExecutorPool
from drivetrain.cluster.app_master.stream.stream_progress import StreamProgress
from drivetrain.cluster.master.applications.app_masters import AppMasters
from drivetrain.cluster.messages.applications import (
    Accepted,
    ApplicationSpec,
    ApplicationState,
    FoundApplication,
    GetApplication,
    GetApplications,
    GetWorkers,
    Kill,
    Restart,
    Submit,
)
from drivetrain.cluster.messages.launching import Launched, LaunchFailed, ProcessExited, ProcessKind
from drivetrain.cluster.messages.leadership import NotLeader
from drivetrain.cluster.messages.registration import (
    AppMasterReport,
    HeldSlots,
    RegisterAppMaster,
    RegisterWorker,
    ReportAccepted,
    WorkerInfo,
    WorkerReport,
)
from drivetrain.cluster.messages.replication import (
    Digest,
    Entries,
    EntriesWritten,
    Gossip,
    GossipDigest,
    LeaseReply,
    LeaseRequest,
    ReadDigest,
    ReadEntries,
    ReleaseLease,
    VoteReply,
    VoteRequest,
    WriteBase,
    WriteEntries,
    WriteFailed,
)
from drivetrain.cluster.messages.resources import CancelRequest, RequestSlots
from drivetrain.cluster.worker.launches import Launches
from drivetrain.core.cluster.applications import ApplicationRegistry
from drivetrain.core.cluster.map_log import decode, restore
from drivetrain.core.cluster.replicated_map import Base, MapDigest, MapEntry, Stamp
from drivetrain.core.job.job import Job
from drivetrain.errors import InternalError
from drivetrain.simulator import Simulation, simulate

KIB = 1024


def large(name: str, size: int) -> Submit:
    return Submit(f"s-{name}", ApplicationSpec(name, "", "app.py", settings={"text": "x" * size}))


@simulate(seeds=2)
async def test_a_listing_that_would_not_fit_a_message_comes_in_pages_and_the_leader_stays(
    simulation: Simulation,
) -> None:
    cluster = Cluster(simulation, 3)
    cluster.frame_limit_bytes = 128 * KIB
    await cluster.start()
    term = cluster.term()
    for number in range(30):
        await cluster.ask(large(f"a{number}", 12 * KIB))
    lines = await cluster.lines()
    assert [line.app_id for line in lines] == [f"a{number}-{number + 1}" for number in reversed(range(30))]
    page = await cluster.ask(GetApplications())
    assert len(page.applications) < 30  # type: ignore[attr-defined]
    assert cluster.term() == term


@simulate(seeds=2)
async def test_what_is_too_large_for_a_record_is_refused_and_what_is_accepted_outlives_its_leaders(
    simulation: Simulation,
) -> None:
    cluster = Cluster(simulation, 3)
    cluster.frame_limit_bytes = 128 * KIB
    await cluster.start()
    limits = cluster.settings(cluster.masters[0]).limits
    term = cluster.term()
    assert await cluster.refused(large("a", limits.spec_bytes)) == "too-large"
    message = large("a", limits.spec_bytes - KIB)
    await cluster.ask(message)
    for _ in range(3):
        leader = cluster.leader()
        assert leader is not None
        leader.crash()
        await cluster.until(lambda gone=leader: cluster.leader() not in (None, gone), "another leader")  # type: ignore[misc]
        assert (await cluster.view("a")).spec == message.spec
        await cluster.start_master(leader)
    assert cluster.term() > term


@simulate(seeds=2)
async def test_a_report_that_is_too_large_is_cut_and_its_end_is_taken(simulation: Simulation) -> None:
    cluster = Cluster(simulation, 1, workers=1)
    await cluster.start()
    app_id = await cluster.submit()
    await cluster.wait_active(app_id, 1)
    limits = cluster.settings(cluster.masters[0]).limits
    report = AppMasterReport(
        app_id,
        1,
        ApplicationState.FAILED,
        why="why " * 10_000,
        result=b"r" * (limits.result_bytes + 1),
        restarts=b"s" * (limits.restarts_bytes + 1),
    )
    assert isinstance(await cluster.ask(report), ReportAccepted)
    view = await cluster.view(app_id)
    assert (view.state, view.result) == (ApplicationState.FAILED, None)
    assert view.why is not None
    assert "its last status is not kept" in view.why
    assert len(view.why) < 5_000


def absurd(cluster: Cluster) -> list[Message]:
    """Messages that make no sense, of every kind that `/user/master` takes from others."""
    me = cluster.system.spawn(Silent, None)
    far = 2**63 - 1
    info = WorkerInfo("w" * 5_000, "", "", -5, __version__, cluster.clock_ms())
    held = (HeldSlots("", "", -far, "no-kind"), HeldSlots("-", "-", far, "app_master"))
    spec = ApplicationSpec("", "../..", "/", settings={"": ""}, config={"x": "y"})
    master = cluster.addresses[0]
    digest = MapDigest(Base(-1, -far), {"": Stamp(-1, -1, "")})
    return [
        Submit("", spec),
        Submit("", ApplicationSpec("a", "x" * 70, "")),
        GetApplications(-far),
        GetApplication(""),
        GetWorkers("\x00"),
        Kill("-"),
        Restart("-", -far, -far),
        RegisterWorker(info, me, held),
        WorkerReport("w" * 5_000, held, float("nan"), -far),
        RegisterAppMaster("", -far, me),
        AppMasterReport("-", -1, ApplicationState.PENDING, -far, -far),
        RequestSlots("", "", 0, -far, me, policy="", timeout_ms=-far),
        RequestSlots("..", "..", far, far, me, timeout_ms=far),
        CancelRequest("", ""),
        Launched("", "", -1),
        Launched("a-1.x-y-z", "", -1),
        LaunchFailed("..", "", ""),
        ProcessExited("....", ProcessKind.APP_MASTER, "", -far, ""),
        VoteRequest("nobody:1", 0, far, False),
        VoteReply(master, 0, far, far, False, True),
        LeaseRequest("", -1, far, far),
        ReleaseLease(master, 0, far),
        LeaseReply(master, 0, far, far, far, True),
        Digest(master, cluster.term(), 0, -1, 0, digest),
        Digest(master, cluster.term(), 0, far, far, digest),
        ReadEntries(("", "\x00" * 100)),
        WriteEntries(-far, -far, (MapEntry("", b"", Stamp(-far, -far, "")),)),
        WriteBase(-1, 0, 0, 1, digest),
        EntriesWritten(master, cluster.term(), far),
        WriteFailed("nobody", cluster.term(), 1, "", ("",)),
    ]


class Silent(Actor):
    def receive(self, message: Message) -> None:
        """Take what comes."""


@simulate(seeds=5)
async def test_absurd_messages_with_and_without_a_sender_end_no_term(simulation: Simulation) -> None:
    cluster = Cluster(simulation, 3, workers=1)
    await cluster.start()
    app_id = await cluster.submit()
    await cluster.wait_active(app_id, 1)
    term, leader = cluster.term(), cluster.leader()
    assert leader is not None
    masters = [await cluster.master(node) for node in cluster.masters]

    async def send() -> None:
        messages = absurd(cluster)
        simulation.random.shuffle(messages)
        me = cluster.system.spawn(Silent, None)
        for message in messages:
            for master in masters:
                master.tell(message, simulation.random.choice([None, me]))

    await cluster.asker.run(send)
    await simulation.sleep(5)
    assert (await cluster.view(app_id)).epoch == 1
    assert (cluster.term(), cluster.leader()) == (term, leader)
    await cluster.submit("another")
    cluster.check()


@simulate(seeds=2)
async def test_no_stamp_base_or_fence_of_a_term_that_cannot_be_is_taken_over(simulation: Simulation) -> None:
    cluster = Cluster(simulation, 3, workers=1)
    await cluster.start()
    app_id = await cluster.submit()
    await cluster.wait_active(app_id, 1)
    term, far = cluster.term(), 2**53
    stamp, list_id = Stamp(2**62, 0, "m"), cluster.settings(cluster.masters[0]).list_id
    digests = [MapDigest(Base(2**62, 0), {}), MapDigest(Base(term, 0), {app_id: stamp, "x": stamp})]
    entry = MapEntry("x", None, stamp)

    async def send() -> None:
        me = cluster.system.spawn(Silent, None)
        for node in cluster.masters:
            master = await cluster.master(node)
            for peer in cluster.addresses:
                for series, digest in enumerate(digests, 10**6):
                    master.tell(GossipDigest(peer, series, 0, 1, digest), me)
                    master.tell(WriteBase(term, series, 0, 1, digest), me)
                master.tell(Gossip(peer, Base(2**62, 0), 1), me)
            master.tell(WriteEntries(term, 0, (entry,)), me)
            master.tell(Entries((entry,)), me)
            master.tell(ReadDigest(far), me)
            path = f"drivetrain://master@{node.name}:{PORT}/user/master/election"
            election = await cluster.system.lookup(path, timeout_ms=2_000)
            for peer in cluster.addresses:
                election.tell(VoteReply(peer, list_id, term, far, False, True), me)
                election.tell(LeaseReply(peer, list_id, term, far, 0, True), me)
                election.tell(LeaseReply(peer, list_id, term, term, 10**12, True), me)
            master.tell(WriteEntries(far, 0, ()), me)

    await cluster.asker.run(send)
    await simulation.sleep(5)
    assert cluster.term() == term
    for node in cluster.masters:
        data = await node.disk.read("registry.log") or b""
        known = restore(decode(data, "")[0], "")
        assert known.fence <= term + 1
        assert known.digest().base.term <= term
        assert all(one.term <= term for one in known.digest().stamps.values())
    await cluster.submit("another")
    assert (await cluster.view(app_id)).epoch == 1


def failing_once(method: Callable[..., object], error: Exception | None = None) -> Callable[..., object]:
    """The method, which raises the first time."""
    calls: list[int] = []

    def fails(*args: object, **kwargs: object) -> object:
        calls.append(1)
        if len(calls) == 1:
            raise error or KeyError("something that nobody thought of")
        return method(*args, **kwargs)

    return fails


@simulate(seeds=2)
async def test_what_a_handler_has_changed_before_it_failed_is_kept_and_runs(simulation: Simulation) -> None:
    cluster = Cluster(simulation, 3, workers=1)
    await cluster.start()
    term = cluster.term()

    submit = Submit("s-wc", ApplicationSpec("wc", "", "app.py"))
    with patch.object(AppMasters, "start", failing_once(AppMasters.start)):
        assert await cluster.refused(submit) == "actor-failed"
    assert cluster.term() == term
    app_id = await cluster.submit()  # the same submission again
    await cluster.wait_active(app_id, 1)
    with patch.object(AppMasters, "end", failing_once(AppMasters.end)):
        assert await cluster.refused(Kill(app_id)) == "actor-failed"
    # The refusal promises nothing; an answer to a reader shows only what a majority keeps.
    assert (await cluster.view(app_id)).state is ApplicationState.KILLED
    leader = cluster.leader()
    assert leader is not None
    leader.lose_power()
    await cluster.until(lambda: cluster.leader() not in (None, leader), "another leader")
    assert (await cluster.view(app_id)).state is ApplicationState.KILLED


@simulate(seeds=2)
async def test_a_broken_invariant_ends_the_term_and_those_who_wait_are_answered(
    simulation: Simulation,
) -> None:
    cluster = Cluster(simulation, 3)
    await cluster.start()
    term, leader = cluster.term(), cluster.leader()
    assert leader is not None
    master = await cluster.master(leader)

    def broken(*_: object) -> None:
        raise InternalError("an invariant")

    with patch.object(ApplicationRegistry, "find", broken):
        waiting = cluster.asker.run(
            lambda: master.ask(Submit("s-wc", ApplicationSpec("wc", "", "app.py")), timeout_ms=5_000)
        )
        await simulation.sleep(0.001)
        assert await cluster.refused(GetApplication("wc")) == "internal"
        answer = await waiting
    assert isinstance(answer, NotLeader | Accepted)
    await cluster.until(lambda: cluster.leader() is not None and cluster.term() > term, "another term")
    await cluster.submit()
    answer = await cluster.ask(GetApplication("wc"))
    assert isinstance(answer, FoundApplication)


@pytest.mark.parametrize(
    ("owner", "method"),
    [(Job, "changed"), (Job, "data_came"), (StreamProgress, "take"), (ExecutorPool, "launched")],
    ids=["outcome", "data", "report", "launched"],
)
@pytest.mark.parametrize("error", [KeyError("x"), InternalError("an invariant")], ids=["bug", "invariant"])
@simulate(seeds=2)
async def test_a_defect_that_a_word_of_its_own_processes_meets_is_shown_and_the_application_finishes(
    simulation: Simulation, owner: type, method: str, error: Exception
) -> None:
    world = AppMasterWorld(simulation, failures=0, refusals=0)
    with patch.object(owner, method, failing_once(getattr(owner, method), error)):
        await world.start()
        await simulation.wait_until(lambda: tended(world, world.is_over), "the end", timeout_s=600)
    check_the_end(world)
    shown = [view for view in world.result.errors if view.code == "internal"]
    assert len(shown) == 1
    assert type(error).__name__ in shown[0].what


@pytest.mark.parametrize("error", [KeyError("x"), InternalError("an invariant")], ids=["bug", "invariant"])
@simulate(seeds=2)
async def test_a_defect_that_a_launch_meets_does_not_end_the_worker(
    simulation: Simulation, error: Exception
) -> None:
    world = worker_sim.World(simulation)
    await world.start()
    await simulation.wait_until(lambda: world.is_known_to("m1"), "the registration")
    worker, actor = next(iter(world.workers.values())), world.worker

    def launch(number: int) -> None:
        reference = world.actors["m1"].context.system.reference(worker.path)
        reference.tell(world.launch(number, "m1"))

    with patch.object(Launches, "launch", failing_once(Launches.launch, error)):
        launch(1)
        await simulation.sleep(1)
        launch(2)
        await simulation.wait_until(lambda: world.launched == ["launch-2"], "the second launch")
    assert actor is not None
    assert (world.worker, world.ends) == (actor, [])
    assert actor.mishaps.defects == 1

"""A client under the simulator: leaders change, answers are lost, masters and application masters die."""

from __future__ import annotations

import hashlib
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest
from client_world import (
    SPEC,
    ScriptedAppMaster,
    ScriptedMaster,
    World,
    finished,
    serve_app_master,
    status_of,
    view_of,
    worker_view,
)

from drivetrain import Application, sinks, sources
from drivetrain.actor import ActorRef, ActorSystem, Message
from drivetrain.actor.remote import RemoteSettings, attach_remote
from drivetrain.cluster.access.keyring import Keyring
from drivetrain.cluster.access.permissions import guard_of
from drivetrain.cluster.access.system_names import app_master_name
from drivetrain.cluster.client import (
    AlreadyOverError,
    ApplicationNameError,
    ApplicationNameTakenError,
    ApplicationOverError,
    Client,
    NoLeaderError,
    NoLogError,
    NoMasterError,
    ReportEnd,
    SecretRefusedError,
    ShowNotice,
    ShowStatus,
    SpecificationTooLargeError,
    StillUnderWayError,
    Submission,
    UnknownApplicationError,
    open_client,
)
from drivetrain.cluster.messages.applications import (
    ApplicationState,
    GetApplication,
    Kill,
    Restart,
    Submit,
)
from drivetrain.cluster.messages.code import PutCode
from drivetrain.cluster.messages.following import Status
from drivetrain.code.archive import Archive
from drivetrain.config import Config
from drivetrain.core.plan.planner import plan
from drivetrain.simulator import Node, Simulation, simulate

SECRET = "a secret for simulations only"
MASTERS = ["m1:7070", "m2:7070", "m3:7070"]
TIMEOUT_MS = 10_000

DATA = random.Random(1).randbytes(700_000)  # three pieces
ARCHIVE = Archive(hashlib.sha256(DATA).hexdigest(), "wc.py", DATA)
APPLICATION = Application("wc")
APPLICATION.read(sources.text("/some/text")).sink(sinks.none())
PLAN = plan(APPLICATION.graph())
SUBMISSION = Submission(msgspec.structs.replace(SPEC, code=ARCHIVE.sha256), ARCHIVE, PLAN)


async def serve(node: Node, name: str, port: int) -> ActorSystem:
    system = ActorSystem(name, rng=node.random)
    settings = RemoteSettings(
        host=node.name, port=port, keys=Keyring(name, lambda: (SECRET,)), guard=guard_of(name)
    )
    await attach_remote(system, settings, transport=node.transport, entropy=node.entropy)
    return system


def is_last_piece(message: Message) -> bool:
    return isinstance(message, PutCode) and message.offset + len(message.data) == message.size_bytes


class Cluster:
    """Three masters on nodes of their own, one for application masters and workers, one for the client."""

    def __init__(self, simulation: Simulation) -> None:
        self.world = World(MASTERS, leader=MASTERS[0])
        self.nodes = {place: simulation.node(place.split(":")[0]) for place in MASTERS}
        self.simulation = simulation
        self.client_node = simulation.node("client")
        self.worker_nodes = [simulation.node("w1"), simulation.node("w2")]

    async def start_master(self, place: str) -> None:
        async def main(node: Node) -> None:
            system = await serve(node, "master", 7070)
            system.spawn(lambda: ScriptedMaster(self.world, place), "master")

        await self.nodes[place].start(main)

    async def start_app_master(self, node: Node, epoch: int = 1) -> ActorRef:
        async def main(node: Node) -> ActorRef:
            return serve_app_master(
                await serve(node, app_master_name("wc-1", epoch), 7080), status_of(epoch=epoch)
            )

        return await node.start(main)

    async def connect(self, secret: str = SECRET) -> Client:
        async def main(node: Node) -> Client:
            config = Config.load(
                None,
                {},
                {
                    "cluster.masters": ",".join(MASTERS),
                    "cluster.host": node.name,
                    "client.timeout": f"{TIMEOUT_MS} ms",
                },
            )
            environ = {"DRIVETRAIN_SECRET": secret}
            return await open_client(
                config, environ=environ, rng=node.random, transport=node.transport, entropy=node.entropy
            )

        return await self.client_node.start(main)


@asynccontextmanager
async def cluster(simulation: Simulation, masters: list[str] = MASTERS) -> AsyncIterator[Cluster]:
    made = Cluster(simulation)
    for place in masters:
        await made.start_master(place)
    yield made


@simulate(seeds=20)
async def test_a_submission_is_accepted_once_though_answers_are_lost_and_leaders_change(
    simulation: Simulation,
) -> None:
    async with cluster(simulation) as made:
        world = made.world
        # The answer to the first Submit is lost, and its master leads no more; the next has not got the code.
        world.lost = [PutCode, Submit]
        world.leads_after = [
            (lambda message: isinstance(message, PutCode), MASTERS[1]),
            (lambda message: isinstance(message, Submit), MASTERS[2]),
        ]
        client = await made.connect()
        app_id = await made.client_node.run(lambda: client.submit(SUBMISSION))
        assert app_id == "wc-1"
        assert len(world.applications) == 1
        assert world.count(Submit) >= 2
        assert len(set(world.submissions)) == 1


@simulate(seeds=10)
async def test_a_leader_without_the_code_is_given_it(simulation: Simulation) -> None:
    async with cluster(simulation) as made:
        world = made.world
        world.leads_after = [(is_last_piece, MASTERS[1])]
        client = await made.connect()
        assert await made.client_node.run(lambda: client.submit(SUBMISSION)) == "wc-1"
        assert bytes(world.code[MASTERS[1]][ARCHIVE.sha256]) == DATA
        assert len(world.applications) == 1


@simulate(seeds=10)
async def test_the_submission_of_the_same_id_is_the_same_and_a_living_name_is_taken(
    simulation: Simulation,
) -> None:
    async with cluster(simulation) as made:
        client = await made.connect()

        async def story() -> None:
            first = await client.submit(SUBMISSION, submission_id="mine")
            assert await client.submit(SUBMISSION, submission_id="mine") == first
            with pytest.raises(ApplicationNameTakenError, match="wc") as raised:
                await client.submit(SUBMISSION)
            assert "--name" in str(raised.value.remedy)
            await client.kill(first)
            assert await client.submit(SUBMISSION) == "wc-2"
            bad = Submission(msgspec.structs.replace(SPEC, name="7 words"), ARCHIVE, PLAN)
            with pytest.raises(ApplicationNameError):
                await client.submit(bad)
            large = msgspec.structs.replace(SPEC, name="large", settings={"text": "x" * 300_000})
            with pytest.raises(SpecificationTooLargeError) as too_large:
                await client.submit(Submission(large, ARCHIVE, PLAN))
            assert "file" in str(too_large.value.remedy)
            for number in range(3):
                await client.submit(
                    Submission(msgspec.structs.replace(SUBMISSION.spec, name=f"a{number}"), ARCHIVE, PLAN)
                )
            lines = await client.applications()
            assert [line.name for line in lines] == ["a2", "a1", "a0", "wc", "wc"], "of all pages"

        await made.client_node.run(story)


@simulate(seeds=10)
async def test_kill_and_restart_are_done_once_though_their_answers_are_lost(simulation: Simulation) -> None:
    async with cluster(simulation) as made:
        world = made.world
        world.put(view_of(state=ApplicationState.ACTIVE, epoch=1))
        world.lost = [Kill, Restart]
        client = await made.connect()

        async def story() -> None:
            assert (await client.kill("wc")).state is ApplicationState.KILLED
            with pytest.raises(AlreadyOverError):
                await client.kill("wc-1")
            assert (await client.restart("wc")).epoch == 2

        await made.client_node.run(story)
        assert world.applications["wc-1"].epoch == 2
        assert world.count(Restart) == 1


@simulate(seeds=10)
async def test_an_unknown_application_is_told_with_the_nearest_name(simulation: Simulation) -> None:
    async with cluster(simulation) as made:
        made.world.put(view_of("flights-1", spec=msgspec.structs.replace(SPEC, name="flights")))
        client = await made.connect()
        with pytest.raises(UnknownApplicationError) as raised:
            await made.client_node.run(lambda: client.application("flihgts"))
        assert "flights" in str(raised.value.remedy)


@simulate(seeds=10)
async def test_without_a_leader_every_request_ends_in_time_and_says_who_is_silent(
    simulation: Simulation,
) -> None:
    async with cluster(simulation, MASTERS[:1]) as made:
        made.world.leader = None
        client = await made.connect()
        began_ms = simulation.now_ms
        with pytest.raises(NoLeaderError) as raised:
            await made.client_node.run(lambda: client.submit(SUBMISSION))
        assert simulation.now_ms - began_ms < TIMEOUT_MS + 6_000
        assert raised.value.expected == "2 of 3 masters"
        assert "m2:7070" in str(raised.value.got)
        assert "keep running" in str(raised.value.remedy)
        assert made.world.count(Submit) == made.world.count(PutCode) == 0
        # The state of the masters can be seen all the same.
        assert len(await made.client_node.run(client.masters)) == 3


@simulate(seeds=10)
async def test_a_leader_that_comes_late_is_waited_for(simulation: Simulation) -> None:
    async with cluster(simulation, MASTERS[:2]) as made:
        made.world.leader = None
        client = await made.connect()
        asking = made.client_node.run(client.applications)
        await simulation.sleep(5)
        made.world.lead(MASTERS[1])
        assert await asking == ()


@simulate(seeds=10)
async def test_a_frozen_leader_is_left_for_its_successor(simulation: Simulation) -> None:
    async with cluster(simulation) as made:
        client = await made.connect()
        await made.client_node.run(client.applications)
        made.nodes[MASTERS[0]].freeze()
        made.world.lead(MASTERS[2])
        assert await made.client_node.run(client.applications) == ()


@simulate(seeds=10)
async def test_masters_that_are_not_there_and_a_secret_that_is_wrong_are_told_apart(
    simulation: Simulation,
) -> None:
    async with cluster(simulation, []) as made:
        client = await made.connect()
        with pytest.raises(NoMasterError) as raised:
            await made.client_node.run(client.applications)
        assert "drivetrain local" in str(raised.value.remedy)
        await made.client_node.run(client.close)
        made.client_node.crash()
        for place in MASTERS:
            await made.start_master(place)
        stranger = await made.connect("quite another secret than that")
        began_ms = simulation.now_ms
        with pytest.raises(SecretRefusedError) as refused:
            await made.client_node.run(stranger.applications)
        assert "DRIVETRAIN_SECRET" in str(refused.value.remedy)
        assert simulation.now_ms - began_ms < TIMEOUT_MS, "waiting does not help"


@simulate(seeds=20)
async def test_who_is_attached_survives_leaders_and_application_masters_and_gets_the_result(
    simulation: Simulation,
) -> None:
    async with cluster(simulation) as made:
        world, seen = made.world, []
        world.put(view_of())
        client = await made.connect()

        async def attach() -> None:
            async for one in client.follow("wc"):
                seen.extend([] if one is None else [one])

        attached = made.client_node.run(attach)
        await simulation.sleep(1)
        first = await made.start_app_master(made.worker_nodes[0])
        world.change("wc-1", state=ApplicationState.ACTIVE, epoch=1, app_master=first, worker="w1")
        await simulation.sleep(3)
        made.nodes[MASTERS[0]].crash()
        world.lead(None)
        await simulation.sleep(10)
        world.lead(MASTERS[1])
        await simulation.sleep(5)
        made.worker_nodes[0].crash()
        world.change("wc-1", state=ApplicationState.PENDING, app_master=None)
        await simulation.sleep(30)
        second = await made.start_app_master(made.worker_nodes[1], epoch=2)
        world.change("wc-1", state=ApplicationState.ACTIVE, epoch=2, app_master=second, worker="w2")
        await simulation.sleep(5)

        async def end() -> None:
            second.tell(Status(finished(epoch=2)))

        await made.worker_nodes[1].run(end)
        await simulation.sleep(1)
        world.end("wc-1", finished(epoch=2))
        await attached

        texts = [one.text for one in seen if isinstance(one, ShowNotice)]
        assert "no master leads right now; the application keeps running" in texts
        assert "the master m2:7070 leads now" in texts
        assert "application master 1 is gone; waiting for its successor" in texts
        assert "application master 2 has taken over on w2" in texts
        assert [one.status.epoch for one in seen if isinstance(one, ShowStatus)] == [1, 2, 2]
        assert seen[-1] == ReportEnd("wc-1", ApplicationState.SUCCEEDED, None, finished(epoch=2))


@simulate(seeds=10)
async def test_who_is_attached_gets_the_result_though_no_master_is_left(simulation: Simulation) -> None:
    async with cluster(simulation) as made:
        world = made.world
        app_master = await made.start_app_master(made.worker_nodes[0])
        world.put(view_of(state=ApplicationState.ACTIVE, epoch=1, app_master=app_master))
        client = await made.connect()

        async def attach() -> ReportEnd:
            async for one in client.follow("wc"):
                if isinstance(one, ReportEnd):
                    return one
            raise AssertionError

        attached = made.client_node.run(attach)
        await simulation.sleep(2)
        for node in made.nodes.values():
            node.crash()

        async def end() -> None:
            app_master.tell(Status(finished()))

        await made.worker_nodes[0].run(end)
        assert (await attached).status == finished()


@simulate(seeds=10)
async def test_the_status_is_the_application_masters_else_the_registrys(simulation: Simulation) -> None:
    async with cluster(simulation) as made:
        world = made.world
        app_master = await made.start_app_master(made.worker_nodes[0])
        world.put(view_of(state=ApplicationState.ACTIVE, epoch=1, app_master=app_master))
        client = await made.connect()
        assert (await made.client_node.run(lambda: client.status("wc")))[1] == status_of()
        made.worker_nodes[0].crash()
        assert (await made.client_node.run(lambda: client.status("wc")))[1] is None
        world.end("wc-1", finished())
        assert (await made.client_node.run(lambda: client.status("wc")))[1] == finished()


@simulate(seeds=10)
async def test_waiting_ends_with_the_application_or_in_time(simulation: Simulation) -> None:
    async with cluster(simulation) as made:
        made.world.put(view_of())
        client = await made.connect()
        with pytest.raises(StillUnderWayError, match="not over yet"):
            await made.client_node.run(lambda: client.wait("wc", timeout="3 s"))
        waiting = made.client_node.run(lambda: client.wait("wc", timeout="1 min"))
        await simulation.sleep(10)
        made.world.lead(None)
        await simulation.sleep(20)
        made.world.lead(MASTERS[2])
        made.world.end("wc-1", finished())
        assert (await waiting).state is ApplicationState.SUCCEEDED


@simulate(seeds=10)
async def test_a_clock_is_waited_for_through_changes_of_application_masters(simulation: Simulation) -> None:
    async with cluster(simulation) as made:
        world, nodes = made.world, made.worker_nodes

        async def main(node: Node) -> None:
            system = await serve(node, app_master_name("wc-1", 1), 7080)
            status = status_of(clock_ms=5_000 if node is nodes[0] else 70_000)
            actor = serve_app_master(system, status)
            world.put(view_of(state=ApplicationState.ACTIVE, app_master=actor, clock_ms=5_000))

        world.put(view_of())
        client = await made.connect()
        with pytest.raises(StillUnderWayError, match="not there yet"):
            await made.client_node.run(lambda: client.wait_clock("wc", 60_000, timeout="3 s"))
        await nodes[0].start(main)
        assert await made.client_node.run(lambda: client.wait_clock("wc", 5_000, timeout="3 s")) == 5_000
        moment = "1970-01-01T00:01"
        waiting = made.client_node.run(lambda: client.wait_clock("wc", moment, timeout="2 min"))
        await simulation.sleep(5)
        nodes[0].crash()
        await simulation.sleep(5)
        await nodes[1].start(main)
        assert await waiting == 70_000


@simulate(seeds=10)
async def test_who_waits_for_the_clock_of_what_is_over_is_told(simulation: Simulation) -> None:
    async with cluster(simulation) as made:
        made.world.put(view_of(state=ApplicationState.KILLED, clock_ms=5_000, ended_ms=20_000))
        client = await made.connect()
        assert await made.client_node.run(lambda: client.wait_clock("wc", 4_000, timeout="3 s")) == 5_000
        with pytest.raises(ApplicationOverError, match="before its clock reached 1970-01-01T00:01"):
            await made.client_node.run(lambda: client.wait_clock("wc", 60_000, timeout="3 s"))


@simulate(seeds=10)
async def test_logs_come_from_every_worker_whole_and_once(simulation: Simulation) -> None:
    async with cluster(simulation) as made:
        world = made.world
        world.put(view_of(state=ApplicationState.ACTIVE))
        logs = {"w1": {"app-master-1": b"a" * 10}, "w2": {"executor-1": b"one\n"}}

        async def main(node: Node) -> None:
            system = await serve(node, "worker", 7090)
            world.workers.append(worker_view(system, node.name, logs[node.name]))

        for node in made.worker_nodes:
            await node.start(main)
        client = await made.connect()
        pieces = await made.client_node.run(lambda: client.logs("wc", max_bytes=4))
        assert [(p.process, p.worker, p.data) for p in pieces] == [
            ("app-master-1", "w1", b"aaaa"),
            ("executor-1", "w2", b"one\n"),
        ]
        with pytest.raises(NoLogError) as raised:
            await made.client_node.run(lambda: client.logs("wc", "executor-7"))
        assert raised.value.expected == "one of app-master-1, executor-1"

        collected: dict[str, bytes] = {}

        async def follow() -> None:
            async for piece in client.follow_logs("wc", max_bytes=1_000):
                if piece is not None:
                    collected[piece.process] = collected.get(piece.process, b"") + piece.data

        following = made.client_node.run(follow)
        await simulation.sleep(3)
        logs["w2"]["executor-1"] += b"two\n"
        logs["w1"]["executor-2"] = b"new\n"
        await simulation.sleep(5)
        world.end("wc-1", finished())
        await following
        assert collected == {
            "app-master-1": b"a" * 10,
            "executor-1": b"one\ntwo\n",
            "executor-2": b"new\n",
        }


@simulate(seeds=5)
async def test_a_client_that_has_followed_leaves_nothing_behind(simulation: Simulation) -> None:
    async with cluster(simulation) as made:
        world = made.world
        app_master = await made.start_app_master(made.worker_nodes[0])
        world.put(view_of(state=ApplicationState.ACTIVE, epoch=1, app_master=app_master))
        client = await made.connect()

        async def look_and_leave() -> None:
            stream = client.follow("wc")
            async for one in stream:
                if isinstance(one, ShowStatus):
                    break
            await stream.aclose()  # type: ignore[attr-defined]

        await made.client_node.run(look_and_leave)
        await simulation.sleep(2)
        polls = world.count(GetApplication)
        await simulation.sleep(5)
        assert world.count(GetApplication) == polls
        followers = await made.worker_nodes[0].run(lambda: _followers(app_master))
        assert followers == 0
        client.system.check()
        await made.client_node.run(client.close)


async def _followers(app_master: ActorRef) -> int:
    actor = app_master.cell.actor  # type: ignore[attr-defined]
    assert isinstance(actor, ScriptedAppMaster)
    return len(actor.followers)

"""The master's process: who it is, lists that disagree, damaged and full disks, code archives."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from pathlib import Path

import pytest

from drivetrain.actor import ActorFailedError, ActorSystem, AskError, Message
from drivetrain.actor.disk import DirectoryDisk
from drivetrain.actor.remote import RemoteSettings, attach_remote
from drivetrain.cluster.access.keyring import Keyring
from drivetrain.cluster.access.permissions import guard_of
from drivetrain.cluster.master.applications.code_store import MOST_UPLOADS
from drivetrain.cluster.master.master_process import serve_master, start_master
from drivetrain.cluster.master.master_settings import MasterSettings
from drivetrain.cluster.messages.applications import Accepted, ApplicationSpec, Submit
from drivetrain.cluster.messages.code import CodeChunk, CodeStored, GetCode, PutCode
from drivetrain.cluster.messages.leadership import GetLeader, Leader
from drivetrain.cluster.messages.replication import (
    Digest,
    LeaseRequest,
    ReadDigest,
    VoteReply,
    VoteRequest,
    WriteEntries,
)
from drivetrain.code.archive import LARGEST_BYTES
from drivetrain.config import Config
from drivetrain.core.cluster.map_log import CorruptLogError
from drivetrain.errors import ConfigError, UnavailableError
from drivetrain.simulator import Node, Simulation, simulate
from free_ports import free_port

SECRET = "a secret for simulations only"


def settings(*masters: str, me: str = "m0:7") -> MasterSettings:
    return MasterSettings(me=me, masters=masters or ("m0:7",), lease_ms=400, quorum_timeout_ms=1_000)


async def connect(node: Node, name: str = "master") -> ActorSystem:
    system = ActorSystem(name, rng=node.random)
    await attach_remote(
        system,
        RemoteSettings(host=node.name, port=7, keys=Keyring(name, lambda: (SECRET,)), guard=guard_of(name)),
        transport=node.transport,
        entropy=node.entropy,
    )
    return system


def test_a_master_finds_itself_on_the_list() -> None:
    masters = "127.0.0.1:1,127.0.0.1:2,10.0.0.1:1"
    config = Config.load(None, {}, {"cluster.masters": masters, "master.port": "2"})
    assert MasterSettings.from_config(config).me == "127.0.0.1:2"
    assert MasterSettings.from_config(config).quorum == 2


@pytest.mark.parametrize("sets", [{"master.port": "9"}, {"cluster.host": "10.0.0.9"}, {}])
def test_a_master_that_is_not_on_the_list_or_there_twice_says_so(sets: dict[str, str]) -> None:
    config = Config.load(None, {}, {"cluster.masters": "127.0.0.1:1,127.0.0.1:2", **sets})
    with pytest.raises(ConfigError) as error:
        MasterSettings.from_config(config)
    assert error.value.where == "cluster.masters"


def test_a_directory_serves_one_master_only(tmp_path: Path) -> None:
    async def run() -> None:
        port = free_port()
        sets = {"cluster.masters": f"127.0.0.1:{port}", "master.directory": str(tmp_path)}
        config, stop, ready = Config.load(None, {}, sets), asyncio.Event(), asyncio.Event()
        first = asyncio.create_task(serve_master(config, stop, on_ready=lambda _: ready.set()))
        done, _ = await asyncio.wait(
            [first, asyncio.create_task(ready.wait())], timeout=20, return_when=asyncio.FIRST_COMPLETED
        )
        assert first not in done
        with pytest.raises(UnavailableError, match="another master"):
            await serve_master(config, stop)
        stop.set()
        await first

    asyncio.run(run())


def test_a_damaged_registry_is_an_error_and_not_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "registry.log").write_bytes(b"x" * 100)

    async def run() -> None:
        system = ActorSystem("master")
        disk = DirectoryDisk(tmp_path)
        try:
            with pytest.raises(CorruptLogError):
                await start_master(system, settings(), disk)
        finally:
            await system.terminate()
            disk.close()

    asyncio.run(run())


class Alone:
    """One master and a client in its process."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.node = simulation.node("m0")

    async def start(self) -> None:
        async def main(node: Node) -> None:
            self.system = await connect(node)
            self.master, self.leadership = await start_master(
                self.system, settings(), node.disk, node.clock_ms
            )

        await self.node.start(main)
        await self.wait_leading()

    async def wait_leading(self) -> None:
        for _ in range(200):
            leader = await self.node.run(lambda: self.master.ask(GetLeader(), Leader))
            if leader.master is not None:
                return
            await self.simulation.sleep(0.05)
        raise AssertionError("nobody leads")

    async def submit(self, number: int) -> Accepted:
        message = Submit(f"s{number}", ApplicationSpec(f"a{number}", "", "app.py"))
        return await self.node.run(lambda: self.master.ask(message, Accepted))

    async def code_files(self) -> set[str]:
        names = await self.node.disk.names()
        return {name for name in names if name.startswith("code-")}

    async def put(self, data: bytes, sha256: str) -> CodeStored:
        offset = 0
        while True:
            message = PutCode(sha256, offset, len(data), data[offset : offset + 100])
            stored = await self.node.run(lambda message=message: self.master.ask(message, CodeStored))
            if stored.complete:
                return stored
            offset = stored.stored_bytes


@simulate(seeds=5)
async def test_an_archive_is_stored_survives_a_crash_and_is_read_in_pieces(simulation: Simulation) -> None:
    alone, data = Alone(simulation), bytes(range(250)) * 3
    sha256 = hashlib.sha256(data).hexdigest()
    await alone.start()
    await alone.put(data, sha256)
    alone.node.lose_power()
    await alone.start()
    read = b""
    while len(read) < len(data):
        question = GetCode(sha256, len(read))
        read += (await alone.node.run(lambda question=question: alone.master.ask(question, CodeChunk))).data
    assert read == data


@simulate(seeds=3)
async def test_an_archive_with_other_bytes_than_its_name_says_is_refused(simulation: Simulation) -> None:
    alone = Alone(simulation)
    await alone.start()
    for sha256 in ("0" * 64, "../../../etc/passwd"):
        with pytest.raises(ActorFailedError) as error:
            await alone.put(b"data", sha256)
        assert error.value.failure_code == "bad-code"


@simulate(seeds=3)
async def test_uploads_are_limited_where_they_arrive(simulation: Simulation) -> None:
    alone = Alone(simulation)
    await alone.start()

    async def put(name: int, size_bytes: int, offset: int = 0) -> CodeStored:
        message = PutCode(f"{name:064x}", offset, size_bytes, b"data")
        return await alone.node.run(lambda: alone.master.ask(message, CodeStored))

    for size_bytes in (0, -1, LARGEST_BYTES + 1, 2**62):
        with pytest.raises(ActorFailedError) as error:
            await put(1, size_bytes)
        assert error.value.failure_code == "bad-code"
    # Asking how much there is keeps nothing, and of uploads that nobody ends only the newest stay.
    for name in range(200):
        await alone.node.run(
            lambda name=name: alone.master.ask(PutCode(f"{name:064x}", 0, 9, b""), CodeStored)
        )
    assert await alone.code_files() == set()
    for name in range(3 * MOST_UPLOADS):
        await put(name, LARGEST_BYTES)
    kept = {f"code-{name:064x}.0" for name in range(2 * MOST_UPLOADS, 3 * MOST_UPLOADS)}
    assert await alone.code_files() == kept
    # What is in use stays: it is needed, and an upload that goes on is the newest.
    await alone.put(b"some data", hashlib.sha256(b"some data").hexdigest())


@simulate(seeds=3)
async def test_a_term_that_cannot_be_is_refused_and_a_fence_is_not_for_ever(simulation: Simulation) -> None:
    alone = Alone(simulation)
    await alone.start()
    before = alone.leadership.election.term
    for absurd in (2**62, before + 2**33, -1):
        for message in (
            ReadDigest(absurd),
            VoteRequest("m0:7", settings().list_id, absurd, False),
            LeaseRequest("m0:7", settings().list_id, absurd, 0),
            VoteReply("m0:7", settings().list_id, before, absurd, False, False),
            WriteEntries(absurd, 1, ()),
        ):
            with contextlib.suppress(AskError):
                await alone.node.run(
                    lambda message=message: alone.master.ask(message, Message, timeout_ms=100)
                )
    assert alone.leadership.election.term == before
    await alone.submit(1)
    # A leader of a much later term, of which this master has not heard, once was here.
    await alone.node.run(lambda: alone.master.ask(ReadDigest(before + 1000), Digest))
    with contextlib.suppress(AskError):
        await alone.submit(2)
    await alone.wait_leading()
    assert alone.leadership.election.term > before + 1000
    await alone.submit(3)


@simulate(seeds=3)
async def test_submissions_without_code_or_with_a_bad_name_are_refused(simulation: Simulation) -> None:
    alone = Alone(simulation)
    await alone.start()
    for name, code, reason in (("wc", "1" * 64, "no-code"), ("w c", "", "bad-name")):
        message = Submit("s", ApplicationSpec(name, code, "app.py"))
        with pytest.raises(ActorFailedError) as error:
            await alone.node.run(lambda message=message: alone.master.ask(message, Accepted))
        assert error.value.failure_code == reason


@simulate(seeds=5)
async def test_a_full_disk_costs_the_acknowledgement_and_nothing_that_was_acknowledged(
    simulation: Simulation,
) -> None:
    alone = Alone(simulation)
    await alone.start()

    def submit(number: int) -> Submit:
        return Submit(f"s{number}", ApplicationSpec(f"a{number}", "", "app.py"))

    first = await alone.node.run(lambda: alone.master.ask(submit(1), Accepted))
    alone.node.disk.capacity_bytes = 10
    with pytest.raises(UnavailableError):
        await alone.node.run(lambda: alone.master.ask(submit(2), Accepted, timeout_ms=3_000))
    alone.node.disk.capacity_bytes = None
    await alone.wait_leading()
    again = await alone.node.run(lambda: alone.master.ask(submit(1), Accepted))
    assert again == first
    alone.node.lose_power()
    await alone.start()
    assert await alone.node.run(lambda: alone.master.ask(submit(1), Accepted)) == first

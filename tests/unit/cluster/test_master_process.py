"""The master's process: who it is, lists that disagree, damaged and full disks, code archives."""

from __future__ import annotations

import asyncio
import hashlib
import socket
from pathlib import Path

import pytest

from drivetrain.actor import ActorFailedError, ActorSystem
from drivetrain.actor.disk import DirectoryDisk
from drivetrain.actor.remote import RemoteSettings, attach_remote
from drivetrain.cluster.master.process import serve_master, start_master
from drivetrain.cluster.master.settings import MasterSettings
from drivetrain.cluster.messages.applications import Accepted, ApplicationSpec, Submit
from drivetrain.cluster.messages.code import CodeChunk, CodeStored, GetCode, PutCode
from drivetrain.cluster.messages.leadership import GetLeader, Leader
from drivetrain.config import Config
from drivetrain.core.map_log import CorruptLogError
from drivetrain.errors import ConfigError, UnavailableError
from drivetrain.testing import Node, Simulation, simulate

SECRET = "a secret for simulations only"


def settings(*masters: str, me: str = "m0:7") -> MasterSettings:
    return MasterSettings(me=me, masters=masters or ("m0:7",), lease_ms=400, quorum_timeout_ms=1_000)


async def connect(node: Node, name: str = "master") -> ActorSystem:
    system = ActorSystem(name, rng=node.random)
    await attach_remote(
        system,
        RemoteSettings(host=node.name, port=7, secret=SECRET),
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
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
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
            self.master, self.standing = await start_master(self.system, settings(), node.disk, node.clock_ms)

        await self.node.start(main)
        await self.wait_leading()

    async def wait_leading(self) -> None:
        for _ in range(200):
            leader = await self.node.run(lambda: self.master.ask(GetLeader(), Leader))
            if leader.master is not None:
                return
            await self.simulation.sleep(0.05)
        raise AssertionError("nobody leads")

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

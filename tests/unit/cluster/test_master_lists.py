"""Masters that disagree about who the masters are: who came later ends, both do when nobody came first."""

from __future__ import annotations

import asyncio
import logging
import socket
from pathlib import Path

import pytest

from drivetrain.actor import ActorSystem
from drivetrain.actor.remote import RemoteSettings, attach_remote
from drivetrain.cluster.access.keyring import Keyring
from drivetrain.cluster.access.permissions import guard_of
from drivetrain.cluster.master.master_messages import Leadership
from drivetrain.cluster.master.master_process import serve_master, start_master
from drivetrain.cluster.master.master_settings import MasterSettings
from drivetrain.cluster.master.registry.master_list import SAME_TIME_MS
from drivetrain.config import Config
from drivetrain.errors import ConfigError
from drivetrain.simulator import Node, Simulation, simulate

LATER_S = 2 * SAME_TIME_MS / 1000


class Masters:
    """Masters by name; what each of them makes of the others is in its `Leadership`."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.standings: dict[str, Leadership] = {}

    async def start(self, name: str, *others: str) -> None:
        masters = tuple(f"{each}:7" for each in (name, *others))

        async def main(node: Node) -> None:
            system = ActorSystem("master", rng=node.random)
            remote = RemoteSettings(
                host=node.name,
                port=7,
                keys=Keyring("master", lambda: ("a secret for simulations only",)),
                guard=guard_of("master"),
            )
            await attach_remote(system, remote, transport=node.transport, entropy=node.entropy)
            settings = MasterSettings(me=f"{name}:7", masters=masters, lease_ms=400, quorum_timeout_ms=1_000)
            _, self.standings[name] = await start_master(system, settings, node.disk, node.clock_ms)

        await self.simulation.node(name).start(main)

    def refused(self) -> set[str]:
        """Those that have found themselves wrong."""
        return {name for name, leadership in self.standings.items() if leadership.refusal is not None}

    def leads(self, name: str) -> bool:
        """Whether it may act as a leader now."""
        leadership = self.standings[name]
        return leadership.leads(leadership.election.term)


@simulate(seeds=10)
async def test_the_one_that_starts_later_ends_whichever_list_has_the_other(simulation: Simulation) -> None:
    masters = Masters(simulation)
    await masters.start("m0", "m1")
    await masters.start("m1", "m0")
    both = simulation.random.choice([("m0", "m1"), ("m0",), ("m1",)])
    await simulation.wait_until(lambda: masters.leads("m0") or masters.leads("m1"), "a leader")
    await simulation.sleep(LATER_S)
    await masters.start("m2", *both)
    await simulation.wait_until(lambda: bool(masters.refused()), "an end")
    await simulation.sleep(LATER_S)
    assert masters.refused() == {"m2"}
    assert not masters.leads("m2")
    assert masters.leads("m0") or masters.leads("m1")
    with pytest.raises(ConfigError, match="has another list") as error:
        await masters.standings["m2"].wait_refused()
    assert error.value.got == ", ".join(f"{name}:7" for name in ("m2", *both))
    assert set((error.value.expected or "").split(", ")) == {"m0:7", "m1:7"}
    assert "the same list on every machine" in (error.value.remedy or "")


@simulate(seeds=10)
async def test_one_that_is_not_on_the_lists_of_those_it_is_told_of_by_ends_when_it_is_later(
    simulation: Simulation, caplog: pytest.LogCaptureFixture
) -> None:
    masters = Masters(simulation)
    with caplog.at_level(logging.ERROR, "drivetrain.cluster"):
        await masters.start("m0", "m1", "m2")
        await masters.start("m1", "m0", "m2")
        await simulation.sleep(LATER_S)
        await masters.start("m2")  # alone, it would lead a cluster of its own
        await simulation.wait_until(lambda: "m2" in masters.refused(), "its end")
        await simulation.wait_until(lambda: not masters.leads("m2"), "it leads no more")
        await simulation.sleep(LATER_S)
    assert masters.refused() == {"m2"}
    told = [record.getMessage() for record in caplog.records]
    assert [line for line in told if line.startswith("m2:7 ends: ")]
    assert [line for line in told if " keeps running, as it started first" in line]


@simulate(seeds=20)
async def test_both_end_when_they_start_at_once(simulation: Simulation) -> None:
    masters = Masters(simulation)
    lists = (
        [("m0", "m1", "m2"), ("m1", "m0")] if simulation.random.random() < 0.5 else [("m0", "m1"), ("m1",)]
    )
    await asyncio.gather(*(masters.start(*each) for each in lists))
    await simulation.wait_until(lambda: masters.refused() == {"m0", "m1"}, "both have ended", timeout_s=30)
    await simulation.wait_until(lambda: not masters.leads("m0") and not masters.leads("m1"), "nobody leads")


@simulate(seeds=10)
async def test_one_ends_though_the_network_was_cut_when_they_started(simulation: Simulation) -> None:
    masters = Masters(simulation)
    simulation.nodes("m0", "m1")
    simulation.network.isolate("m0")
    await masters.start("m0", "m1")
    await simulation.sleep(LATER_S)
    await masters.start("m1", "m0", "m2")
    await simulation.sleep(LATER_S)
    assert not masters.refused()
    simulation.network.heal()
    await simulation.wait_until(lambda: masters.refused() == {"m1"}, "the end of the later one", timeout_s=30)


@simulate(seeds=5)
async def test_the_order_of_the_list_does_not_matter(simulation: Simulation) -> None:
    masters = Masters(simulation)
    await masters.start("m0", "m1", "m2")
    await masters.start("m1", "m2", "m0")
    await simulation.wait_until(lambda: masters.leads("m0") or masters.leads("m1"), "a leader")
    await simulation.sleep(LATER_S)
    assert not masters.refused()


def test_the_processes_end_with_the_error(tmp_path: Path) -> None:
    async def run() -> None:
        with socket.socket() as one, socket.socket() as other:
            one.bind(("127.0.0.1", 0))
            other.bind(("127.0.0.1", 0))
            ports = one.getsockname()[1], other.getsockname()[1]
        both = ",".join(f"127.0.0.1:{port}" for port in ports)
        lists = [both, f"{both},127.0.0.2:1"]
        configs = [
            Config.load(
                None,
                {},
                {
                    "cluster.masters": listed,
                    "master.port": str(port),
                    "master.directory": str(tmp_path / str(port)),
                },
            )
            for port, listed in zip(ports, lists, strict=True)
        ]
        serving = asyncio.gather(*(serve_master(config) for config in configs), return_exceptions=True)
        for outcome in await asyncio.wait_for(serving, 30):
            assert isinstance(outcome, ConfigError)
            assert "write the same list" in str(outcome)

    asyncio.run(run())

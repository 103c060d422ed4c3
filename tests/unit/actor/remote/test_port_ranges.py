"""Systems that listen within a range of ports, as firewalls need it."""

from __future__ import annotations

import asyncio

import pytest
from tests.free_ports import free_ports

from drivetrain.actor import ActorSystem
from drivetrain.actor.remote import PortsInUseError, RemoteSettings, attach_remote


def test_systems_share_a_range_and_the_next_one_is_refused() -> None:
    first = free_ports(2)
    ports = range(first, first + 2)

    async def listen() -> list[int]:
        systems = [ActorSystem(f"s{number}") for number in range(3)]
        settings = RemoteSettings(ports=ports)
        try:
            taken = [(await attach_remote(system, settings)).port for system in systems[:2]]
            with pytest.raises(PortsInUseError, match=f"{ports[0]}-{ports[-1]}"):
                await attach_remote(systems[2], settings)
            await systems[0].terminate()
            again = (await attach_remote(systems[2], settings)).port
            assert again == taken[0]
            return taken
        finally:
            for system in systems:
                await system.terminate()

    assert sorted(asyncio.run(listen())) == list(ports)

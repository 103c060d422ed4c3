"""Probes of masters and workers: what is answered, and what a client cannot do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.free_ports import free_port

from drivetrain.cluster import health
from drivetrain.cluster.health import Readiness, health_server
from drivetrain.config import Config
from drivetrain.errors import ConfigError


def with_server(readiness: Readiness, scenario: Callable[[int], Awaitable[None]]) -> None:
    async def main() -> None:
        port = free_port()
        config = Config.load(None, {}, {"cluster.health-port": str(port)})
        async with health_server(config, lambda: readiness):
            await scenario(port)

    asyncio.run(main())


async def answer(port: int, request: bytes) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    try:
        return (await reader.read()).decode()
    except ConnectionResetError:
        return ""
    finally:
        writer.close()


def get(path: str, method: str = "GET") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()


@pytest.mark.parametrize(
    ("readiness", "status"),
    [(Readiness(True, "leads"), "200 OK"), (Readiness(False, "no leader"), "503 Service Unavailable")],
)
def test_readiness_is_a_status_with_its_reason(readiness: Readiness, status: str) -> None:
    async def scenario(port: int) -> None:
        ready = await answer(port, get("/readyz"))
        assert ready.startswith(f"HTTP/1.1 {status}\r\n")
        assert ready.endswith(f"\r\n\r\n{readiness.why}\n")
        assert (await answer(port, get("/healthz?verbose"))).startswith("HTTP/1.1 200 OK")
        assert (await answer(port, get("/readyz", "HEAD"))).endswith("\r\n\r\n")

    with_server(readiness, scenario)


def test_nothing_else_is_served_and_nonsense_ends_only_its_own_connection() -> None:
    async def scenario(port: int) -> None:
        assert (await answer(port, get("/"))).startswith("HTTP/1.1 404")
        assert (await answer(port, get("/readyz", "POST"))).startswith("HTTP/1.1 405")
        assert (await answer(port, b"\xff\x00\r\n\r\n")).startswith("HTTP/1.1 404")
        assert await answer(port, b"x" * (3 * health.MOST_BYTES)) == ""
        assert (await answer(port, get("/readyz"))).startswith("HTTP/1.1 200")

    with_server(Readiness(True, "leads"), scenario)


def test_a_client_that_sends_nothing_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "TIMEOUT_S", 0.05)
    with_server(Readiness(True, "leads"), lambda port: _expect(answer(port, b"GET /readyz"), ""))


def test_more_clients_than_allowed_are_turned_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "MOST_CONNECTIONS", 1)

    async def scenario(port: int) -> None:
        _, first = await asyncio.open_connection("127.0.0.1", port)
        first.write(b"GET ")
        await first.drain()
        await _expect(answer(port, get("/readyz")), "")
        first.close()

    with_server(Readiness(True, "leads"), scenario)


def test_a_port_in_use_is_an_error_that_names_the_key() -> None:
    async def scenario(port: int) -> None:
        config = Config.load(None, {}, {"cluster.health-port": str(port)})
        with pytest.raises(ConfigError, match=r"cluster\.health-port"):
            async with health_server(config, lambda: Readiness(True, "")):
                pass

    with_server(Readiness(True, ""), scenario)


async def _expect(got: Awaitable[str], wanted: str) -> None:
    assert await got == wanted

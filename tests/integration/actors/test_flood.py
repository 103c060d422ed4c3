"""A flood of strangers beside an exchange of messages: the exchange goes on, and others can still join."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from contextlib import suppress
from pathlib import Path

import pytest
from actor_processes import SECRET, Child, Ping, Pong, child, system
from test_tls import Authority
from test_unproven_peers import GARBAGE, hello_to

from drivetrain.actor.remote.peer_warnings import MOST_LINES

MOST_HANDSHAKES = 32
CONNECTIONS = 1_500
KEPT = 100
"""So many connections each flooder holds open."""


class Flood:
    """Connections that say nothing, too little, or nonsense, from two hosts, for as long as it is wanted."""

    def __init__(self, other: Child) -> None:
        self._other = other
        self.connections = 0

    async def run(self, host: str) -> None:
        kinds = [
            b"",
            hello_to(self._other)[:20],
            hello_to(self._other),
            *(make(self._other) for make in GARBAGE.values()),
        ]
        held: deque[asyncio.StreamWriter] = deque()
        while True:
            with suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", self._other.port, local_addr=(host, 0))
                writer.write(kinds[self.connections % len(kinds)])
                held.append(writer)
            self.connections += 1
            if len(held) > KEPT:
                held.popleft().transport.abort()


@pytest.mark.nightly("test_tls reaches what it reaches")
@pytest.mark.parametrize("is_encrypted", [False, True], ids=["plain", "TLS"])
def test_an_exchange_goes_on_beside_a_flood_and_others_can_join(is_encrypted: bool, tmp_path: Path) -> None:
    authority = Authority(tmp_path, "authority")

    def options(name: str) -> dict[str, object]:
        return {"secret": SECRET} | ({"tls": authority.issue(name)} if is_encrypted else {})

    async def main() -> None:
        async with (
            child(tmp_path, max_handshakes=MOST_HANDSHAKES, **options("theirs")) as other,
            system(**options("ours")) as here,
        ):
            echo = await here.lookup(other.echo)
            assert await echo.ask(Ping(0), Pong) == Pong(0, 1)
            descriptors = len(os.listdir(f"/proc/{other.process.pid}/fd"))
            flood = Flood(other)
            tasks = [asyncio.create_task(flood.run(host)) for host in ("127.0.0.1", "127.0.0.2")]
            number = received = 1
            most = 0
            while flood.connections < CONNECTIONS:
                # The session that was lost for a moment would show here: what was told would be gone.
                assert await echo.ask(Ping(number), Pong) == Pong(number, received + 1)
                number, received = number + 1, received + 1
                most = max(most, len(os.listdir(f"/proc/{other.process.pid}/fd")))
                if number % 100 == 0:
                    async with system("friend", **options("friend")) as friend:
                        found = await friend.lookup(other.echo, timeout_ms=20_000)
                        received += 1
                        assert await found.ask(Ping(7), Pong) == Pong(7, received)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            assert number > CONNECTIONS // 50, "as long as the flood, the exchange goes on"
            # Those in their handshake, a few that have just been closed, and friends.
            assert most - descriptors < 2 * MOST_HANDSHAKES + 20
            assert len(other.log_lines) < 5 * MOST_LINES
            assert all(line.isprintable() for line in other.log_lines)

    asyncio.run(main())

"""What anybody who reaches the port can cost: connections, memory, lines in the log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

from drivetrain.actor import ActorSystem
from drivetrain.actor.path import Address
from drivetrain.actor.remote import (
    Connection,
    ConnectionEvents,
    RemoteSettings,
    TcpTransport,
    associations,
    attach_remote,
)
from drivetrain.actor.remote.associations import Associations
from drivetrain.actor.remote.handshake import AcceptorHandshake, LocalIdentity
from drivetrain.actor.remote.peer_warnings import LONGEST, MOST_LINES, PERIOD_S, PeerWarnings, printable
from drivetrain.actor.remote.pending_handshakes import PendingHandshakes
from drivetrain.actor.remote.remote import Remote
from drivetrain.actor.remote.transport import Frame
from drivetrain.actor.remote.wire import PROTOCOL_VERSION, Hello, encode

ME = Address("me", "h", 7, 1)
MOST = 8


class Line:
    """A connection that remembers whether it was closed."""

    def __init__(self, peer: str) -> None:
        self.peer = peer
        self.buffered_bytes = 0
        self.is_closed = False
        self.owner: ConnectionEvents | None = None

    def allow_frames(self, limit_bytes: int) -> None:
        pass

    def send(self, frame: bytes) -> None:
        pass

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = True


def connect(strangers: PendingHandshakes, host: str, number: int = 0) -> Line:
    line = Line(f"{host}:{number}")
    line.owner = strangers.accept(
        line, AcceptorHandshake(LocalIdentity(ME, None, 1000), lambda _: 0, bytes(32))
    )
    return line


def in_loop(test: Callable[[PendingHandshakes], Awaitable[None]]) -> Callable[[], None]:
    def run() -> None:
        async def main() -> None:
            loop = asyncio.get_running_loop()
            strangers = PendingHandshakes(loop, MOST, 5.0, lambda link, agreement: None)
            await test(strangers)
            strangers.close()

        asyncio.run(main())

    run.__name__ = test.__name__
    return run


@in_loop
async def test_the_oldest_stranger_goes_for_the_newest(strangers: PendingHandshakes) -> None:
    lines = [connect(strangers, "10.0.0.9", number) for number in range(20)]
    assert len(strangers) == 6
    assert [line.is_closed for line in lines] == [True] * 14 + [False] * 6


@in_loop
async def test_places_are_kept_for_hosts_from_which_a_peer_has_proved_itself(
    strangers: PendingHandshakes,
) -> None:
    strangers.know(connect(strangers, "10.0.0.1").owner)  # type: ignore[arg-type]
    known = [connect(strangers, "10.0.0.1", number) for number in range(3)]
    for number in range(50):
        connect(strangers, "10.0.0.9", number)
    assert not any(line.is_closed for line in known)
    assert len(strangers) == MOST
    more = [connect(strangers, "10.0.0.1", number) for number in range(5)]
    assert not any(line.is_closed for line in (*known, *more))
    connect(strangers, "10.0.0.1", 99)
    assert [line.is_closed for line in (*known, *more)].count(True) == 1
    assert known[0].is_closed


def test_what_is_not_printable_never_reaches_the_log() -> None:
    assert printable("a\nCRITICAL b\x1b[31m\x00\u202ec") == "a?CRITICAL b?[31m??c"
    assert len(printable("x" * 10**6)) < LONGEST + 10


def test_lines_about_strangers_are_few_and_the_others_counted(caplog: pytest.LogCaptureFixture) -> None:
    now_s = 1000.0
    complaints = PeerWarnings(logging.getLogger("test.complaints"), lambda: now_s)
    with caplog.at_level(logging.WARNING):
        for number in range(100_000):
            complaints.warn(f"line {number}\n")
        assert len(caplog.records) == MOST_LINES
        now_s += PERIOD_S
        complaints.warn("later")
    assert len(caplog.records) == MOST_LINES + 1
    assert caplog.records[-1].getMessage() == "later (and 99990 such lines that were left out)"
    assert caplog.records[0].getMessage() == "line 0?"


class Unused:
    """An association that nobody uses."""

    def __init__(self, place: Address) -> None:
        self.place = place
        self.is_needed = False

    def is_unused(self) -> bool:
        return not self.is_needed


def test_places_that_peers_name_are_bounded_and_those_in_use_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(associations, "MOST_PLACES", 100)
    places = Associations(Unused)  # type: ignore[arg-type]
    used = places.find(Address("used", "h", 1, 5))
    used.is_needed = True  # type: ignore[attr-defined]
    for number in range(300):
        address = Address("s", f"h{number}", 1, number + 1)
        if places.has_room_for(address):
            places.find(address).is_needed = True  # type: ignore[attr-defined]
    assert len(places) == 100
    assert places.has_room_for(Address("used", "h", 1, 6))
    for association in places:
        association.is_needed = association is used  # type: ignore[attr-defined]
    places.prune()
    assert len(places) == 1
    assert places.get(Address("used", "h", 1, 77)) is used


async def greet(port: int, claimed: str) -> None:
    """Connect, claim an address, read the challenge and go."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    hello = encode(
        Hello(PROTOCOL_VERSION, claimed, f"drivetrain://me@127.0.0.1:{port}", bytes(32), 0, 1000, True)
    )
    writer.write(len(hello).to_bytes(4, "big") + hello)
    await reader.read(100)
    writer.close()


def test_nothing_is_kept_of_what_is_claimed_before_it_is_proven() -> None:
    async def main() -> None:
        system = ActorSystem("me")
        remote: Remote = await attach_remote(system, RemoteSettings(secret="a secret for this test"))
        for number in range(200):
            await greet(remote.port, f"drivetrain://s{number}@10.0.0.{number % 9}:7~{number + 1}")
        assert len(remote._places) == 0
        await system.terminate()

    asyncio.run(main())


def test_a_connection_is_counted_and_ended_before_its_tls_handshake(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who accepts TLS connections is told of each at once, and its deadline ends one that says nothing."""

    async def main() -> None:
        ended: list[Exception | None] = []
        opened: list[Connection] = []

        class Events:
            def frame_received(self, frame: Frame) -> None:
                raise AssertionError("no frame can come")

            def connection_lost(self, error: Exception | None) -> None:
                ended.append(error)

            def writing_paused(self) -> None:
                pass

            def writing_resumed(self) -> None:
                pass

        def accept(connection: Connection) -> ConnectionEvents:
            opened.append(connection)
            return Events()

        import ssl

        transport = TcpTransport()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        monkeypatch.setattr(transport, "_tls", type("Tls", (), {"server": staticmethod(lambda: context)})())
        listener = await transport.wait_listening("127.0.0.1", 0, accept)
        silent = [await asyncio.open_connection("127.0.0.1", listener.port) for _ in range(5)]
        noisy = await asyncio.open_connection("127.0.0.1", listener.port)
        noisy[1].write(b"this is no TLS at all" * 10)
        await noisy[0].read()
        while len(opened) < 6 or not ended:
            await asyncio.sleep(0.01)
        assert len(opened) == 6
        opened[0].send(b"nothing may leave in clear")
        for connection in opened[:5]:
            connection.abort()
        assert [await reader.read() for reader, _ in silent] == [b""] * 5
        while len(ended) < 6:
            await asyncio.sleep(0.01)
        assert len(ended) == 6
        for _, writer in (*silent, noisy):
            writer.close()
        await listener.wait_closed()

    asyncio.run(asyncio.wait_for(main(), 20))

"""Who connects and does not belong: refused with one clear line, while everybody else is served."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from actor_processes import SECRET, Child, Ping, Pong, child, system, wait_until, watcher_of

from drivetrain.actor import UnreachableError
from drivetrain.actor.remote.auth import NONCE_BYTES
from drivetrain.actor.remote.framing import header_of
from drivetrain.actor.remote.wire import PROTOCOL_VERSION, Batch, Hello, encode
from nightly_run import some_by_day


@asynccontextmanager
async def raw(other: Child) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A plain TCP connection to the child."""
    reader, writer = await asyncio.open_connection("127.0.0.1", other.port)
    try:
        yield reader, writer
    finally:
        writer.close()


async def is_closed_by_the_other_side(reader: asyncio.StreamReader) -> bool:
    try:
        return await asyncio.wait_for(read_to_the_end(reader), 10) is not None
    except ConnectionResetError:
        return True


async def read_to_the_end(reader: asyncio.StreamReader) -> bytes:
    return await reader.read(-1)


def hello_to(other: Child) -> bytes:
    me = "drivetrain://stranger@127.0.0.1:9~7"
    target = f"drivetrain://child@{other.place}"
    frame = encode(Hello(PROTOCOL_VERSION, me, target, bytes(NONCE_BYTES), 0, 10_000, False))
    return header_of(frame) + frame


def framed(frame: bytes) -> bytes:
    return header_of(frame) + frame


GARBAGE: dict[str, Callable[[Child], bytes]] = {
    "noise": lambda _: random.Random(1).randbytes(100_000),
    "a web request": lambda _: b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "a frame of a gigabyte": lambda _: (1 << 30).to_bytes(4, "big") + bytes(1000),
    "an empty frame": lambda _: bytes(8),
    "a frame that is no message": lambda _: framed(b"\xc1\xc1\xc1"),
    "text that is not UTF-8": lambda _: framed(b"\x98\x01\x01\xa4\xff\xff\xff\xff" + bytes(20)),
    "a batch before any greeting": lambda _: framed(encode(Batch(1, []))),
    "a greeting and then noise": lambda other: hello_to(other) + framed(b"\xc1" * 50),
    "a greeting for somebody else": lambda other: hello_to(other).replace(b"child@", b"cheld@"),
}


@pytest.mark.parametrize(
    "kind",
    some_by_day(
        GARBAGE,
        ["noise", "a frame of a gigabyte", "a greeting and then noise"],
        "test_fuzzed_messages; other garbage is refused by day",
    ),
)
def test_garbage_is_refused_with_one_line_and_others_are_served(kind: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with child(tmp_path) as other, system() as here:
            echo = await here.lookup(other.echo)
            async with raw(other) as (reader, writer):
                writer.write(GARBAGE[kind](other))
                assert await is_closed_by_the_other_side(reader)
            assert await echo.ask(Ping(1), Pong) == Pong(1, 1)
            await wait_until(lambda: other.log_lines, "a line in the log")
            (line,) = other.log_lines
            assert "WARNING refused the connection from 127.0.0.1:" in line

    asyncio.run(main())


def test_garbage_within_a_session_ends_the_connection_and_a_new_one_is_made(tmp_path: Path) -> None:
    async def main() -> None:
        async with child(tmp_path) as other, system() as here:
            echo = await here.lookup(other.echo)
            assert await echo.ask(Ping(1), Pong) == Pong(1, 1)
            (association,) = here.provider._places  # type: ignore[union-attr]
            link = association._link
            link._connection.send(b"\xc1 not a frame")
            await wait_until(lambda: other.log_lines and association._link is not link, "the connection ends")
            assert await echo.ask(Ping(2), Pong, timeout_ms=5_000) == Pong(2, 2)
            (line,) = other.log_lines
            assert "lost the connection with drivetrain://parent@127.0.0.1:" in line
            assert "not a frame of the actor protocol" in line

    asyncio.run(main())


def test_connections_that_say_nothing_are_closed_and_do_not_keep_others_out(tmp_path: Path) -> None:
    async def main() -> None:
        async with child(tmp_path, max_handshakes=10) as other, system() as here:
            silent = [await asyncio.open_connection("127.0.0.1", other.port) for _ in range(30)]
            # Half a frame, and then nothing.
            silent[0][1].write(hello_to(other)[:20])
            closed = await asyncio.gather(*(is_closed_by_the_other_side(reader) for reader, _ in silent))
            assert all(closed)
            echo = await here.lookup(other.echo)
            assert await echo.ask(Ping(1), Pong) == Pong(1, 1)
            for _, writer in silent:
                writer.close()

    asyncio.run(main())


@pytest.mark.parametrize("theirs", ["another secret for tests", None])
@pytest.mark.parametrize("ours", [SECRET, None])
def test_only_who_knows_the_secret_gets_a_session(
    ours: str | None, theirs: str | None, tmp_path: Path
) -> None:
    async def main() -> None:
        async with child(tmp_path, secret=theirs) as other, system(secret=ours) as here:
            if ours == theirs:
                assert await (await here.lookup(other.echo)).ask(Ping(1), Pong) == Pong(1, 1)
                assert other.log_lines == []
                return
            with pytest.raises(UnreachableError):
                await here.lookup(other.echo, timeout_ms=10_000)
            await wait_until(lambda: other.log_lines, "a line in the log")
            assert "shared secret" in other.log_lines[0]
            assert len(other.log_lines) == 1

    asyncio.run(main())


def test_with_the_same_secret_messages_pass_and_are_sealed(tmp_path: Path) -> None:
    async def main() -> None:
        async with child(tmp_path, secret=SECRET) as other, system(secret=SECRET) as here:
            echo = await here.lookup(other.echo)
            assert await echo.ask(Ping(1, os.urandom(200_000)), Pong) == Pong(1, 1)
            (association,) = here.provider._places  # type: ignore[union-attr]
            # What somebody between us would add: a well-formed frame without a seal.
            link = association._link
            link._connection.send(encode(Batch(99, [])))
            await wait_until(lambda: other.log_lines and association._link is not link, "the connection ends")
            assert "not sealed by the peer" in other.log_lines[0]
            assert await echo.ask(Ping(2), Pong, timeout_ms=5_000) == Pong(2, 2)

    asyncio.run(main())


def test_a_connection_on_which_nothing_arrives_any_more_is_found_and_replaced(tmp_path: Path) -> None:
    async def main() -> None:
        proxy = Proxy()
        port = await proxy.listen()
        async with child(tmp_path, port=port, bind_port=0) as other, system() as here:
            # The child is known by the proxy's port and listens on another, which only the proxy knows.
            proxy.target = await listening_port(other)
            echo = await here.lookup(other.echo)
            watcher = watcher_of(here, echo)
            assert await echo.ask(Ping(1), Pong) == Pong(1, 1)
            proxy.is_passing = False
            await wait_until(lambda: watcher.told, "Terminated on a half-open connection")
            proxy.is_passing = True
            assert await (await here.lookup(other.echo)).ask(Ping(2), Pong) == Pong(2, 2)
            assert len(watcher.told) == 1
        proxy.close()

    asyncio.run(main())


async def listening_port(other: Child) -> int:
    """The one TCP port on which the process listens, from the kernel's table."""
    inodes = {
        os.readlink(f"/proc/{other.process.pid}/fd/{number}")
        for number in os.listdir(f"/proc/{other.process.pid}/fd")
    }
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A" and f"socket:[{fields[9]}]" in inodes:
            return int(fields[1].partition(":")[2], 16)
    raise AssertionError("the child does not listen")


class Proxy:
    """Passes bytes between whoever connects and a target, or swallows them without a word."""

    def __init__(self) -> None:
        self.target = 0
        self.is_passing = True
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def listen(self) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    def close(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self.target)
        for source, sink in ((reader, there_writer), (there_reader, writer)):
            task = asyncio.create_task(self._pump(source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        was_blocked = False
        try:
            while data := await source.read(65_536):
                was_blocked = was_blocked or not self.is_passing
                # A connection that has lost bytes stays dead: half-open, as behind a firewall that forgot it.
                if not was_blocked:
                    sink.write(data)
        except ConnectionError:
            pass
        finally:
            if not was_blocked:
                sink.close()

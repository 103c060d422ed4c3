"""Processes that die, freeze and come back, as their peers see them."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest
from actor_processes import Count, Counted, GetCounted, Ping, Pong, child, system, wait_until, watcher_of

from drivetrain.actor import (
    ActorRef,
    ActorStoppedError,
    AskError,
    MailboxFullError,
    TerminationCause,
    UnreachableError,
)
from drivetrain.actor.remote import MessageTooLargeError


def test_a_killed_process_is_noticed_once_and_asks_to_it_have_an_outcome(tmp_path: Path) -> None:
    async def main() -> None:
        async with system() as here, child(tmp_path) as other:
            echo = await here.lookup(other.echo)
            watchers = [watcher_of(here, echo) for _ in range(3)]
            assert await echo.ask(Ping(1), Pong) == Pong(1, 1)
            await other.wait_killed()
            with pytest.raises(AskError):
                await echo.ask(Ping(2), Pong, timeout_ms=5_000)
            await wait_until(lambda: all(watcher.told for watcher in watchers), "Terminated")
            await asyncio.sleep(0.5)
            assert [[told.cause for told in watcher.told] for watcher in watchers] == [
                [TerminationCause.UNREACHABLE]
            ] * 3

    asyncio.run(main())


def test_a_new_process_at_the_same_address_is_another_life(tmp_path: Path) -> None:
    async def main() -> None:
        async with system(heartbeat_pause_ms=60_000) as here:
            async with child(tmp_path) as first:
                old = await here.lookup(first.echo)
                watcher = watcher_of(here, old)
                assert await old.ask(Ping(1), Pong) == Pong(1, 1)
                await first.wait_killed()
                async with child(tmp_path, port=first.port) as second:
                    # The pause is long: it is the new life's greeting that tells of the end of the old one.
                    await wait_until(lambda: watcher.told, "Terminated")
                    new = await here.lookup(second.echo)
                    assert new != old
                    assert await new.ask(Ping(2), Pong) == Pong(2, 1)
                    with pytest.raises(ActorStoppedError):
                        await old.ask(Ping(3), Pong, timeout_ms=5_000)
                    late = watcher_of(here, old)
                    await wait_until(lambda: late.told, "Terminated for a watch on a life that is over")
            assert len(watcher.told) == len(late.told) == 1

    asyncio.run(main())


@pytest.mark.nightly("other tests of this module reach what it reaches")
def test_a_frozen_process_is_declared_dead_and_comes_back_without_a_restart(tmp_path: Path) -> None:
    async def main() -> None:
        async with system() as here, child(tmp_path) as other:
            echo = await here.lookup(other.echo)
            watcher = watcher_of(here, echo)
            assert await echo.ask(Ping(1), Pong) == Pong(1, 1)
            other.send_signal(signal.SIGSTOP)
            await wait_until(lambda: watcher.told, "Terminated while frozen")
            assert watcher.told[0].cause is TerminationCause.UNREACHABLE
            other.send_signal(signal.SIGCONT)

            # The same reference, the same process: its counter goes on.
            again = await here.lookup(other.echo)
            assert again == echo
            assert await echo.ask(Ping(2), Pong) == Pong(2, 2)
            new_watcher = watcher_of(here, echo)
            await asyncio.sleep(0.8)
            assert (len(watcher.told), new_watcher.told) == (1, [])

            await other.wait_killed()
            await wait_until(lambda: new_watcher.told, "Terminated after the kill")
            assert (len(watcher.told), len(new_watcher.told)) == (1, 1)

    asyncio.run(main())


@pytest.mark.nightly("other tests of this module reach what it reaches")
def test_a_process_that_freezes_for_less_than_the_pause_is_not_declared_dead(tmp_path: Path) -> None:
    async def main() -> None:
        async with system(heartbeat_pause_ms=3_000) as here, child(tmp_path) as other:
            echo = await here.lookup(other.echo)
            watcher = watcher_of(here, echo)
            await echo.ask(Ping(1), Pong)
            other.send_signal(signal.SIGSTOP)
            await asyncio.sleep(1.0)
            other.send_signal(signal.SIGCONT)
            await asyncio.sleep(1.0)
            assert await echo.ask(Ping(2), Pong) == Pong(2, 2)
            assert watcher.told == []

    asyncio.run(main())


@pytest.mark.nightly("test_actors_under_faults; other tests of this module reach what it reaches")
def test_a_flood_to_a_frozen_process_is_bounded_and_what_arrives_is_in_order(tmp_path: Path) -> None:
    async def main() -> None:
        options = {"queue_limit": 2_000, "heartbeat_pause_ms": 60_000}
        async with system(**options) as here, child(tmp_path, heartbeat_pause_ms=60_000) as other:
            echo = await here.lookup(other.echo)
            other.send_signal(signal.SIGSTOP)
            for number in range(300_000):
                echo.tell(Count(number))
                if number % 1000 == 0:
                    await asyncio.sleep(0)
            refused = here.dead_letters.total
            assert refused > 0
            with pytest.raises(MailboxFullError):
                await echo.ask(GetCounted(), Counted)
            other.send_signal(signal.SIGCONT)
            counted = await ask_until_there_is_room(echo)
            assert counted == Counted(300_000 - refused, in_order=True)

    asyncio.run(main())


async def ask_until_there_is_room(echo: ActorRef) -> Counted:
    while True:
        try:
            return await echo.ask(GetCounted(), Counted, timeout_ms=20_000)
        except MailboxFullError:
            await asyncio.sleep(0.01)


@pytest.mark.nightly("other tests of this module reach what it reaches; test_tls")
def test_every_message_arrives_once_and_in_order(tmp_path: Path) -> None:
    async def main() -> None:
        async with system() as here, child(tmp_path) as other:
            echo = await here.lookup(other.echo)
            for number in range(50_000):
                echo.tell(Count(number))
                if number % 500 == 0:
                    await asyncio.sleep(0)
            counted = await echo.ask(GetCounted(), Counted, timeout_ms=20_000)
            assert counted == Counted(50_000, in_order=True)

    asyncio.run(main())


def test_a_message_over_the_limit_is_refused_at_the_sender_and_the_next_one_arrives(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            system(frame_limit_bytes=100_000) as here,
            child(tmp_path, frame_limit_bytes=50_000) as other,
        ):
            echo = await here.lookup(other.echo)
            with pytest.raises(MessageTooLargeError) as caught:
                await echo.ask(Ping(1, bytes(60_000)), Pong)
            # The other side takes less than we do, and said so in its handshake.
            assert caught.value.limit_bytes == 50_000
            assert "actor.frame-limit" in str(caught.value)
            assert await echo.ask(Ping(2, bytes(49_000)), Pong) == Pong(2, 1)

    asyncio.run(main())


def test_nobody_at_the_address_is_told_at_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with system() as here, child(tmp_path) as other:
            await other.wait_killed()
            with pytest.raises(UnreachableError):
                await here.lookup(other.echo, timeout_ms=20_000)

    asyncio.run(main())

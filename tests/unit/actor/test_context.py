"""Work beside an actor's messages: blocking functions, piped outcomes, and what a stop does to them."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
from actor_harness import Boom, Note, in_system, quiet

from drivetrain.actor import (
    Actor,
    ActorCancelledError,
    ActorRef,
    ActorStoppedError,
    ActorSystem,
    Message,
)


class Piper(Actor):
    """Pipes the given awaitable to itself at each `Note("pipe")`."""

    def __init__(self, log: list[str], awaited: asyncio.Future[str]) -> None:
        self.log, self.awaited = log, awaited

    def receive(self, message: Message) -> None:
        match message:
            case Note("pipe"):
                self.context.pipe_to_self(self.wait(), Note, self.failed)
            case Note(text):
                self.log.append(text)
            case Boom():
                raise ValueError

    async def wait(self) -> str:
        try:
            return await asyncio.shield(self.awaited)
        except asyncio.CancelledError:
            if not self.awaited.done():
                self.log.append("wait cancelled")
            raise

    def failed(self, error: Exception) -> Message:
        return Note(f"failed: {type(error).__name__}")


def piper(system: ActorSystem) -> tuple[list[str], asyncio.Future[str], ActorRef]:
    log: list[str] = []
    awaited: asyncio.Future[str] = system.loop.create_future()
    return log, awaited, system.spawn(lambda: Piper(log, awaited))


@in_system
async def test_a_piped_outcome_comes_as_a_message_and_others_are_handled_meanwhile(
    system: ActorSystem,
) -> None:
    log, awaited, actor = piper(system)
    actor.tell(Note("pipe"))
    actor.tell(Note("meanwhile"))
    await quiet()
    awaited.set_result("outcome")
    await quiet()
    assert log == ["meanwhile", "outcome"]


@in_system
async def test_a_piped_failure_comes_as_a_message(system: ActorSystem) -> None:
    log, awaited, actor = piper(system)
    actor.tell(Note("pipe"))
    await quiet()
    awaited.set_exception(OSError("gone"))
    await quiet()
    assert log == ["failed: OSError"]


@in_system
async def test_a_cancellation_of_what_was_piped_comes_as_a_failure(system: ActorSystem) -> None:
    log, awaited, actor = piper(system)
    actor.tell(Note("pipe"))
    await quiet()
    awaited.cancel()
    await quiet()
    assert log == [f"failed: {ActorCancelledError.__name__}"]


@in_system
async def test_piped_work_ends_with_its_instance(system: ActorSystem) -> None:
    log, awaited, actor = piper(system)
    actor.tell(Note("pipe"))
    await quiet()
    actor.tell(Boom())
    await quiet()
    assert log == ["wait cancelled"]
    actor.tell(Note("pipe"))
    await quiet()
    system.stop(actor)
    await quiet()
    assert log == ["wait cancelled"] * 2
    awaited.set_result("nobody cares")
    await quiet()
    assert system.dead_letters.total == 0


@in_system
async def test_an_outcome_that_makes_no_message_is_a_failure_of_the_actor(system: ActorSystem) -> None:
    class Careless(Actor):
        def receive(self, message: Message) -> None:
            def broken(value: object) -> Message:
                raise KeyError("no message")

            self.context.pipe_to_self(asyncio.sleep(1), broken, broken)

    system.spawn(Careless).tell(Note("x"))
    await asyncio.sleep(2)
    assert system.failures == 1


@in_system
async def test_a_blocking_function_gives_its_result_or_its_error_to_the_actor(system: ActorSystem) -> None:
    class Blocks(Actor):
        async def receive(self, message: Message) -> None:
            try:
                text = await self.context.blocking("-".join, [message.text, "done"])  # type: ignore[attr-defined]
                await self.context.blocking(int, text)
            except ValueError as error:
                self.context.reply(Note(str(error)))

    answer = await system.spawn(Blocks).ask(Note("7"), Note)
    assert "7-done" in answer.text


@in_system
async def test_a_stop_drops_the_result_of_a_blocking_function(system: ActorSystem) -> None:
    class Blocks(Actor):
        async def receive(self, message: Message) -> None:
            await self.context.blocking(lambda: None)
            self.context.reply(message)

    actor = system.spawn(Blocks)
    asked = asyncio.ensure_future(actor.ask(Note("x")))
    await quiet()
    system.stop(actor)
    with pytest.raises(ActorStoppedError):
        await asked


def test_a_blocking_function_runs_in_a_thread_and_the_loop_goes_on() -> None:
    class Blocks(Actor):
        async def receive(self, message: Message) -> None:
            thread = await self.context.blocking(self.block)
            self.context.reply(Note(thread))

        def block(self) -> str:
            # Held until the loop, which goes on, has handled a message of somebody else.
            assert released.wait(30)
            return threading.current_thread().name

    class Releases(Actor):
        def receive(self, message: Message) -> None:
            released.set()

    released = threading.Event()

    async def run() -> None:
        system = ActorSystem("real", blocking_threads=1)
        asked = asyncio.ensure_future(system.spawn(Blocks).ask(Note("x"), Note, timeout_ms=30_000))
        await asyncio.sleep(0)
        system.spawn(Releases).tell(Note("go"))
        assert (await asked).text.startswith("actor-blocking")
        system.check()
        await system.terminate()
        system.check()

    asyncio.run(run())


def test_a_thread_may_tell_through_the_system() -> None:
    async def run() -> None:
        system = ActorSystem("real")
        got = system.loop.create_future()

        class Gets(Actor):
            def receive(self, message: Message) -> None:
                got.set_result(message)

        actor = system.spawn(Gets)
        thread = threading.Thread(target=lambda: system.tell_threadsafe(actor, Note("hello")))
        thread.start()
        assert await asyncio.wait_for(got, 30) == Note("hello")
        thread.join()
        await system.terminate()

    asyncio.run(run())


def test_a_system_runs_and_ends_on_the_real_loop() -> None:
    class Waits(Actor):
        async def receive(self, message: Message) -> None:
            async with asyncio.timeout(5):
                await asyncio.sleep(0.001)
            self.context.reply(message)

    async def run() -> None:
        system = ActorSystem("real")
        actors = [system.spawn(Waits) for _ in range(100)]
        replies = await asyncio.gather(*(actor.ask(Note(str(n)), Note) for n, actor in enumerate(actors)))
        assert [reply.text for reply in replies] == [str(n) for n in range(100)]
        system.check()
        await system.terminate()
        system.check()

    began = time.monotonic()
    asyncio.run(run(), debug=True)
    assert time.monotonic() - began < 60

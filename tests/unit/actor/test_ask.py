"""Asks: every one has exactly one outcome, as soon as that is known."""

from __future__ import annotations

import asyncio

import pytest
from actor_harness import Boom, Note, in_system, quiet

from drivetrain.actor import (
    Actor,
    ActorFailedError,
    ActorNotFoundError,
    ActorRef,
    ActorStoppedError,
    ActorSystem,
    AskTimeoutError,
    DeadLetterReason,
    Failure,
    InvalidPathError,
    Message,
    UnexpectedReplyError,
    UnhandledMessageError,
    UnreachableError,
)
from drivetrain.config import Config


class Wait(Message):
    seconds: float


class Echo(Actor):
    """Answers, after the wait it was asked for; to `Boom` twice."""

    async def receive(self, message: Message) -> None:
        match message:
            case Wait(seconds):
                await asyncio.sleep(seconds)
                self.context.reply(message)
            case Boom():
                self.context.reply(message)
                self.context.reply(message)
            case Failure():
                self.context.reply(message)
            case _:
                self.context.unhandled(message)


@in_system
async def test_a_reply_in_time_is_the_outcome(system: ActorSystem) -> None:
    echo = system.spawn(Echo)
    before = system.loop.time()
    answer = await echo.ask(Wait(0.25), Wait, timeout_ms=1_000)
    assert answer.seconds == 0.25
    assert system.loop.time() - before == pytest.approx(0.25)


@in_system
async def test_without_a_reply_the_ask_fails_at_its_timeout_and_a_late_reply_is_a_dead_letter(
    system: ActorSystem,
) -> None:
    echo = system.spawn(Echo)
    before = system.loop.time()
    with pytest.raises(AskTimeoutError, match="within 500 ms"):
        await echo.ask(Wait(1), timeout_ms=500)
    assert system.loop.time() - before == pytest.approx(0.5, abs=0.002)
    system.check()
    await asyncio.sleep(1)
    assert system.dead_letters.counts[DeadLetterReason.LATE_REPLY] == 1


@in_system(config=Config.load(sets={"actor.ask.timeout": "3 s", "actor.lookup.timeout": "1 s"}))
async def test_the_timeout_is_configured_unless_given(system: ActorSystem) -> None:
    echo = system.spawn(Echo)
    before = system.loop.time()
    with pytest.raises(AskTimeoutError):
        await echo.ask(Wait(100))
    assert system.loop.time() - before == pytest.approx(3, abs=0.002)


@in_system
async def test_a_second_reply_is_a_dead_letter(system: ActorSystem) -> None:
    assert await system.spawn(Echo).ask(Boom()) == Boom()
    await quiet()
    assert system.dead_letters.counts[DeadLetterReason.LATE_REPLY] == 1


@in_system
async def test_asking_nobody_fails_at_once(system: ActorSystem) -> None:
    echo = system.spawn(Echo, "echo")
    system.stop(echo)
    await quiet()
    before = system.loop.time()
    with pytest.raises(ActorStoppedError):
        await echo.ask(Wait(0))
    missing = system.reference(echo.path)
    with pytest.raises(ActorStoppedError):
        await missing.ask(Wait(0))
    assert system.loop.time() == before


@in_system
async def test_asking_what_is_not_handled_fails_at_once(system: ActorSystem) -> None:
    with pytest.raises(UnhandledMessageError):
        await system.spawn(Echo).ask(Note("what?"))


@in_system
async def test_a_failure_as_reply_is_raised_with_its_code(system: ActorSystem) -> None:
    with pytest.raises(ActorFailedError, match="no slots") as caught:
        await system.spawn(Echo).ask(Failure("no-slots", "no slots are free", remedy="wait"))
    assert caught.value.failure_code == "no-slots"
    assert caught.value.remedy == "wait"


@in_system
async def test_a_reply_of_another_type_than_expected_is_an_error(system: ActorSystem) -> None:
    with pytest.raises(UnexpectedReplyError):
        await system.spawn(Echo).ask(Wait(0), Note)


@in_system
async def test_a_cancelled_ask_leaves_nothing_behind(system: ActorSystem) -> None:
    echo = system.spawn(Echo)
    asked = asyncio.ensure_future(echo.ask(Wait(1)))
    await quiet()
    asked.cancel()
    await quiet()
    system.check()
    await asyncio.sleep(2)
    assert system.dead_letters.counts[DeadLetterReason.LATE_REPLY] == 1


@in_system
async def test_many_asks_get_their_own_replies(system: ActorSystem) -> None:
    echoes = [system.spawn(Echo) for _ in range(10)]
    waits = [number / 100 for number in range(50)]
    replies = await asyncio.gather(*(echoes[n % 10].ask(Wait(wait), Wait) for n, wait in enumerate(waits)))
    assert [reply.seconds for reply in replies] == waits


@in_system
async def test_actors_ask_actors(system: ActorSystem) -> None:
    echo = system.spawn(Echo)

    class Asks(Actor):
        async def receive(self, message: Message) -> None:
            answer = await echo.ask(message, Wait)
            self.context.reply(answer)

    asks = system.spawn(Asks)
    assert await asks.ask(Wait(0.5)) == Wait(0.5)
    with pytest.raises(ActorFailedError, match="UnhandledMessageError"):
        await asks.ask(Note("x"))


@in_system
async def test_the_end_of_the_system_is_an_outcome(system: ActorSystem) -> None:
    class Silent(Actor):
        def receive(self, message: Message) -> None:
            pass

    asked = asyncio.ensure_future(system.spawn(Silent).ask(Note("x")))
    await quiet()
    await system.terminate()
    with pytest.raises(ActorStoppedError):
        await asked


@in_system
async def test_a_lookup_finds_who_has_the_name_now(system: ActorSystem) -> None:
    class Parent(Actor):
        def pre_start(self) -> None:
            self.context.spawn(Echo, "child")

        def receive(self, message: Message) -> None:
            pass

    parent = system.spawn(Parent, "parent")
    await quiet()
    assert await system.lookup("/user/parent") == parent
    child = await system.lookup("/user/parent/child")
    assert await system.lookup(str(child.path)) == child
    assert child.path.local == "/user/parent/child"
    for path in ("/user/nobody", "/user/parent/child/deeper", f"/user/parent#{child.path.uid}"):
        with pytest.raises(ActorNotFoundError):
            await system.lookup(path)
    for path in ("user/parent", "", "drivetrain://", "/user//x"):
        with pytest.raises(InvalidPathError):
            await system.lookup(path)


@in_system
async def test_other_systems_are_unreachable_without_a_provider(system: ActorSystem) -> None:
    with pytest.raises(UnreachableError):
        await system.lookup("drivetrain://other@127.0.0.1:7070/user/x")


@in_system
async def test_a_reference_in_a_message_answers_like_any_other(system: ActorSystem) -> None:
    class Meet(Message):
        other: ActorRef

    class Introduces(Actor):
        async def receive(self, message: Message) -> None:
            assert isinstance(message, Meet)
            self.context.reply(await message.other.ask(Wait(0)))

    assert await system.spawn(Introduces).ask(Meet(system.spawn(Echo))) == Wait(0)

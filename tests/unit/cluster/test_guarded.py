"""Guarded actors: no message makes them fail, only a broken invariant does."""

from __future__ import annotations

import asyncio
import logging

import pytest

from drivetrain.actor import ActorFailedError, ActorSystem, Message
from drivetrain.cluster.guarded import ErrorCounts, GuardedActor
from drivetrain.errors import InternalError, UserError


class Do(Message, frozen=True, tag="test.guarded.do"):
    what: str
    waits: bool = False


class Done(Message, frozen=True, tag="test.guarded.done"):
    done: int


class Guarded(GuardedActor):
    def __init__(self) -> None:
        self.done = 0
        self.recoveries = 0

    def act(self, message: Message) -> object:  # type: ignore[override]
        assert isinstance(message, Do)
        return self.wait(message) if message.waits else self.do(message)

    async def wait(self, message: Do) -> None:
        await asyncio.sleep(0)
        self.do(message)

    def do(self, message: Do) -> None:
        match message.what:
            case "user":
                raise UserError("not like that", remedy="like this")
            case "bug":
                raise KeyError("x" * 1_000)
            case "invariant":
                raise InternalError("broken")
        self.done += 1
        self.context.reply(Done(self.done))

    def recovered(self) -> None:
        self.recoveries += 1
        raise RuntimeError("this fails, too")


@pytest.mark.parametrize("waits", [False, True])
def test_what_a_handler_raises_is_answered_and_the_actor_goes_on(waits: bool) -> None:
    asyncio.run(raise_and_go_on(waits))


async def raise_and_go_on(waits: bool) -> None:
    system = ActorSystem("test")
    made: list[Guarded] = []

    def make() -> Guarded:
        made.append(Guarded())
        return made[-1]

    actor = system.spawn(make, "guarded")
    assert await actor.ask(Do("", waits), Done, timeout_ms=5_000) == Done(1)
    with pytest.raises(ActorFailedError) as refused:
        await actor.ask(Do("user", waits), Done, timeout_ms=5_000)
    assert (refused.value.failure_code, refused.value.remedy) == ("user", "like this")
    with pytest.raises(ActorFailedError) as failed:
        await actor.ask(Do("bug", waits), Done, timeout_ms=5_000)
    assert failed.value.failure_code == "actor-failed"
    assert len(failed.value.what) < 500
    actor.tell(Do("", waits))  # nobody to reply to
    assert await actor.ask(Do("", waits), Done, timeout_ms=5_000) == Done(3)
    assert (len(made), made[0].recoveries, system.failures) == (1, 3, 0)
    with pytest.raises(ActorFailedError):
        await actor.ask(Do("invariant", waits), Done, timeout_ms=5_000)
    assert await actor.ask(Do("", waits), Done, timeout_ms=5_000) == Done(1)
    assert len(made) == 2
    await system.terminate()


def test_what_happens_often_is_logged_ever_more_rarely(caplog: pytest.LogCaptureFixture) -> None:
    mishaps = ErrorCounts()
    with caplog.at_level(logging.WARNING):
        logged = [mishaps.note("this", UserError("two\nlines")) for _ in range(1_000)]
        mishaps.note("that", UserError("x"))
    assert len(caplog.records) == sum(logged) + 1 == 11
    assert "512 times" in caplog.records[-2].message
    assert "\n" not in caplog.text.strip().split("WARNING")[1].strip()
    assert (mishaps.total, mishaps.defects) == (1_001, 0)


def raised(error: Exception) -> Exception:
    try:
        raise error
    except type(error) as caught:
        return caught


@pytest.mark.parametrize("error", [KeyError("x" * 9_999), InternalError("broken")], ids=["bug", "invariant"])
def test_a_defect_of_ours_is_logged_with_its_traceback_and_counted_apart(
    caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    mishaps = ErrorCounts()
    with caplog.at_level(logging.WARNING):
        mishaps.note("this", UserError("not like that"))
        for _ in range(3):
            mishaps.note("this", raised(error))
    levels = [(record.levelname, "in raised" in record.message) for record in caplog.records]
    assert levels == [("WARNING", False), ("ERROR", True), ("ERROR", True)]
    assert max(len(record.message) for record in caplog.records) < 2_000
    assert (mishaps.total, mishaps.defects) == (4, 3)


def test_who_sent_what_was_refused_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    asyncio.run(raise_and_go_on(waits=False))
    line = next(record.message for record in caplog.records if "Do: UserError" in record.message)
    assert line.startswith("Guarded could not handle Do: UserError: not like that")
    assert ", from drivetrain://test" in line

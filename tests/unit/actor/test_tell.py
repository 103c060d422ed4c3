"""Mailboxes: order, one message at a time, bounds, and that `tell` neither waits nor raises."""

from __future__ import annotations

import asyncio

import pytest
from actor_harness import Boom, Note, Probe, Recorder, in_system, quiet

from drivetrain.actor import (
    Actor,
    ActorRef,
    ActorSystem,
    ContextError,
    DeadLetterReason,
    MailboxFullError,
    Message,
    NotAMessageError,
)
from drivetrain.actor.dispatch import BATCH, TURN_BUDGET


class Numbered(Message):
    sender: int
    number: int


class Chatty(Actor):
    """Sends `count` numbered messages, a few at each of its own turns."""

    def __init__(self, receiver: ActorRef, me: int, count: int) -> None:
        self.receiver, self.number, self.count = receiver, me, count
        self.sent = 0

    def pre_start(self) -> None:
        self.context.me.tell(Note("go on"))

    def receive(self, message: Message) -> None:
        for _ in range(self.number + 1):
            if self.sent < self.count:
                self.receiver.tell(Numbered(self.number, self.sent), self.context.me)
                self.sent += 1
        if self.sent < self.count:
            self.context.me.tell(message)


class Careful(Actor):
    """Notices when two messages are handled at once; waits now and then."""

    def __init__(self, got: list[Numbered]) -> None:
        self.got = got
        self.busy = False

    async def receive(self, message: Message) -> None:
        assert isinstance(message, Numbered)
        assert not self.busy
        self.busy = True
        if message.number % 3 == 0:
            await asyncio.sleep(0.001 * (message.sender % 2))
        self.busy = False
        self.got.append(message)


@in_system
async def test_order_is_kept_per_sender_and_one_message_is_handled_at_a_time(system: ActorSystem) -> None:
    got: list[Numbered] = []
    receiver = system.spawn(lambda: Careful(got))
    for me in range(4):
        system.spawn(lambda me=me: Chatty(receiver, me, 50))
    await asyncio.sleep(60)
    assert system.failures == 0
    for me in range(4):
        assert [m.number for m in got if m.sender == me] == list(range(50))


@in_system(seeds=1)
async def test_a_flood_for_one_actor_leaves_turns_for_others_and_for_the_loop(system: ActorSystem) -> None:
    order: list[str] = []

    class Flooded(Actor):
        def receive(self, message: Message) -> None:
            order.append("flood")

    flooded = system.spawn(Flooded)
    other = system.spawn(lambda: Recorder(order))
    await quiet()
    for _ in range(10 * BATCH):
        flooded.tell(Note("x"))
    other.tell(Note("other"))
    await quiet()
    assert order.index("other") <= BATCH + 1
    order.clear()
    floods = [system.spawn(Flooded) for _ in range(4)]
    for actor in floods:
        for _ in range(4 * BATCH):
            actor.tell(Note("x"))
    system.loop.call_soon(order.append, "loop")
    await quiet()
    assert order.index("loop") <= TURN_BUDGET + BATCH
    assert order.count("flood") == 16 * BATCH


@in_system
async def test_a_full_mailbox_refuses_the_newest_and_tells_the_asker_at_once(system: ActorSystem) -> None:
    got: list[Message] = []

    class Slow(Probe):
        async def receive(self, message: Message) -> None:
            await asyncio.sleep(1)
            super().receive(message)

    actor = system.spawn(lambda: Slow(got), mailbox_capacity=3)
    actor.tell(Note("in hand"))
    await quiet()
    for number in range(5):
        actor.tell(Note(str(number)))
    system.check()
    assert system.dead_letters.counts[DeadLetterReason.MAILBOX_FULL] == 2
    before = system.loop.time()
    with pytest.raises(MailboxFullError):
        await actor.ask(Note("no room"))
    assert system.loop.time() == before
    await asyncio.sleep(10)
    assert got == [Note(text) for text in ("in hand", "0", "1", "2")]
    actor.tell(Note("room again"))
    await asyncio.sleep(2)
    assert got[-1] == Note("room again")


@in_system
async def test_only_messages_are_sent(system: ActorSystem) -> None:
    actor = system.spawn(lambda: Recorder([]))
    for wrong in ("text", None, {"a": 1}, object()):
        with pytest.raises(NotAMessageError):
            actor.tell(wrong)  # type: ignore[arg-type]
        with pytest.raises(NotAMessageError):
            await actor.ask(wrong)  # type: ignore[arg-type]


@in_system
async def test_a_mailbox_needs_room(system: ActorSystem) -> None:
    with pytest.raises(ContextError):
        system.spawn(lambda: Recorder([]), mailbox_capacity=0)


@in_system
async def test_the_sender_is_known_while_its_message_is_handled_even_after_a_wait(
    system: ActorSystem,
) -> None:
    seen: list[ActorRef | None] = []

    class Waits(Actor):
        async def receive(self, message: Message) -> None:
            await asyncio.sleep(1)
            seen.append(self.context.sender)

    actor = system.spawn(Waits)
    someone = system.spawn(lambda: Recorder([]))
    actor.tell(Note("x"), someone)
    actor.tell(Note("y"))
    actor.tell(Note("z"), someone)
    await asyncio.sleep(5)
    assert seen == [someone, None, someone]


@in_system
async def test_replying_needs_a_sender(system: ActorSystem) -> None:
    class Replies(Actor):
        def receive(self, message: Message) -> None:
            self.context.reply(message)

    actor = system.spawn(Replies)
    actor.tell(Note("x"))
    await quiet()
    assert system.failures == 1
    assert await actor.ask(Note("y"), Note) == Note("y")


@in_system
async def test_a_forwarded_message_is_answered_to_the_first_sender(system: ActorSystem) -> None:
    class Replies(Actor):
        def receive(self, message: Message) -> None:
            self.context.reply(Note("done"))

    class Forwards(Actor):
        def __init__(self, other: ActorRef) -> None:
            self.other = other

        def receive(self, message: Message) -> None:
            self.context.forward(self.other)

    last = system.spawn(Replies)
    assert await system.spawn(lambda: Forwards(last)).ask(Note("x"), Note) == Note("done")


@in_system
async def test_failures_do_not_disturb_the_order_of_the_rest(system: ActorSystem) -> None:
    log: list[str] = []
    actor = system.spawn(lambda: Recorder(log))
    for number in range(8):
        actor.tell(Boom() if number in (2, 5) else Note(str(number)))
    await quiet()
    assert [line for line in log if line.isdigit()] == ["0", "1", "3", "4", "6", "7"]


@in_system
async def test_telling_from_another_thread_goes_through_the_loop(system: ActorSystem) -> None:
    got: list[Message] = []
    actor = system.spawn(lambda: Probe(got))
    await system.run_blocking(lambda: system.tell_threadsafe(actor, Note("from a thread")))
    await quiet()
    assert got == [Note("from a thread")]

"""Stashing and changing behaviour: messages put aside keep their order and their senders."""

from __future__ import annotations

import asyncio

from actor_harness import Boom, Note, Recorder, in_system, quiet

from drivetrain.actor import Actor, ActorSystem, DeadLetterReason, Message, Terminated


class Gate(Actor):
    """Puts everything aside until it is told to open."""

    def __init__(self, log: list[str]) -> None:
        self.log = log

    def receive(self, message: Message) -> None:
        match message:
            case Note("open"):
                self.context.become(self.opened)
                self.context.unstash_all()
            case Boom():
                raise ValueError
            case _:
                self.context.stash()

    def opened(self, message: Message) -> None:
        match message:
            case Note("close"):
                self.context.become(None)
            case Boom():
                raise ValueError
            case Note(text):
                self.log.append(text)
                if self.context.sender is not None:
                    self.context.reply(message)
            case Terminated():
                self.log.append("terminated")


@in_system
async def test_what_was_stashed_comes_first_in_order_and_with_its_sender(system: ActorSystem) -> None:
    log: list[str] = []
    gate = system.spawn(lambda: Gate(log))
    gate.tell(Note("1"))
    asked = asyncio.ensure_future(gate.ask(Note("2"), Note))
    await quiet()
    for text in ("3", "open", "4", "close", "5", "open", "6"):
        gate.tell(Note(text))
    await quiet()
    assert log == ["1", "2", "3", "4", "5", "6"]
    assert await asked == Note("2")


@in_system
async def test_what_is_stashed_counts_against_the_capacity(system: ActorSystem) -> None:
    log: list[str] = []
    gate = system.spawn(lambda: Gate(log), mailbox_capacity=3)
    for number in range(3):
        gate.tell(Note(str(number)))
    await quiet()
    system.check()
    gate.tell(Note("refused"))
    await quiet()
    assert system.dead_letters.counts[DeadLetterReason.MAILBOX_FULL] == 1
    system.check()


@in_system
async def test_a_restart_keeps_what_was_stashed_and_forgets_the_behaviour(system: ActorSystem) -> None:
    log: list[str] = []
    gate = system.spawn(lambda: Gate(log))
    for message in (Note("1"), Boom(), Note("open"), Note("2"), Boom(), Note("3")):
        gate.tell(message)
    await quiet()
    assert log == ["1", "2"]
    system.check()
    gate.tell(Note("open"))
    await quiet()
    assert log == ["1", "2", "3"]


@in_system
async def test_a_stop_makes_dead_letters_of_what_was_stashed(system: ActorSystem) -> None:
    gate = system.spawn(lambda: Gate([]))
    for number in range(3):
        gate.tell(Note(str(number)))
    await quiet()
    system.stop(gate)
    await quiet()
    assert system.dead_letters.counts[DeadLetterReason.STOPPED] == 3


@in_system
async def test_a_stashed_terminated_is_handed_over_later_and_once(system: ActorSystem) -> None:
    log: list[str] = []

    class Watching(Gate):
        def pre_start(self) -> None:
            self.context.watch(watched)

    watched = system.spawn(lambda: Recorder([]))
    gate = system.spawn(lambda: Watching(log))
    await quiet()
    system.stop(watched)
    await quiet()
    system.check()
    assert log == []
    gate.tell(Note("open"))
    await quiet()
    assert log == ["terminated"]


@in_system
async def test_a_message_can_be_stashed_only_once_and_only_in_hand(system: ActorSystem) -> None:
    class Greedy(Actor):
        def pre_start(self) -> None:
            self.context.stash()

        def receive(self, message: Message) -> None:
            self.context.stash()
            self.context.stash()

    actor = system.spawn(Greedy)
    await quiet()
    assert system.failures == 11

    class Greedier(Greedy):
        def pre_start(self) -> None:
            pass

    actor = system.spawn(Greedier)
    actor.tell(Note("x"))
    await quiet()
    assert system.failures == 22  # stashed, failed, put back by the restart, and so on


@in_system
async def test_unstashing_while_messages_wait_borrows_nobody_elses_queue(system: ActorSystem) -> None:
    """The queue that a turn is working on must not be lent to another actor meanwhile."""
    log: list[str] = []
    other = system.spawn(lambda: Recorder(log, "other"))
    await quiet()

    class Opens(Gate):
        def receive(self, message: Message) -> None:
            super().receive(message)
            if message == Note("open"):
                other.tell(Note("for the other"))

    gate = system.spawn(lambda: Opens(log))
    for text in ("1", "open", "2"):
        gate.tell(Note(text))
    await quiet()
    assert sorted(log[1:]) == ["1", "2", "other for the other"]

"""Dead letters: counted once, kept, told to subscribers, and never in a circle."""

from __future__ import annotations

import logging

import pytest
from actor_harness import Note, Probe, Recorder, in_system, quiet

from drivetrain.actor import ActorSystem, DeadLetter, DeadLetterReason, Message
from drivetrain.actor.dead_letters import KEPT
from drivetrain.actor.path import ActorPath


@in_system
async def test_a_subscriber_is_told_what_was_not_delivered_and_why(system: ActorSystem) -> None:
    got: list[Message] = []
    listener = system.spawn(lambda: Probe(got))
    system.dead_letters.subscribe(listener)
    gone = system.spawn(lambda: Recorder([]))
    system.stop(gone)
    await quiet()
    gone.tell(Note("x"), listener)
    missing = ActorPath(system.address, ("user", "missing"), 77)
    system.reference(missing).tell(Note("y"))
    await quiet()
    assert got == [
        DeadLetter(Note("x"), listener, gone.path, DeadLetterReason.STOPPED),
        DeadLetter(Note("y"), None, missing, DeadLetterReason.NO_ACTOR),
    ]
    assert list(system.dead_letters.recent) == got
    system.dead_letters.unsubscribe(listener)
    gone.tell(Note("z"))
    await quiet()
    assert len(got) == 2


@in_system
async def test_dead_letters_about_dead_letters_go_no_further(system: ActorSystem) -> None:
    listener = system.spawn(lambda: Probe([]), mailbox_capacity=1)
    system.dead_letters.subscribe(listener)
    missing = system.reference(ActorPath(system.address, ("user", "missing"), 77))
    for _ in range(10):
        missing.tell(Note("x"))
    assert system.dead_letters.counts[DeadLetterReason.NO_ACTOR] == 10
    assert system.dead_letters.counts[DeadLetterReason.MAILBOX_FULL] == 9
    await quiet()
    system.stop(listener)
    await quiet()
    for _ in range(3):
        missing.tell(Note("x"))
    # The first finds the subscriber gone, which ends its subscription.
    assert system.dead_letters.counts[DeadLetterReason.STOPPED] == 1


@in_system(seeds=1)
async def test_only_the_most_recent_are_kept(system: ActorSystem) -> None:
    missing = system.reference(ActorPath(system.address, ("user", "missing"), 77))
    for number in range(KEPT + 5):
        missing.tell(Note(str(number)))
    assert len(system.dead_letters.recent) == KEPT
    assert system.dead_letters.recent[-1].message == Note(str(KEPT + 4))
    assert system.dead_letters.total == KEPT + 5


def test_a_flood_of_dead_letters_is_no_flood_of_log_lines(caplog: pytest.LogCaptureFixture) -> None:
    @in_system(seeds=1)
    async def flood(system: ActorSystem) -> None:
        missing = system.reference(ActorPath(system.address, ("user", "missing"), 77))
        for _ in range(1000):
            missing.tell(Note("x"))

    with caplog.at_level(logging.WARNING, "drivetrain.actor.dead_letters"):
        flood()
    assert len(caplog.records) == 4  # numbers 1, 10, 100 and 1000


def test_messages_to_an_actor_that_has_stopped_are_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    """A system that ends stops actors to which others still send."""

    @in_system(seeds=1)
    async def late(system: ActorSystem) -> None:
        path = ActorPath(system.address, ("user", "stopped"), 77)
        for reason in (DeadLetterReason.STOPPED, DeadLetterReason.NO_ACTOR):
            system.dead_letters.put(Note("x"), None, path, reason)

    with caplog.at_level(logging.INFO, "drivetrain.actor.dead_letters"):
        late()
    assert [record.levelno for record in caplog.records] == [logging.INFO, logging.WARNING]

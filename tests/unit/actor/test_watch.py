"""DeathWatch within one system: told exactly once, after everything else, and never after losing interest."""

from __future__ import annotations

import asyncio

import pytest
from actor_harness import Boom, Note, Recorder, in_system, quiet

from drivetrain.actor import (
    Actor,
    ActorRef,
    ActorSystem,
    Address,
    ContextError,
    DeathPactError,
    Message,
    PoisonPill,
    StillRunningError,
    SystemStoppedError,
    Terminated,
    TerminationCause,
)
from drivetrain.actor.path import ActorPath


class Watch(Message):
    actor: ActorRef
    times: int = 1


class Unwatch(Message):
    actor: ActorRef


class Watcher(Actor):
    def __init__(self, got: list[Message]) -> None:
        self.got = got

    def receive(self, message: Message) -> None:
        match message:
            case Watch(actor, times):
                for _ in range(times):
                    self.context.watch(actor)
            case Unwatch(actor):
                self.context.unwatch(actor)
            case Boom():
                raise ValueError
            case _:
                self.got.append(message)


@in_system
async def test_a_watcher_is_told_once_however_often_it_watches(system: ActorSystem) -> None:
    got: list[Message] = []
    watcher = system.spawn(lambda: Watcher(got))
    watched = system.spawn(lambda: Recorder([]))
    watcher.tell(Watch(watched, times=3))
    await quiet()
    system.check()
    watched.tell(PoisonPill())
    await quiet()
    assert got == [Terminated(watched)]
    system.stop(watched)
    await quiet()
    assert len(got) == 1


@in_system
async def test_watching_the_dead_tells_at_once(system: ActorSystem) -> None:
    got: list[Message] = []
    watcher = system.spawn(lambda: Watcher(got))
    watched = system.spawn(lambda: Recorder([]))
    system.stop(watched)
    await quiet()
    watcher.tell(Watch(watched))
    never = system.reference(ActorPath(system.address, ("user", "never"), 999))
    watcher.tell(Watch(never))
    elsewhere = system.reference(ActorPath(Address("other", "127.0.0.1", 1, 1), ("user", "x"), 1))
    watcher.tell(Watch(elsewhere))
    await quiet()
    assert got == [
        Terminated(watched),
        Terminated(never, TerminationCause.NEVER_EXISTED),
        Terminated(elsewhere, TerminationCause.UNREACHABLE),
    ]


@in_system
async def test_terminated_comes_after_everything_the_watched_had_sent(system: ActorSystem) -> None:
    got: list[Message] = []

    class LastWords(Actor):
        def receive(self, message: Message) -> None:
            for number in range(3):
                watcher.tell(Note(str(number)))
            self.context.stop()

        def post_stop(self) -> None:
            watcher.tell(Note("post_stop"))

    watcher = system.spawn(lambda: Watcher(got))
    watched = system.spawn(LastWords)
    watcher.tell(Watch(watched))
    await quiet()
    watched.tell(Note("go"))
    await quiet()
    assert got == [*(Note(text) for text in ("0", "1", "2", "post_stop")), Terminated(watched)]


@in_system
async def test_unwatching_silences_even_a_terminated_that_waits(system: ActorSystem) -> None:
    got: list[Message] = []

    class Busy(Watcher):
        async def receive(self, message: Message) -> None:
            super().receive(message)
            if isinstance(message, Note):
                await asyncio.sleep(1)

    watcher = system.spawn(lambda: Busy(got))
    watched = system.spawn(lambda: Recorder([]))
    watcher.tell(Watch(watched))
    watcher.tell(Note("busy"))
    await quiet()
    watcher.tell(Unwatch(watched))
    system.stop(watched)
    await quiet()
    system.check()
    await asyncio.sleep(2)
    assert got == [Note("busy")]


@in_system
async def test_watching_again_after_unwatching_tells_once(system: ActorSystem) -> None:
    got: list[Message] = []

    class Busy(Watcher):
        async def receive(self, message: Message) -> None:
            super().receive(message)
            if isinstance(message, Note):
                await asyncio.sleep(1)

    watcher = system.spawn(lambda: Busy(got))
    watched = system.spawn(lambda: Recorder([]))
    for message in (Watch(watched), Note("busy"), Unwatch(watched), Watch(watched), Note("busy")):
        watcher.tell(message)
    await quiet()
    system.stop(watched)
    await asyncio.sleep(5)
    assert got.count(Terminated(watched)) == 1


@in_system
async def test_a_full_mailbox_still_takes_terminated(system: ActorSystem) -> None:
    got: list[Message] = []

    class Busy(Watcher):
        async def receive(self, message: Message) -> None:
            super().receive(message)
            await asyncio.sleep(1)

    watcher = system.spawn(lambda: Busy(got), mailbox_capacity=1)
    watched = system.spawn(lambda: Recorder([]))
    watcher.tell(Watch(watched))
    await quiet()
    watcher.tell(Note("full"))
    watcher.tell(Note("refused"))
    system.stop(watched)
    await quiet()
    system.check()
    await asyncio.sleep(5)
    assert got == [Note("full"), Terminated(watched)]


@in_system
async def test_a_restart_of_the_watched_is_no_end_and_of_the_watcher_ends_its_watches(
    system: ActorSystem,
) -> None:
    got: list[Message] = []
    watcher = system.spawn(lambda: Watcher(got))
    watched = system.spawn(lambda: Recorder([]))
    watcher.tell(Watch(watched))
    await quiet()
    watched.tell(Boom())
    await quiet()
    assert got == []
    system.check()
    watcher.tell(Boom())
    await quiet()
    system.check()
    system.stop(watched)
    await quiet()
    assert got == []


@in_system
async def test_a_watcher_that_stops_first_leaves_nothing_behind(system: ActorSystem) -> None:
    watcher = system.spawn(lambda: Watcher([]))
    watched = system.spawn(lambda: Recorder([]), "watched")
    watcher.tell(Watch(watched))
    await quiet()
    system.stop(watcher)
    await quiet()
    system.check()
    (cell,) = [cell for cell in system.cells() if cell.name == "watched"]
    assert not cell.watchers


@in_system
async def test_a_parent_may_reuse_the_name_when_it_is_told(system: ActorSystem) -> None:
    names: list[str] = []

    class Respawns(Actor):
        def pre_start(self) -> None:
            self.start()

        def start(self) -> None:
            child = self.context.spawn(lambda: Recorder([]), "child")
            names.append(str(child.path))
            self.context.watch(child)
            if len(names) < 4:
                child.tell(PoisonPill())

        def receive(self, message: Message) -> None:
            if isinstance(message, Terminated):
                self.start()

    system.spawn(Respawns)
    await quiet()
    assert len(set(names)) == 4
    assert system.failures == 0


@in_system
async def test_whoever_is_no_actor_can_wait_for_an_actors_end(system: ActorSystem) -> None:
    watched = system.spawn(lambda: Recorder([]))
    with pytest.raises(StillRunningError):
        await system.wait_stopped(watched, timeout_ms=100)
    waiting = asyncio.ensure_future(system.wait_stopped(watched))
    await quiet()
    system.stop(watched)
    assert await waiting == Terminated(watched)
    assert await system.wait_stopped(watched) == Terminated(watched)
    await quiet()
    assert not (await system.lookup("/system")).cell.children  # type: ignore[attr-defined]


@in_system
async def test_a_wait_for_an_end_ends_with_the_system(system: ActorSystem) -> None:
    user = await system.lookup("/system")
    waiting = asyncio.ensure_future(system.wait_stopped(user))
    await quiet()
    await system.terminate()
    with pytest.raises(SystemStoppedError):
        await waiting


@in_system
async def test_nobody_can_watch_itself(system: ActorSystem) -> None:
    errors: list[Exception] = []

    class Narcissus(Actor):
        def receive(self, message: Message) -> None:
            try:
                self.context.watch(self.context.me)
            except ContextError as error:
                errors.append(error)

    system.spawn(Narcissus).tell(Note("x"))
    await quiet()
    assert len(errors) == 1


@in_system
async def test_who_watches_and_does_not_handle_the_end_fails(system: ActorSystem) -> None:
    causes: list[BaseException] = []

    class Dependent(Actor):
        def pre_start(self) -> None:
            self.context.watch(watched)

        def receive(self, message: Message) -> None:
            self.context.unhandled(message)

        def post_restart(self, cause: BaseException) -> None:
            causes.append(cause)

    watched = system.spawn(lambda: Recorder([]))
    system.spawn(Dependent)
    await quiet()
    system.stop(watched)
    await quiet()
    assert [type(cause) for cause in causes] == [DeathPactError]

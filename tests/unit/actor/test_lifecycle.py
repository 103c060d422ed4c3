"""Hooks, their order, and what starts, stops and restarts leave behind."""

from __future__ import annotations

import asyncio

import pytest
from actor_harness import Boom, Note, Probe, Recorder, in_system, quiet

from drivetrain.actor import (
    Actor,
    ActorFailedError,
    ActorStoppedError,
    ActorSystem,
    ContextError,
    InvalidPathError,
    Message,
    NameTakenError,
    PoisonPill,
    StuckActorsError,
    SystemStoppedError,
    Terminated,
)
from drivetrain.actor.actor_errors import ActorStateError
from drivetrain.actor.cell import Phase
from drivetrain.actor.lifecycle import TRANSITIONS, enter
from drivetrain.actor.tree import start_child
from drivetrain.core.liveness.supervision import Directive, SupervisionPolicy


@in_system
async def test_hooks_frame_the_messages(system: ActorSystem) -> None:
    log: list[str] = []
    actor = system.spawn(lambda: Recorder(log))
    actor.tell(Note("one"))
    actor.tell(Note("two"))
    await quiet()
    system.stop(actor)
    await quiet()
    assert log == ["pre_start", "one", "two", "post_stop"]


@in_system
async def test_a_failure_restarts_with_hooks_and_drops_only_the_failed_message(system: ActorSystem) -> None:
    log: list[str] = []
    actor = system.spawn(lambda: Recorder(log))
    for message in (Note("before"), Boom("bad"), Note("after")):
        actor.tell(message)
    await quiet()
    assert log == ["pre_start", "before", "pre_restart bad", "post_restart bad", "after"]
    assert system.failures == 1


@in_system
async def test_a_restart_makes_a_new_instance_under_the_same_reference(system: ActorSystem) -> None:
    instances: list[Actor] = []

    class Fragile(Actor):
        def pre_start(self) -> None:
            instances.append(self)

        def receive(self, message: Message) -> None:
            raise ValueError

    actor = system.spawn(Fragile, "fragile")
    actor.tell(Note("x"))
    await quiet()
    assert len(instances) == 2
    assert instances[0] is not instances[1]
    assert instances[1].context.me == actor


@in_system
async def test_hooks_may_be_coroutines_and_no_message_is_handled_meanwhile(system: ActorSystem) -> None:
    log: list[str] = []

    class Slow(Actor):
        async def pre_start(self) -> None:
            log.append("start begins")
            await asyncio.sleep(1)
            log.append("start ends")

        async def receive(self, message: Message) -> None:
            log.append("message")

        async def post_stop(self) -> None:
            log.append("stop begins")
            await asyncio.sleep(1)
            log.append("stop ends")

    actor = system.spawn(Slow)
    actor.tell(Note("x"))
    await asyncio.sleep(0.5)
    system.check()
    assert log == ["start begins"]
    await asyncio.sleep(1)
    system.stop(actor)
    await asyncio.sleep(0.5)
    system.stop(actor)  # again, while the last hook waits: it is left to finish
    system.check()
    await asyncio.sleep(1)
    assert log == ["start begins", "start ends", "message", "stop begins", "stop ends"]


@in_system
async def test_last_hooks_do_not_run_for_an_instance_whose_start_failed(system: ActorSystem) -> None:
    log: list[str] = []

    class Unstartable(Recorder):
        def pre_start(self) -> None:
            super().pre_start()
            raise ValueError("no start")

        def post_restart(self, cause: BaseException) -> None:
            self.write("post_restart")
            raise ValueError("no restart")

    system.spawn(lambda: Unstartable(log))
    await quiet()
    assert log == ["pre_start", *["post_restart"] * 10]  # ten restarts a minute, then stopped


@in_system(supervision=SupervisionPolicy(directives={Exception: Directive.RESUME}))
async def test_an_actor_that_cannot_start_cannot_be_resumed_and_stops(system: ActorSystem) -> None:
    def broken() -> Actor:
        raise ValueError("no instance")

    actor = system.spawn(broken, "broken")
    with pytest.raises(ActorStoppedError):
        await actor.ask(Note("x"))


@in_system
async def test_a_factory_must_make_an_actor(system: ActorSystem) -> None:
    actor = system.spawn(lambda: object())  # type: ignore[arg-type,return-value]
    with pytest.raises(ActorStoppedError):
        await actor.ask(Note("x"))
    assert system.failures == 11


@in_system
async def test_a_failure_in_a_last_hook_does_not_keep_the_actor_from_stopping(system: ActorSystem) -> None:
    class Clumsy(Recorder):
        def post_stop(self) -> None:
            raise ValueError("in post_stop")

    actor = system.spawn(lambda: Clumsy([]), "clumsy")
    await quiet()
    system.stop(actor)
    await quiet()
    assert system.spawn(lambda: Clumsy([]), "clumsy") != actor


class Nested(Recorder):
    """Has children, each with their own, down to `depth`."""

    def __init__(self, log: list[str], name: str, depth: int) -> None:
        super().__init__(log, name)
        self.label, self.depth = name, depth

    def pre_start(self) -> None:
        super().pre_start()
        if self.depth:
            for part in "ab":
                name = f"{self.label}{part}"
                self.context.spawn(lambda name=name: Nested(self.log, name, self.depth - 1), part)


@in_system
async def test_children_stop_before_their_parent(system: ActorSystem) -> None:
    log: list[str] = []
    top = system.spawn(lambda: Nested(log, "t", 2), "top")
    await quiet()
    assert len(log) == 7
    log.clear()
    system.stop(top)
    await quiet()
    assert len(log) == 7
    order = {line.split()[0]: position for position, line in enumerate(log)}
    assert all(order[child] < order[child[:-1]] for child in order if len(child) > 1)


@in_system
async def test_children_stop_before_pre_restart_and_their_names_are_free_again(system: ActorSystem) -> None:
    log: list[str] = []
    top = system.spawn(lambda: Nested(log, "t", 1), "top")
    await quiet()
    log.clear()
    top.tell(Boom())
    await quiet()
    assert sorted(log[:2]) == ["ta post_stop", "tb post_stop"]
    assert log[2:4] == ["t pre_restart boom", "t post_restart boom"]
    assert len(await_children(system, "top")) == 0


def await_children(system: ActorSystem, name: str) -> list[str]:
    return [cell.name for cell in system.cells() if cell.parent is not None and cell.parent.name == name]


class Worker(Actor):
    """Waits in its handler, and tells the log how that ended."""

    def __init__(self, log: list[str]) -> None:
        self.log = log

    async def receive(self, message: Message) -> None:
        if isinstance(message, Boom):
            self.context.stop()
        try:
            await asyncio.sleep(1)
            self.log.append("finished")
        except asyncio.CancelledError:
            self.log.append("cancelled")
            raise

    def post_stop(self) -> None:
        self.log.append("post_stop")


@in_system
async def test_stopping_cancels_a_handler_that_waits(system: ActorSystem) -> None:
    log: list[str] = []
    actor = system.spawn(lambda: Worker(log))
    asked = asyncio.ensure_future(actor.ask(Note("x")))
    await asyncio.sleep(0.5)
    system.stop(actor)
    system.check()
    with pytest.raises(ActorStoppedError):
        await asked
    assert log == ["cancelled", "post_stop"]
    assert system.failures == 0


@in_system
async def test_an_actor_that_stops_itself_finishes_its_message_first(system: ActorSystem) -> None:
    for warm in (False, True):
        log: list[str] = []
        actor = system.spawn(lambda log=log: Worker(log))
        if warm:
            actor.tell(Note("x"))
        actor.tell(Boom())
        actor.tell(Note("never handled"))
        await asyncio.sleep(3)
        assert log == [*["finished"] * (2 if warm else 1), "post_stop"]
    assert system.dead_letters.total == 2


@in_system
async def test_an_actor_that_stops_itself_can_still_be_cancelled_by_others(system: ActorSystem) -> None:
    log: list[str] = []
    actor = system.spawn(lambda: Worker(log))
    actor.tell(Boom())
    await asyncio.sleep(0.5)
    system.stop(actor)
    await quiet()
    assert log == ["cancelled", "post_stop"]


@in_system
async def test_stopping_cancels_a_start_that_waits_and_no_last_hook_follows(system: ActorSystem) -> None:
    log: list[str] = []

    class Starting(Recorder):
        async def pre_start(self) -> None:
            try:
                await asyncio.sleep(10)
            finally:
                self.write("start ended")

    actor = system.spawn(lambda: Starting(log))
    await asyncio.sleep(1)
    system.stop(actor)
    await quiet()
    assert log == ["start ended"]


@in_system
async def test_a_poison_pill_waits_for_its_turn(system: ActorSystem) -> None:
    log: list[str] = []
    actor = system.spawn(lambda: Recorder(log))
    for message in (Note("one"), PoisonPill(), Note("two")):
        actor.tell(message)
    await quiet()
    assert log == ["pre_start", "one", "post_stop"]
    assert system.dead_letters.total == 1


@in_system
async def test_what_waits_for_an_actor_that_stops_becomes_dead_letters_and_asks_fail(
    system: ActorSystem,
) -> None:
    actor = system.spawn(lambda: Worker([]))
    actor.tell(Note("in hand"))
    asked = asyncio.ensure_future(actor.ask(Note("waiting")))
    actor.tell(Note("waiting"))
    await asyncio.sleep(0.5)
    system.stop(actor)
    with pytest.raises(ActorStoppedError):
        await asked
    assert system.dead_letters.total == 2


@in_system
async def test_a_name_is_taken_until_its_actor_has_stopped_and_then_means_another(
    system: ActorSystem,
) -> None:
    class Lingering(Actor):
        def receive(self, message: Message) -> None:
            pass

        async def post_stop(self) -> None:
            await asyncio.sleep(1)

    first = system.spawn(Lingering, "name")
    with pytest.raises(NameTakenError):
        system.spawn(Lingering, "name")
    await quiet()
    system.stop(first)
    await asyncio.sleep(0.5)
    with pytest.raises(NameTakenError):
        system.spawn(Lingering, "name")
    await asyncio.sleep(1)
    second = system.spawn(Lingering, "name")
    assert second != first
    assert second.path.local == first.path.local
    assert system.reference(first.path) == first
    first.tell(Note("too late"))
    assert system.dead_letters.total == 1


@in_system
async def test_only_fit_names_are_taken(system: ActorSystem) -> None:
    for name in ("", "a/b", "a#b", "$own", "a b", "x" * 201, "ü"):
        with pytest.raises(InvalidPathError):
            system.spawn(lambda: Recorder([]), name)
    for name in ("a", "worker-1", "wc@10.0.0.1:7070", "_x", "x" * 200):
        system.spawn(lambda: Recorder([]), name)


class Parent(Actor):
    def receive(self, message: Message) -> None:
        match message:
            case Note("spawn"):
                self.child = self.context.spawn(lambda: Recorder([]), "child")
                assert self.context.child("child") == self.child
                assert self.context.children == [self.child]
            case Note("stop child"):
                self.context.stop(self.child)
            case Note("stop parent"):
                self.context.stop(self.context.parent)

    def post_stop(self) -> None:
        with pytest.raises(ContextError):
            self.context.spawn(lambda: Recorder([]))
        with pytest.raises(ContextError):
            self.context.timers.start_once("late", Note("x"), delay_ms=1)


@in_system
async def test_an_actor_stops_its_children_but_no_stranger(system: ActorSystem) -> None:
    actor = system.spawn(Parent, "parent")
    actor.tell(Note("spawn"))
    await quiet()
    assert await_children(system, "parent") == ["child"]
    actor.tell(Note("stop child"))
    await quiet()
    assert await_children(system, "parent") == []
    actor.tell(Note("stop parent"))
    await quiet()
    assert system.failures == 1


@in_system
async def test_an_asker_learns_that_the_actor_failed(system: ActorSystem) -> None:
    actor = system.spawn(lambda: Recorder([]))
    with pytest.raises(ActorFailedError, match="ValueError: no luck"):
        await actor.ask(Boom("no luck"))


@in_system
async def test_a_cancellation_by_others_is_a_failure_like_any_other(system: ActorSystem) -> None:
    log: list[str] = []
    awaited: asyncio.Future[None] = system.loop.create_future()

    class Waiting(Recorder):
        async def receive(self, message: Message) -> None:
            await awaited

    system.spawn(lambda: Waiting(log)).tell(Note("x"))
    await quiet()
    awaited.cancel()
    await quiet()
    assert [line.split()[0] for line in log] == ["pre_start", "pre_restart", "post_restart"]
    assert system.failures == 1


@in_system
async def test_only_none_or_an_awaitable_may_be_returned(system: ActorSystem) -> None:
    class Talkative(Actor):
        def receive(self, message: Message) -> None:
            return "hello"  # type: ignore[return-value]

    with pytest.raises(ActorFailedError, match="must return None or a coroutine"):
        await system.spawn(Talkative).ask(Note("x"))


@in_system
async def test_an_awaitable_other_than_a_coroutine_is_awaited(system: ActorSystem) -> None:
    class Futuristic(Actor):
        def receive(self, message: Message) -> asyncio.Future[None]:
            self.context.reply(message)
            return asyncio.ensure_future(asyncio.sleep(1))

    actor = system.spawn(Futuristic)
    actor.tell(Note("y"), actor)
    assert await actor.ask(Note("x"), timeout_ms=5_000) == Note("x")


@in_system
async def test_everything_stops_with_the_system_and_nothing_starts_after(system: ActorSystem) -> None:
    log: list[str] = []
    top = system.spawn(lambda: Nested(log, "t", 2), "top")
    await quiet()
    log.clear()
    await system.terminate()
    assert len(log) == 7
    assert system.is_terminated
    with pytest.raises(SystemStoppedError):
        system.spawn(lambda: Recorder([]))
    with pytest.raises(SystemStoppedError):
        await top.ask(Note("x"))
    with pytest.raises(SystemStoppedError):
        await system.run_blocking(lambda: 1)
    await system.wait_terminated()


@in_system
async def test_a_system_can_end_before_anything_in_it_has_started(system: ActorSystem) -> None:
    system.spawn(lambda: Recorder([]))
    await system.terminate()


@in_system
async def test_the_systems_own_actors_stop_after_the_users(system: ActorSystem) -> None:
    log: list[str] = []
    system.spawn_kernel(lambda: Recorder(log, "kernel"), "service")
    system.spawn(lambda: Nested(log, "user", 1))
    await quiet()
    log.clear()
    await system.terminate()
    assert log[-1] == "kernel post_stop"
    assert len(log) == 4


@in_system
async def test_an_actor_that_resists_its_end_is_named_and_left_behind(system: ActorSystem) -> None:
    class Stubborn(Actor):
        async def receive(self, message: Message) -> None:
            while True:
                try:
                    await asyncio.sleep(1e9)
                except asyncio.CancelledError:
                    if len(ends) > 3:
                        raise
                    ends.append("resisted")

    ends: list[str] = []
    system.spawn(Stubborn, "stubborn").tell(Note("x"))
    await quiet()
    with pytest.raises(StuckActorsError, match="1 actors did not stop"):
        await system.terminate(timeout_ms=500)
    assert ends


@in_system
async def test_nobody_else_can_stop_a_guardian(system: ActorSystem) -> None:
    user = await system.lookup("/user")
    user.tell(PoisonPill())
    with pytest.raises(ContextError):
        system.stop(user)
    await quiet()
    got: list[Message] = []
    system.spawn(lambda: Probe(got)).tell(Note("still here"))
    await quiet()
    assert got == [Note("still here")]


@in_system
async def test_an_impossible_transition_raises_and_changes_nothing(system: ActorSystem) -> None:
    cell = start_child(system.root, lambda: Recorder([]), "x", None)
    await quiet()
    assert cell.phase is Phase.RUNNING
    for phase in Phase:
        if phase not in TRANSITIONS[Phase.RUNNING]:
            with pytest.raises(ActorStateError):
                enter(cell, phase)
            assert cell.phase is Phase.RUNNING


@in_system
async def test_stop_during_a_restart_ends_the_actor(system: ActorSystem) -> None:
    log: list[str] = []

    class SlowToGo(Recorder):
        async def pre_restart(self, cause: BaseException) -> None:
            await asyncio.sleep(1)
            self.write("pre_restart done")

    actor = system.spawn(lambda: SlowToGo(log))
    got: list[Message] = []

    class Watching(Probe):
        def pre_start(self) -> None:
            self.context.watch(actor)

    system.spawn(lambda: Watching(got))
    actor.tell(Boom())
    await asyncio.sleep(0.5)
    system.check()
    system.stop(actor)
    await asyncio.sleep(1)
    assert log == ["pre_start", "pre_restart done"]
    assert got == [Terminated(actor)]

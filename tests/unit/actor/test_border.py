"""The border to other systems, with a provider that carries envelopes by hand: what each side does at it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from actor_harness import Note, Recorder, quiet

from drivetrain.actor import (
    Actor,
    ActorNotFoundError,
    ActorPath,
    ActorRef,
    ActorStoppedError,
    ActorSystem,
    Address,
    DeadLetterReason,
    Envelope,
    LookupTimeoutError,
    MailboxFullError,
    Message,
    MessageRefusedError,
    PoisonPill,
    Terminated,
    TerminationCause,
    UndeliverableReason,
    UnreachableError,
)
from drivetrain.actor.absent_references import RemoteRef
from drivetrain.actor.kernel_messages import Unwatch, Watch
from drivetrain.errors import InternalError
from drivetrain.simulator import Simulation


class Wire:
    """A network of systems; `cut` ones answer nothing."""

    def __init__(self) -> None:
        self.systems: dict[tuple[str, int], ActorSystem] = {}
        self.cut: list[str] = []
        self.carried: list[Envelope] = []


class HandProvider:
    """Serializes what is told to others, and delivers it at the next turn of the loop."""

    def __init__(self, wire: Wire, system: ActorSystem, port: int) -> None:
        self.wire, self.system = wire, system
        self.host, self.port = "127.0.0.1", port
        self.watches: list[tuple[ActorRef, ActorRef]] = []
        self.is_stopped = False
        wire.systems[self.host, port] = system
        system.attach_provider(self)

    def deliver(self, envelope: Envelope) -> None:
        tag, body = self.system.codec.serialize(envelope.message)
        self.system.loop.call_soon(self._carry, envelope, tag, body)

    def _carry(self, envelope: Envelope, tag: str, body: bytes) -> None:
        address = envelope.target.address
        assert address.host is not None
        assert address.port is not None
        other = self.wire.systems.get((address.host, address.port))
        if other is None or other.name in self.wire.cut:
            if self.system.name not in self.wire.cut and other is None:
                self.system.undeliverable(envelope, UndeliverableReason.UNREACHABLE)
            return
        self.wire.carried.append(envelope)
        other.deliver_inbound(Envelope(envelope.target, other.codec.deserialize(tag, body), envelope.sender))

    def watch(self, target: ActorRef, watcher: ActorRef) -> None:
        assert (target, watcher) not in self.watches
        self.watches.append((target, watcher))
        self.deliver(Envelope(target.path, Watch(watcher)))

    def unwatch(self, target: ActorRef, watcher: ActorRef) -> None:
        self.watches.remove((target, watcher))
        self.deliver(Envelope(target.path, Unwatch(watcher)))

    async def stop(self) -> None:
        self.is_stopped = True


class Pair:
    """Two systems on one wire, "left" and "right"."""

    def __init__(self, simulation: Simulation) -> None:
        self.wire = Wire()
        self.left = ActorSystem("left", rng=simulation.random)
        self.right = ActorSystem("right", rng=simulation.random)
        self.left_provider = HandProvider(self.wire, self.left, 1)
        self.right_provider = HandProvider(self.wire, self.right, 2)

    def to_right(self, ref: ActorRef) -> ActorRef:
        """The left system's reference of an actor in the right one."""
        return self.left.reference(ref.path)

    def declare_right_dead(self) -> None:
        """The left provider finds the right system dead."""
        self.left_provider.watches.clear()
        self.left.address_terminated(self.right.address)


def in_pair(test: Callable[[Pair], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def run() -> None:
        for seed in range(3):
            simulation = Simulation(seed)

            async def scenario(simulation: Simulation = simulation) -> None:
                pair = Pair(simulation)
                await test(pair)
                for system in (pair.left, pair.right):
                    system.check()
                for system in (pair.left, pair.right):
                    await system.terminate()
                    system.check()
                assert pair.left_provider.is_stopped

            simulation.run(lambda _: scenario())

    run.__name__ = test.__name__
    return run


class Echo(Actor):
    def receive(self, message: Message) -> None:
        if self.context.sender is not None:
            self.context.reply(message)


class Watching(Actor):
    def __init__(self, got: list[Message], target: ActorRef) -> None:
        self.got, self.target = got, target

    def pre_start(self) -> None:
        self.context.watch(self.target)

    def receive(self, message: Message) -> None:
        if message == Note("unwatch"):
            self.context.unwatch(self.target)
        elif message == Note("watch"):
            self.context.watch(self.target)
        else:
            self.got.append(message)


@in_pair
async def test_references_work_across_systems_and_home_again(pair: Pair) -> None:
    class Hello(Message, tag="border.hello"):
        who: ActorRef

    got: list[Message] = []

    class Greets(Actor):
        def receive(self, message: Message) -> None:
            assert isinstance(message, Hello)
            got.append(message)
            message.who.tell(Note("pleased to meet you"), self.context.me)

    log: list[str] = []
    left = pair.left.spawn(lambda: Recorder(log))
    greets = pair.to_right(pair.right.spawn(Greets, "greets"))
    greets.tell(Hello(left), left)
    await quiet()
    assert log[1:] == ["pleased to meet you"]
    assert isinstance(greets, RemoteRef)
    # The greeter saw a remote reference; sent home, it is the local one again.
    assert isinstance(got[0], Hello)
    assert isinstance(got[0].who, RemoteRef)
    assert pair.left.reference(got[0].who.path) is left


@in_pair
async def test_asks_cross_and_so_do_their_failures(pair: Pair) -> None:
    echo = pair.right.spawn(Echo, "echo")
    remote = pair.to_right(echo)
    assert await remote.ask(Note("x"), Note) == Note("x")
    pair.right.stop(echo)
    await quiet()
    with pytest.raises(ActorStoppedError):
        await remote.ask(Note("x"))

    class Slow(Actor):
        async def receive(self, message: Message) -> None:
            await asyncio.sleep(1)

    slow = pair.to_right(pair.right.spawn(Slow, mailbox_capacity=1))
    slow.tell(Note("in hand"))
    await quiet()
    slow.tell(Note("full"))
    with pytest.raises(MailboxFullError):
        await slow.ask(Note("no room"))


@in_pair
async def test_a_lookup_needs_host_port_and_path_only(pair: Pair) -> None:
    echo = pair.right.spawn(Echo, "echo")
    await quiet()
    found = await pair.left.lookup("drivetrain://right@127.0.0.1:2/user/echo")
    assert found == pair.to_right(echo)
    assert found.path.address == pair.right.address
    with pytest.raises(ActorNotFoundError):
        await pair.left.lookup("drivetrain://right@127.0.0.1:2/user/nobody")
    with pytest.raises(ActorNotFoundError):
        await pair.left.lookup("drivetrain://other@127.0.0.1:2/user/echo")
    with pytest.raises(UnreachableError):
        await pair.left.lookup("drivetrain://right@127.0.0.1:3/user/echo")
    pair.wire.cut.append("right")
    with pytest.raises(LookupTimeoutError):
        await pair.left.lookup("drivetrain://right@127.0.0.1:2/user/echo", timeout_ms=100)


@in_pair
async def test_a_remote_watcher_is_told_once(pair: Pair) -> None:
    got: list[Message] = []
    target = pair.right.spawn(Echo)
    remote = pair.to_right(target)
    pair.left.spawn(lambda: Watching(got, remote))
    await quiet()
    assert len(pair.left_provider.watches) == 1
    target.tell(PoisonPill())
    await quiet()
    assert got == [Terminated(remote)]
    assert pair.left_provider.watches == []
    pair.declare_right_dead()
    await quiet()
    assert len(got) == 1


@in_pair
async def test_watching_the_remote_dead_tells_at_once(pair: Pair) -> None:
    got: list[Message] = []
    never = pair.left.reference(ActorPath(pair.right.address, ("user", "never"), 99))
    pair.left.spawn(lambda: Watching(got, never))
    await quiet()
    assert got == [Terminated(never, TerminationCause.NEVER_EXISTED)]


@in_pair
async def test_watching_an_earlier_life_of_a_system_tells_at_once(pair: Pair) -> None:
    got: list[Message] = []
    here = pair.right.address
    old = Address(here.system, here.host, here.port, here.incarnation + 1)
    stale = pair.left.reference(ActorPath(old, ("user", "x"), 1))
    pair.left.spawn(lambda: Watching(got, stale))
    await quiet()
    assert got == [Terminated(stale, TerminationCause.NEVER_EXISTED)]


@in_pair
async def test_the_death_of_a_system_tells_every_watcher_of_an_actor_there_once(pair: Pair) -> None:
    targets = [pair.to_right(pair.right.spawn(Echo)) for _ in range(3)]
    lists: list[list[Message]] = []
    for target in [*targets, targets[0]]:
        got: list[Message] = []
        lists.append(got)
        pair.left.spawn(lambda got=got, target=target: Watching(got, target))
    await quiet()
    pair.wire.cut.append("right")
    pair.declare_right_dead()
    pair.left.address_terminated(pair.right.address)
    await quiet()
    assert lists == [[Terminated(target, TerminationCause.UNREACHABLE)] for target in [*targets, targets[0]]]
    assert pair.left.remote_watches.open == 0


@in_pair
async def test_a_terminated_that_comes_after_the_death_was_declared_is_dropped(pair: Pair) -> None:
    got: list[Message] = []
    target = pair.right.spawn(Echo)
    remote = pair.to_right(target)
    watcher = pair.left.spawn(lambda: Watching(got, remote))
    await quiet()
    pair.declare_right_dead()
    await quiet()
    pair.right.stop(target)
    await quiet()
    assert len(got) == 1
    # A system that was declared dead can be watched again, and tells the truth.
    watcher.tell(Note("watch"))
    await quiet()
    assert got == [
        Terminated(remote, TerminationCause.UNREACHABLE),
        Terminated(remote, TerminationCause.NEVER_EXISTED),
    ]


@in_pair
async def test_the_death_of_a_system_ends_its_watchers_here(pair: Pair) -> None:
    target = pair.left.spawn(Echo)
    got: list[Message] = []
    pair.right.spawn(lambda: Watching(got, pair.right.reference(target.path)))
    await quiet()
    (cell,) = [cell for cell in pair.left.cells() if cell.ref == target]
    assert cell.watchers
    pair.left.check()
    pair.declare_right_dead()
    assert not cell.watchers
    pair.left.stop(target)
    await quiet()
    assert got == []
    assert pair.left.dead_letters.total == 0
    pair.right.address_terminated(pair.left.address)
    pair.right_provider.watches.clear()


@in_pair
async def test_unwatching_reaches_the_other_system(pair: Pair) -> None:
    got: list[Message] = []
    target = pair.right.spawn(Echo)
    watcher = pair.left.spawn(lambda: Watching(got, pair.to_right(target)))
    await quiet()
    watcher.tell(Note("unwatch"))
    await quiet()
    assert pair.left_provider.watches == []
    pair.right.check()
    pair.right.stop(target)
    await quiet()
    assert got == []


@in_pair
async def test_a_repeated_watch_is_harmless(pair: Pair) -> None:
    got: list[Message] = []
    target = pair.right.spawn(Echo)
    watcher = pair.left.spawn(lambda: Watching(got, pair.to_right(target)))
    await quiet()
    for _ in range(3):
        pair.right.deliver_inbound(Envelope(target.path, Watch(pair.right.reference(watcher.path))))
    pair.right.check()
    pair.right.stop(target)
    await quiet()
    assert len(got) == 1


@in_pair
async def test_asks_to_a_system_that_is_declared_dead_fail(pair: Pair) -> None:
    pair.wire.cut.append("right")
    asked = asyncio.ensure_future(pair.to_right(pair.right.spawn(Echo)).ask(Note("x")))
    await quiet()
    before = pair.left.loop.time()
    pair.declare_right_dead()
    with pytest.raises(UnreachableError):
        await asked
    assert pair.left.loop.time() == before


@in_pair
async def test_what_cannot_be_sent_is_a_dead_letter_and_fails_its_ask(pair: Pair) -> None:
    nowhere = pair.left.reference(ActorPath(Address("x", "127.0.0.1", 9, 9), ("user", "x"), 1))
    with pytest.raises(UnreachableError):
        await nowhere.ask(Note("x"))
    nowhere.tell(Note("x"))
    await quiet()
    assert pair.left.dead_letters.counts[DeadLetterReason.UNREACHABLE] == 2


@in_pair
async def test_what_cannot_leave_the_process_is_refused_where_it_is_sent(pair: Pair) -> None:
    class Odd(Message):
        value: object

    remote = pair.to_right(pair.right.spawn(Echo))
    with pytest.raises(MessageRefusedError):
        remote.tell(Odd(object()))
    with pytest.raises(MessageRefusedError):
        await remote.ask(Odd(object()))


@in_pair
async def test_messages_for_another_incarnation_are_stale(pair: Pair) -> None:
    target = pair.right.spawn(Echo)
    path = target.path
    address = path.address
    old = Address(address.system, address.host, address.port, address.incarnation + 1)
    pair.right.deliver_inbound(Envelope(ActorPath(old, path.names, path.uid), Note("for the dead")))
    assert pair.right.dead_letters.counts[DeadLetterReason.STALE] == 1


@in_pair
async def test_bogus_requests_change_nothing(pair: Pair) -> None:
    target = pair.right.spawn(Echo)
    local = pair.right.spawn(Echo)
    await quiet()
    for message in (
        Watch(local),
        Unwatch(local),
        Terminated(local),
        Unwatch(pair.right.reference(ActorPath(pair.left.address, ("user", "x"), 3))),
    ):
        pair.right.deliver_inbound(Envelope(target.path, message))
    pair.right.check()
    assert await pair.to_right(target).ask(Note("alive"), Note) == Note("alive")


@in_pair
async def test_a_second_provider_is_refused(pair: Pair) -> None:
    with pytest.raises(InternalError):
        pair.left.attach_provider(pair.left_provider)

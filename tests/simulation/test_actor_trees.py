"""Random trees of actors that spawn, fail, stop, watch, ask, stash and wait, judged by the rules."""

from __future__ import annotations

import asyncio
from random import Random

from drivetrain.actor import (
    Actor,
    ActorRef,
    ActorSystem,
    AskError,
    Message,
    PoisonPill,
    Terminated,
)
from drivetrain.core.liveness.supervision import Backoff, Directive, Scope, SupervisionPolicy
from drivetrain.simulator import Simulation, simulate

STEPS = 120
CAPACITY = 8
MAX_DEPTH = 4

NAMES = "abcdef"


class Order(Message, tag="trees.order"):
    """Something to do; `number` counts the orders that one sender gave to one receiver."""

    what: str
    number: int = 0
    other: ActorRef | None = None


class PlannedError(Exception):
    """A failure that the scenario wants."""


class Ledger:
    """What the actors report, and the checks on it."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.refs: list[ActorRef] = []
        self.given: dict[tuple[ActorRef | None, ActorRef], int] = {}
        self.seen: dict[tuple[ActorRef | None, ActorRef], int] = {}
        self.ended: dict[ActorRef, int] = {}
        self.watches: dict[tuple[ActorRef, ActorRef], int] = {}
        self.told: dict[tuple[ActorRef, ActorRef], int] = {}
        self.violations: list[str] = []
        self.handled = 0
        self.outcomes = 0
        self.asks = 0

    def require(self, holds: bool, what: str) -> None:
        """Remember what must not be: an assertion in an actor would only be one more failure."""
        if not holds:
            self.violations.append(what)

    def observe(self, sender: ActorRef | None, receiver: ActorRef, number: int) -> None:
        """A receiver never sees an older order of a sender after a newer one."""
        key = (sender, receiver)
        last = self.seen.get(key, 0)
        self.require(last < number, f"{receiver} saw {number} of {sender} after {last}")
        self.seen[key] = number
        self.handled += 1

    def give(
        self, receiver: ActorRef, what: str, sender: ActorRef | None, other: ActorRef | None = None
    ) -> None:
        key = (sender, receiver)
        self.given[key] = self.given.get(key, 0) + 1
        receiver.tell(Order(what, self.given[key], other), sender)


class Node(Actor):
    """Does what it is told; every instance checks that it is never entered twice."""

    def __init__(self, ledger: Ledger, depth: int) -> None:
        self.ledger, self.depth = ledger, depth
        self.busy = False
        self.stashed = 0
        random = ledger.random
        self.supervision = SupervisionPolicy(
            directives={Exception: random.choice(list(Directive))},
            scope=random.choice(list(Scope)),
            max_restarts=random.choice([0, 2, 10, None]),
            window_ms=random.choice([100, 10_000, None]),
            backoff=random.choice([Backoff(), Backoff(initial_ms=20, maximum_ms=200)]),
            exhausted=random.choice([Directive.STOP, Directive.ESCALATE]),
        )

    def enter(self) -> None:
        self.ledger.require(not self.busy, f"{self.context.me} was entered twice")
        self.busy = True

    def leave(self) -> None:
        self.busy = False

    async def pre_start(self) -> None:
        self.enter()
        try:
            if self.context.me not in self.ledger.refs:
                self.ledger.refs.append(self.context.me)
            if self.ledger.random.random() < 0.2:
                await asyncio.sleep(self.ledger.random.random() / 20)
            if self.ledger.random.random() < 0.05:
                raise PlannedError("at the start")
        finally:
            self.leave()

    async def post_stop(self) -> None:
        self.enter()
        try:
            self.ledger.require(not self.context.children, f"{self.context.me} ends before its children")
            if self.ledger.random.random() < 0.2:
                await asyncio.sleep(self.ledger.random.random() / 20)
            if self.ledger.random.random() < 0.05:
                raise PlannedError("at the end")
        finally:
            self.leave()

    async def receive(self, message: Message) -> None:
        self.enter()
        try:
            match message:
                case Terminated(actor):
                    self.ledger.told[self.context.me, actor] += 1
                case Order(what, number, other):
                    if number and what != "stash":
                        self.ledger.observe(self.context.sender, self.context.me, number)
                    await getattr(self, f"do_{what}")(other)
        finally:
            self.leave()

    async def do_nothing(self, other: ActorRef | None) -> None:
        pass

    async def do_wait(self, other: ActorRef | None) -> None:
        await asyncio.sleep(self.ledger.random.random() / 10)

    async def do_fail(self, other: ActorRef | None) -> None:
        raise PlannedError("as told")

    async def do_wait_and_fail(self, other: ActorRef | None) -> None:
        await asyncio.sleep(self.ledger.random.random() / 50)
        raise PlannedError("after a wait")

    async def do_spawn(self, other: ActorRef | None) -> None:
        name = self.ledger.random.choice(NAMES)
        if self.depth < MAX_DEPTH and self.context.child(name) is None:
            ledger, depth = self.ledger, self.depth + 1
            self.context.spawn(lambda: Node(ledger, depth), name, mailbox_capacity=CAPACITY)

    async def do_stop(self, other: ActorRef | None) -> None:
        self.context.stop()

    async def do_stop_child(self, other: ActorRef | None) -> None:
        children = self.context.children
        if children:
            self.context.stop(self.ledger.random.choice(children))

    async def do_watch(self, other: ActorRef | None) -> None:
        me = self.context.me
        if other is not None and other != me:
            key = (me, other)
            self.ledger.watches[key] = self.ledger.watches.get(key, 0) + 1
            self.ledger.told.setdefault(key, 0)
            self.context.watch(other)

    async def do_unwatch(self, other: ActorRef | None) -> None:
        if other is not None:
            self.context.unwatch(other)

    async def do_timer(self, other: ActorRef | None) -> None:
        self.context.timers.start_once("t", Order("nothing"), delay_ms=self.ledger.random.random() * 50)

    async def do_beat(self, other: ActorRef | None) -> None:
        self.context.timers.start_periodic("beat", Order("nothing"), interval_ms=10)

    async def do_gossip(self, other: ActorRef | None) -> None:
        if other is not None:
            self.ledger.give(
                other, self.ledger.random.choice(["nothing", "wait", "gossip"]), self.context.me, other
            )

    async def do_stash(self, other: ActorRef | None) -> None:
        if self.stashed < 3:
            self.stashed += 1
            self.context.stash()
        else:
            self.context.unstash_all()

    async def do_answer(self, other: ActorRef | None) -> None:
        if self.context.sender is not None:
            self.context.reply(Order("nothing"))

    async def do_ask(self, other: ActorRef | None) -> None:
        if other is not None:
            await ask(self.ledger, other)


async def ask(ledger: Ledger, other: ActorRef) -> None:
    """Ask and count: every ask that is not cancelled has one outcome."""
    ledger.asks += 1
    what = ledger.random.choice(["answer", "answer", "nothing", "fail", "wait"])
    try:
        await other.ask(Order(what), Order, timeout_ms=100)
    except AskError:
        pass
    finally:
        ledger.outcomes += 1


ORDERS = [name.removeprefix("do_") for name in vars(Node) if name.startswith("do_")]
HARMLESS = [name for name in ORDERS if "stop" not in name and "fail" not in name]


@simulate(seeds=12, until_s=600)
async def test_random_trees_keep_every_promise(simulation: Simulation) -> None:
    random = simulation.random
    system = ActorSystem("trees", rng=random)
    ledger = Ledger(random)
    listeners: list[asyncio.Task[None]] = []
    for step in range(STEPS):
        if step < 3 or random.random() < 0.05:
            system.spawn(lambda: Node(ledger, 0), mailbox_capacity=CAPACITY)
        if ledger.refs:
            living = [cell.ref for cell in system.cells() if not cell.is_guardian] or ledger.refs
            receiver = random.choice(living if random.random() < 0.9 else ledger.refs)
            other = random.choice(living if random.random() < 0.8 else ledger.refs)
            for _ in range(random.choice([1, 1, 2, 12])):
                what = random.choice(ORDERS if random.random() < 0.4 else HARMLESS)
                ledger.give(receiver, what, None, other)
            if random.random() < 0.2:
                listeners.append(asyncio.ensure_future(ask(ledger, other)))
            if random.random() < 0.03:
                receiver.tell(PoisonPill())
            if random.random() < 0.03:
                system.stop(other)
        if random.random() < 0.5:
            await simulation.sleep(random.random() / 20)
        system.check()
    await simulation.sleep(5)
    system.check()
    assert not ledger.violations, ledger.violations[:5]
    await asyncio.gather(*listeners)
    assert ledger.outcomes == ledger.asks or any(cell.work for cell in system.cells())
    for key, told in ledger.told.items():
        # A watch ends with at most one Terminated; actors watch again only by another order.
        assert told <= ledger.watches[key], f"{key[0]} was told {told} times of the end of {key[1]}"
    await system.terminate()
    system.check()
    assert ledger.outcomes == ledger.asks
    assert not ledger.violations, ledger.violations[:5]
    assert ledger.handled > 5


@simulate(seeds=10)
async def test_every_watcher_of_a_dying_tree_is_told_exactly_once(simulation: Simulation) -> None:
    random = simulation.random
    system = ActorSystem("trees", rng=random)
    told: dict[tuple[str, str], int] = {}
    targets: list[ActorRef] = []

    class Leaf(Actor):
        def pre_start(self) -> None:
            targets.append(self.context.me)

        async def receive(self, message: Message) -> None:
            await asyncio.sleep(random.random() / 10)
            if random.random() < 0.3:
                raise PlannedError

    class Branch(Leaf):
        supervision = SupervisionPolicy(directives={Exception: Directive.STOP})

        def pre_start(self) -> None:
            super().pre_start()
            for name in NAMES:
                self.context.spawn(Leaf, name)

    class Watcher(Actor):
        def pre_start(self) -> None:
            for target in targets:
                self.context.watch(target)

        def receive(self, message: Message) -> None:
            assert isinstance(message, Terminated)
            key = (self.context.me.path.name, str(message.actor.path))
            told[key] = told.get(key, 0) + 1

    tops = [system.spawn(Branch) for _ in range(3)]
    await simulation.sleep(0.001)
    count = len(targets)
    watchers = [system.spawn(Watcher, f"watcher-{number}") for number in range(5)]
    for target in targets:
        for _ in range(random.randrange(4)):
            target.tell(Order("whatever"))
    await simulation.sleep(random.random() / 10)
    for top in tops:
        system.stop(top)
        system.check()
    await simulation.sleep(1)
    system.check()
    assert len(told) == len(watchers) * count
    assert all(times == 1 for times in told.values())
    await system.terminate()
    system.check()

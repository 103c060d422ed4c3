"""What parents do about failures: scopes and directives as the table says, limits, backoff, escalation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise

import pytest
from actor_harness import Boom, Note, Recorder, in_system, quiet

from drivetrain.actor import Actor, ActorRef, ActorSystem, Message
from drivetrain.core.liveness.supervision import ACTIONS, Backoff, Directive, Scope, SupervisionPolicy

WORDS = {
    None: [],
    Directive.RESUME: [],
    Directive.RESTART: ["pre_restart boom", "post_restart boom"],
    Directive.STOP: ["post_stop"],
}
"""What a child's hooks write for each directive."""


class Boss(Recorder):
    """Starts the given children under the given policy."""

    def __init__(
        self, log: list[str], policy: SupervisionPolicy, children: dict[str, Callable[[], Actor]]
    ) -> None:
        super().__init__(log, "boss")
        self.supervision = policy
        self.factories = children

    def pre_start(self) -> None:
        super().pre_start()
        for name, factory in self.factories.items():
            self.context.spawn(factory, name)


def only(directive: Directive, **settings: object) -> SupervisionPolicy:
    return SupervisionPolicy(directives={Exception: directive}, **settings)  # type: ignore[arg-type]


async def start_family(
    system: ActorSystem, log: list[str], policy: SupervisionPolicy, names: str = "abc"
) -> list[ActorRef]:
    """Start a boss with recording children; return the boss and the children."""
    boss = system.spawn(
        lambda: Boss(log, policy, {name: lambda name=name: Recorder(log, name) for name in names}), "boss"
    )
    await quiet()
    children = [await system.lookup(f"/user/boss/{name}") for name in names]
    log.clear()
    return [boss, *children]


def of(log: list[str], name: str) -> list[str]:
    return [line.removeprefix(f"{name} ") for line in log if line.startswith(f"{name} ")]


@pytest.mark.parametrize(("scope", "directive"), list(ACTIONS))
@in_system
async def test_children_are_treated_as_the_table_says(
    system: ActorSystem, scope: Scope, directive: Directive
) -> None:
    log: list[str] = []
    _, a, b, c = await start_family(system, log, only(directive, scope=scope))
    b.tell(Boom())
    for child in (a, b, c):
        child.tell(Note("after"))
    await quiet()
    if directive is Directive.ESCALATE:
        # The boss restarts by its own parent's policy, and all its children stop with it.
        assert of(log, "boss") == ["pre_restart boom", "post_restart boom"]
        assert all(of(log, name)[-1] == "post_stop" for name in "abc")
        return
    to_child, to_siblings = ACTIONS[scope, directive]
    for name, treatment in (("a", to_siblings), ("b", to_child), ("c", to_siblings)):
        goes_on = [] if treatment is Directive.STOP else ["after"]
        heard = of(log, name)
        assert [line for line in heard if line != "after"] == WORDS[treatment], name
        assert heard.count("after") == len(goes_on) or treatment is Directive.STOP
    assert of(log, "boss") == []


@in_system
async def test_the_most_specific_directive_wins(system: ActorSystem) -> None:
    log: list[str] = []
    policy = SupervisionPolicy(directives={Exception: Directive.STOP, ValueError: Directive.RESUME})
    _, a = await start_family(system, log, policy, "a")
    a.tell(Boom())
    a.tell(Note("resumed"))
    await quiet()
    assert log == ["a resumed"]


@in_system
async def test_restarts_are_limited_within_a_window(system: ActorSystem) -> None:
    log: list[str] = []
    policy = only(Directive.RESTART, max_restarts=2, window_ms=1_000)
    _, a = await start_family(system, log, policy, "a")
    for _ in range(2):
        a.tell(Boom())
    await asyncio.sleep(1.1)
    for _ in range(3):
        a.tell(Boom())
    await quiet()
    assert [line.split()[1] for line in log] == [*["pre_restart", "post_restart"] * 4, "post_stop"]


@in_system
async def test_a_name_used_again_starts_with_a_clean_record(system: ActorSystem) -> None:
    policy = only(Directive.RESTART, max_restarts=1, window_ms=None)
    log: list[str] = []

    class Respawns(Boss):
        def receive(self, message: Message) -> None:
            self.context.spawn(lambda: Recorder(self.log, "a"), "a")

    boss = system.spawn(lambda: Respawns(log, policy, {"a": lambda: Recorder(log, "a")}), "boss")
    for _ in range(2):
        await quiet()
        log.clear()
        a = await system.lookup("/user/boss/a")
        for _ in range(2):
            a.tell(Boom())
        await quiet()
        assert of(log, "a") == ["pre_restart boom", "post_restart boom", "post_stop"]
        boss.tell(Note("spawn"))


@in_system
async def test_a_restart_waits_for_its_backoff_and_keeps_the_mailbox(system: ActorSystem) -> None:
    log: list[str] = []
    backoff = Backoff(initial_ms=100, maximum_ms=1_000, jitter=0.0)
    _, a = await start_family(system, log, only(Directive.RESTART, backoff=backoff), "a")
    a.tell(Boom())
    a.tell(Note("waits"))
    await asyncio.sleep(0.099)
    system.check()
    assert log == ["a pre_restart boom"]
    await asyncio.sleep(0.002)
    assert log[1:] == ["a post_restart boom", "a waits"]
    a.tell(Boom())
    await asyncio.sleep(0.19)
    assert len(log) == 4
    await asyncio.sleep(0.02)
    assert len(log) == 5


@in_system
async def test_all_members_of_a_group_wait_equally_long(system: ActorSystem) -> None:
    log: list[str] = []
    backoff = Backoff(initial_ms=100, maximum_ms=1_000, jitter=0.0)
    policy = only(Directive.RESTART, scope=Scope.ALL_FOR_ONE, backoff=backoff)
    _, a, b, _ = await start_family(system, log, policy)
    a.tell(Boom())
    b.tell(Note("waits"))
    await asyncio.sleep(0.05)
    system.check()
    assert not any("post_restart" in line for line in log)
    await asyncio.sleep(0.06)
    assert sum("post_restart" in line for line in log) == 3
    assert of(log, "b")[-1] == "waits"


@in_system
async def test_a_stop_during_the_backoff_ends_the_wait(system: ActorSystem) -> None:
    log: list[str] = []
    backoff = Backoff(initial_ms=1_000, maximum_ms=1_000, jitter=0.0)
    boss, a = await start_family(system, log, only(Directive.RESTART, backoff=backoff), "a")
    a.tell(Boom())
    await asyncio.sleep(0.1)
    system.stop(boss)
    await quiet()
    assert log == ["a pre_restart boom", "boss post_stop"]
    await asyncio.sleep(2)
    assert len(log) == 2


@in_system
async def test_a_failing_start_is_retried_with_backoff(system: ActorSystem) -> None:
    tries: list[float] = []

    class NeedsTime(Actor):
        def pre_start(self) -> None:
            tries.append(system.loop.time())
            if len(tries) < 4:
                raise ConnectionError("not yet")

        def receive(self, message: Message) -> None:
            self.context.reply(message)

    backoff = Backoff(initial_ms=100, maximum_ms=1_000, jitter=0.0)
    system.spawn(lambda: Boss([], only(Directive.RESTART, backoff=backoff), {"a": NeedsTime}), "boss")
    await quiet()
    child = await system.lookup("/user/boss/a")
    assert await child.ask(Note("up"), Note) == Note("up")
    assert [round(b - a, 2) for a, b in pairwise(tries)] == [0.1, 0.2, 0.4]


@in_system
async def test_resuming_the_parent_resumes_the_child_that_escalated(system: ActorSystem) -> None:
    log: list[str] = []
    middle = SupervisionPolicy(directives={})  # everything escalates
    top = only(Directive.RESUME)
    system.spawn(
        lambda: Boss(log, top, {"middle": lambda: Boss(log, middle, {"a": lambda: Recorder(log, "a")})}),
        "top",
    )
    await quiet()
    await quiet()
    log.clear()
    a = await system.lookup("/user/top/middle/a")
    a.tell(Boom())
    a.tell(Note("goes on"))
    await quiet()
    assert log == ["a goes on"]


@in_system
async def test_an_escalation_interrupts_what_the_parent_waits_for(system: ActorSystem) -> None:
    log: list[str] = []

    class Waits(Boss):
        async def receive(self, message: Message) -> None:
            try:
                await asyncio.sleep(100)
            except asyncio.CancelledError:
                self.write("cancelled")
                raise

    boss = system.spawn(
        lambda: Waits(log, SupervisionPolicy(directives={}), {"a": lambda: Recorder(log, "a")}), "boss"
    )
    boss.tell(Note("wait"))
    await quiet()
    log.clear()
    (await system.lookup("/user/boss/a")).tell(Boom())
    await quiet()
    assert log == [
        "boss cancelled",
        "a post_stop",
        "boss pre_restart boom",
        "boss post_restart boom",
    ] or log == [
        "a post_stop",
        "boss cancelled",
        "boss pre_restart boom",
        "boss post_restart boom",
    ]


@in_system(supervision=SupervisionPolicy(directives={}))
async def test_what_escalates_to_the_root_ends_the_system(system: ActorSystem) -> None:
    system.spawn(lambda: Recorder([])).tell(Boom("fatal"))
    with pytest.raises(ValueError, match="fatal"):
        await system.wait_terminated()
    assert system.is_terminated


@in_system
async def test_a_failure_while_stopping_changes_nothing(system: ActorSystem) -> None:
    class FailsLate(Actor):
        def receive(self, message: Message) -> None:
            self.context.stop()
            raise ValueError("too late to matter")

    actor = system.spawn(FailsLate, "late")
    actor.tell(Note("x"))
    await quiet()
    assert system.failures == 0
    system.spawn(FailsLate, "late")


@in_system
async def test_two_members_that_fail_one_after_the_other_both_count(system: ActorSystem) -> None:
    log: list[str] = []
    _, a, b, _ = await start_family(system, log, only(Directive.RESTART, scope=Scope.ALL_FOR_ONE))
    a.tell(Boom())
    b.tell(Boom())
    await quiet()
    assert system.failures == 2
    hooks = {name: [line.split()[0] for line in of(log, name)] for name in "abc"}
    assert hooks["b"] == ["pre_restart", "post_restart"] * 2
    # The others may still have been at their first restart when the second was decided.
    for name in "ac":
        assert hooks[name] in (["pre_restart", "post_restart"], ["pre_restart", "post_restart"] * 2)

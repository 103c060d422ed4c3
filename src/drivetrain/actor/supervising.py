"""Supervision of a failed child: makes the policy's decision and carries it out.

Problem: the decision is pure (`drivetrain.core.liveness.supervision`); something must pass it the time and
the siblings, and carry it out.

Design: the decision is made and carried out in the step in which the child failed. An escalated failure
goes up the tree until a parent decides, at the latest the root, which then ends the system.

Called by cells.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from drivetrain.actor.cell import STARTING
from drivetrain.actor.lifecycle import restart, stop
from drivetrain.core.liveness.supervision import (
    ChildName,
    EscalateFailure,
    RestartChild,
    StopChild,
    SupervisionEffect,
    SupervisionPolicy,
    Supervisor,
)

if TYPE_CHECKING:
    from drivetrain.actor.cell import Cell
    from drivetrain.actor.message import Message

_log: Final = logging.getLogger("drivetrain.actor")

_SHOWN_CHARACTERS: Final = 200


def supervise(parent: Cell | None, child: Cell, failure: BaseException, message: Message | None) -> None:
    """Decide about the failed `child` and carry it out; `parent` None means that the root itself failed.

    `message` is the one it was handling, for the log.
    """
    if parent is None:
        child.system.fail(failure)
        stop(child, interrupt=True)
        return
    system = parent.system
    if parent.supervisor is None:
        policy = SupervisionPolicy() if parent.actor is None else parent.actor.supervision
        parent.supervisor = Supervisor(policy, system.rng)
    children = parent.children or {}
    siblings = (ChildName(name) for name, sibling in children.items() if sibling.is_active)
    now_ms = int(system.loop.time() * 1000)
    effects = parent.supervisor.decide(failure, ChildName(child.name), now_ms, siblings)
    _report(child, failure, message, effects[0])
    for effect in effects:
        _perform(effect, children[effect.child], parent, failure)
    if child.phase is STARTING:
        # The decision is to resume, but an instance whose start failed cannot continue.
        stop(child, interrupt=True)


def _perform(effect: SupervisionEffect, target: Cell, parent: Cell, failure: BaseException) -> None:
    if isinstance(effect, RestartChild):
        restart(target, failure, effect.delay_ms)
    elif isinstance(effect, StopChild):
        if parent.parent is None:
            target.system.fail(failure)
        stop(target, interrupt=True)
    elif isinstance(effect, EscalateFailure) and parent.is_active:
        # The child shares what is decided about its parent: it continues or stops with it.
        supervise(parent.parent, parent, failure, None)


def _report(child: Cell, failure: BaseException, message: Message | None, effect: SupervisionEffect) -> None:
    handling = "" if message is None else f" while it handled {repr(message)[:_SHOWN_CHARACTERS]}"
    decision = type(effect).__name__
    details = ""
    if isinstance(effect, RestartChild):
        details = f", restart number {effect.attempt} in {effect.delay_ms} ms"
    elif isinstance(effect, StopChild | EscalateFailure) and effect.exhausted:
        details = ", its restarts are used up"
    _log.error("%s failed%s: %s (%s%s)", child.path, handling, failure, decision, details, exc_info=failure)

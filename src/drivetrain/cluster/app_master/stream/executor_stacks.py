"""Forwards requests for the stacks of an executor's threads to the executor, and its answers back.

Called by `stream_app_master`.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final

from drivetrain.actor import Failure
from drivetrain.cluster.app_master.app_master_messages import RunAction
from drivetrain.cluster.messages.following import GetThreads, ThreadStacks
from drivetrain.errors import UnavailableError

if TYPE_CHECKING:
    from drivetrain.cluster.app_master.app_master import ApplicationMaster

STACKS_MS: Final = 20_000
"""How long an executor may take: Java stops its threads to look at them."""


def ask_for_stacks(owner: ApplicationMaster, message: GetThreads) -> None:
    """Ask the executor, and forward its answer to the sender, or a failure if it does not answer."""
    asker = owner.context.sender
    if asker is None:
        return
    ready = [m for m in owner.pool.ready if m.executor is not None]
    member = next((m for m in ready if message.executor in (None, m.id)), None)
    if member is None or member.executor is None:
        known = ", ".join(m.id for m in ready) or "none is ready"
        error = UnavailableError("no such executor is ready", got=message.executor, remedy="try again")
        owner.context.reply(Failure(error.code, f"{error.what}: {known}", owner.setup.app_id, error.remedy))
        return

    def failed(error: Exception) -> RunAction:
        failure = Failure(UnavailableError.code, f"{member.id}: {error}", owner.setup.app_id, "try again")
        return RunAction(functools.partial(asker.tell, failure, owner.context.me))

    owner.context.pipe_to_self(
        member.executor.ask(GetThreads(member.id), ThreadStacks, timeout_ms=STACKS_MS),
        lambda stacks: RunAction(functools.partial(asker.tell, stacks, owner.context.me)),
        failed,
    )

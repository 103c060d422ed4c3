"""Returns an application to its last checkpoint: asks the leader to restart it with another epoch.

Problem: the state of a fragment is lost, and output that was published must not be published again. All
fragments have to start again together, which a restart of the whole application does.

Design: the request to the leader is repeated until it takes effect, which ends this application master. It
names the epoch, so that a late or repeated request does not restart an application that was restarted
already.

Invariants:

1. One request is under way at a time, and it is repeated until the end if the leader does not answer.
2. One loss of state restarts the application once.

Called by `stream_app_master` when `running_job` reports the loss.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from drivetrain.actor import ActorRef
from drivetrain.cluster.app_master.app_master_messages import AskOutcome, Setup
from drivetrain.cluster.app_master.stream.application_requests import Ask
from drivetrain.cluster.messages.applications import Restart

RESTORE_NEEDED: Final = "restore-needed"
"""The code of the error of a fragment whose state is lost; see `spark.checkpoints.participation`."""
GO_BACK: Final = "go back"
"""The name of its requests and delays."""
_AGAIN_MS: Final = 5_000


class RestoreRequest:
    """The return of one application to its checkpoint; `wake(ms)` calls `ask` later."""

    def __init__(
        self,
        setup: Setup,
        leader: Callable[[], ActorRef | None],
        ask: Ask,
        wake: Callable[[int], None],
    ) -> None:
        self._setup: Final = setup
        self._leader: Final = leader
        self._ask: Final = ask
        self._wake: Final = wake
        self._has_begun = False

    def begin(self, why: str) -> None:
        """Start asking, because the state of a fragment is lost; idempotent."""
        if not self._has_begun:
            self._has_begun = True
            self._setup.log(f"asks to be started again: {why}")
            self.ask()

    def ask(self) -> None:
        """Ask the leader, or wait if there is none."""
        leader = self._leader()
        if leader is not None:
            request = Restart(self._setup.app_id, epoch=self._setup.epoch)
            self._ask(GO_BACK, -1, leader, request, _AGAIN_MS)
        else:
            self._wake(_AGAIN_MS)

    def answered(self, answer: AskOutcome) -> None:
        """Handle the leader's answer; without one, ask again later."""
        if answer.answer is None:
            self._wake(_AGAIN_MS)

"""An application goes back to its last checkpoint: its master asks the leader for another epoch of it.

Problem: the state of a fragment is lost, and what was published must not be published again. All fragments
have to begin again together, which is what a restart of the whole application does.

Design: the leader is asked until it acts, which ends this application master. It is told of which epoch the
request is, so that one that comes late, or twice, does not restart what was restarted already.

Invariants:

1. It is asked for once at a time, and again until the end when nobody answers.
2. One loss of state restarts the application once.

Called by `stream_app_master` when `running_job` says so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from drivetrain.actor import ActorRef
from drivetrain.cluster.app_master.own_messages import Answered, Setup
from drivetrain.cluster.app_master.stream.errands import Ask
from drivetrain.cluster.messages.applications import Restart

RESTORE_NEEDED: Final = "restore-needed"
"""The code of the error of a fragment whose state is lost; see `spark.checkpoints.participation`."""
GO_BACK: Final = "go back"
"""What its requests and delays are called."""
_AGAIN_MS: Final = 5_000


class GoingBack:
    """The way back of one application; `wake` has `ask` called after so many ms."""

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
        """The state of a fragment is lost; harmless when repeated."""
        if not self._has_begun:
            self._has_begun = True
            self._setup.log(f"asks to be started again: {why}")
            self.ask()

    def ask(self) -> None:
        """Ask the leader, or later when there is none."""
        leader = self._leader()
        if leader is not None:
            request = Restart(self._setup.app_id, epoch=self._setup.epoch)
            self._ask(GO_BACK, -1, leader, request, _AGAIN_MS)
        else:
            self._wake(_AGAIN_MS)

    def answered(self, answer: Answered) -> None:
        """The leader has answered, or could not be reached, or does not answer."""
        if answer.answer is None:
            self._wake(_AGAIN_MS)

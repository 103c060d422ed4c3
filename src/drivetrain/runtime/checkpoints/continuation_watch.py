"""Watches whether another process has continued an application from its copied checkpoints.

Problem: a machine may be considered lost while its process still runs. That process ends when it cannot
make its next checkpoint, but it may have nothing to save for hours, and then process new messages: results
that it prepares must not be mistaken for those of its successor.

Design: a running process looks every `LOOK_S` for a newer checkpoint than its own, and ends if there is one.
A successor waits twice as long, and then drops whatever was prepared after the checkpoint. Where the copies
are the state, the process also renews its lease then, and a successor waits until that is over before. In a
cluster, each process of the application does so.

Called by `run_checkpoints`, and in a cluster by the application master and executors. Imports neither pyspark
nor pyarrow.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from drivetrain.errors import DrivetrainError
from drivetrain.runtime.checkpoints.checkpoint_copy import TakenOverError
from drivetrain.runtime.checkpoints.copied_checkpoints import CopiedCheckpoints
from drivetrain.runtime.checkpoints.state_lease import RENEW_S

LOOK_S = RENEW_S


class ContinuationWatch:
    """Calls `look` again and again, and reports once if that finds that another process has continued.

    `look` raises TakenOverError then; other errors are reported by the next checkpoint.
    """

    def __init__(self, look: Callable[[], None], report: Callable[[BaseException], None]) -> None:
        self._look: Final = look
        self._report: Final = report
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="copied-checkpoints", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop looking."""
        self._ends.set()

    def _watch(self) -> None:
        while self._has_it():
            if self._ends.wait(LOOK_S):
                return

    def _has_it(self) -> bool:
        """Whether this process has the application, as far as the store answers."""
        try:
            self._look()
        except TakenOverError as error:
            self._report(error)
            return False
        except (DrivetrainError, PermissionError):
            return True
        return True


def look(copies: CopiedCheckpoints) -> None:
    """Raise TakenOverError if another process has continued; else renew the lease, if it has begun."""
    copies.require_newest()
    if copies.lease is not None:
        copies.lease.renew()

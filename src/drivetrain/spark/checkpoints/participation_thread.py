"""The thread in which a fragment takes part in checkpoints.

Problem: Spark runs batches in its threads, and who polls must not wait for a boundary or a publication.

Design: it waits for news and takes a step; what a step is is `participation`'s affair.

Invariants:

1. After `close` no step is being taken.

Called by `execution`.
"""

from __future__ import annotations

import threading
from typing import Final

from drivetrain.actor.purgatory import monotonic_ms
from drivetrain.spark.checkpoints.participation import Participation

_BETWEEN_S: Final = 0.25
"""How long a boundary is waited for at once; then it is looked whether the query still runs."""


class ParticipationThread:
    """Takes the steps of a participation, from `start` to `close`."""

    def __init__(self, part: Participation) -> None:
        self._part: Final = part
        self._thread: Final = threading.Thread(
            target=self._run, name=f"checkpoint-{part.fragment}", daemon=True
        )

    def start(self) -> None:
        """The query has started: take part from now on."""
        self._part.start()
        self._thread.start()

    def ran(self) -> None:
        """The query has run a batch, or its clock has moved."""
        self._part.ran()

    def close(self) -> None:
        """Take part no more; waits for what is being done."""
        self._part.close()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        while not self._part.is_over:
            self._part.wait_news()
            self._part.step(monotonic_ms(), _BETWEEN_S)

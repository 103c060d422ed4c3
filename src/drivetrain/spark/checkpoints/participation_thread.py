"""The thread in which a fragment takes part in checkpoints.

Problem: Spark runs batches in its threads, and the polling thread must not wait for a boundary or a
publication.

Design: the thread waits for events and takes steps; `participation` defines a step.

Invariants:

1. After `close` no step runs.

Called by `spark.run.host`.
"""

from __future__ import annotations

import threading
from typing import Final

from drivetrain.actor.purgatory import monotonic_ms
from drivetrain.spark.checkpoints.participation import Participation

_BETWEEN_S: Final = 0.25
"""How long a step waits for a boundary; then the loop checks whether the query still runs."""


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
        """Stop taking part; waits for a running step."""
        self._part.close()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        while not self._part.is_over:
            self._part.wait_news()
            self._part.step(monotonic_ms(), _BETWEEN_S)

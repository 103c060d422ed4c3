"""The thread of one attempt of a fragment.

Problem: an attempt waits for locks, compiles, and polls Spark, all of which blocks; its executor must not.

Design: the thread takes the attempt's steps until there are no more, and waits in between; an order of the
executor ends the wait. `fragment_attempt` defines a step.

Called by `executor`.
"""

from __future__ import annotations

import threading
import time

from drivetrain.cluster.executor.fragment_attempt import Attempt
from drivetrain.spark.run.fragment_driver import POLL_S


def run_in_thread(attempt: Attempt) -> None:
    """Start a thread that takes all steps of the attempt; returns at once."""
    threading.Thread(target=_run, args=(attempt,), name=f"attempt-{attempt.fragment}", daemon=True).start()


def _run(attempt: Attempt) -> None:
    while True:
        attempt.step(time.monotonic())
        if attempt.has_ended:
            return
        attempt.wait_orders(POLL_S)

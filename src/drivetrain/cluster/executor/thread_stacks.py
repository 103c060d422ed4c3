"""The stacks of the threads in an executor's process, as a message.

Called by `executor`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from drivetrain.cluster.launch_file import LaunchFile
from drivetrain.cluster.messages.following import ThreadStacks
from drivetrain.spark.run.thread_dump import threads_of_process


def stacks_of(launch: LaunchFile) -> Callable[[], ThreadStacks]:
    """The function that makes the answer, to be called in a thread."""
    return partial(_made, launch.launch_id)


def _made(executor: str) -> ThreadStacks:
    return ThreadStacks(executor, **threads_of_process())

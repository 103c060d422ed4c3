"""Shows what the threads of a run are doing, in Python and in Java.

Problem: a batch that hangs reports nothing; its user wants to know where the application's code, or Spark, is
waiting.

Design: Python's frames are read from the interpreter; Spark dumps the threads of its Java process. Functions
that run in Spark's Python workers are in other processes; the dump shows the thread of Spark that waits for
them.

Called by `run_reporter`, whose answers include it, and by `cluster.executor.thread_stacks`.
"""

from __future__ import annotations

import sys
import threading
import traceback
from typing import Any, Final

MOST_CHARACTERS: Final = 400_000
"""The most text of each of the two dumps."""


def threads_of_process() -> dict[str, str]:
    """The stacks of this process, and of Spark's Java if it runs here."""
    from pyspark import SparkContext

    return threads_of(SparkContext._active_spark_context)


def threads_of(spark: Any | None) -> dict[str, str]:
    """The stacks of all threads as text: those of this process (`python`), and of Spark's Java (`java`, empty
    without Spark)."""
    java = "" if spark is None else _java(spark)
    return {"python": _python()[:MOST_CHARACTERS], "java": java[:MOST_CHARACTERS]}


def _python() -> str:
    frames = sys._current_frames()
    parts = []
    for thread in threading.enumerate():
        frame = frames.get(thread.ident or 0)
        stack = "" if frame is None else "".join(traceback.format_stack(frame))
        parts.append(f'"{thread.name}"{" daemon" if thread.daemon else ""}\n{stack}')
    return "\n".join(parts)


def _java(spark: Any) -> str:
    dumped = [str(one) for one in spark._jvm.org.apache.spark.util.Utils.getThreadDump()]
    # First those that run the queries: the text is cut at the end.
    return "\n".join(sorted(dumped, key=lambda one: not one.startswith('"stream execution')))

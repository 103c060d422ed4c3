"""The processes in which Spark plans a Python source, and their end.

The problem: for each query Spark starts a Python process that holds the source's stream reader, and closes
the connection to it when the query ends, for any reason. PySpark's loop in that process takes this for an
error, tries to report it over the closed connection, and ends with a traceback of `EOFError` and
`BrokenPipeError` on the standard error stream of the application, unless Spark's SIGTERM comes first.

The design: a lost connection is the normal end of such a process, so it exits silently. Any other error is
reported as before.

Called by the data sources, where they make their stream readers. Source: PySpark's
`python_streaming_source_runner`.
"""

from __future__ import annotations

import os
import sys
from types import TracebackType
from typing import Final

RUNNER: Final = "pyspark.sql.streaming.python_streaming_source_runner"


def end_with_connection() -> None:
    """Have this process exit silently when Spark closes its connection, if it is one that plans a source."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is not None and spec.name == RUNNER:
        sys.excepthook = _hook


def _hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, EOFError | ConnectionError):
        os._exit(0)  # at once: flushing the streams would only fail again
    sys.__excepthook__(kind, error, trace)

"""Keeps the connections to Spark's Java process intact when this process forks.

The problem: each Python thread has a connection of its own. A forked child that runs Python (of the
multiprocessing module, or of subprocess with a function to call before the program) disposes of all threads
but one. PySpark then closes their connections properly, which shuts down sockets that the child shares with
its parent. A thread of the parent that waits for Java's answer at this moment fails with `Py4JError`,
although Java runs.

The design: a connection is shut down only by the process that made it; a child just drops it.

Called by `spark_session`.
"""

from __future__ import annotations

import os

from py4j.clientserver import ThreadLocalConnectionFinalizer

_owner = os.getpid()
_close = ThreadLocalConnectionFinalizer.__del__


def close_connections_only_here() -> None:
    """Leave the connections of this process's threads to this process; once is enough."""
    if ThreadLocalConnectionFinalizer.__del__ is _close:
        ThreadLocalConnectionFinalizer.__del__ = _close_if_owner
        os.register_at_fork(after_in_child=_own_from_now_on)


def _close_if_owner(finalizer: ThreadLocalConnectionFinalizer) -> None:
    if os.getpid() == _owner:
        _close(finalizer)


def _own_from_now_on() -> None:
    """Called in a child, which has disposed of its parent's threads by now: connections that it makes are
    its own."""
    global _owner
    _owner = os.getpid()

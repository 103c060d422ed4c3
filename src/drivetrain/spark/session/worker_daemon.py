"""Spark's daemon of Python workers, with workers that end quietly when Java has closed their connection.

The problem: when a task fails, is ended, or needs no more rows, Java closes its connection while the worker
may still have something to send. Through a Unix socket that fails at once, and Spark's daemon prints a
traceback of it, on the user's terminal, above the error of the task.

The design: nobody is there to be notified, so such a worker just ends. What fails in a user's function has
been sent to Java before, or could not be sent for the same reason.

Run as a program by the script of `python_launcher`, in the place of `pyspark.daemon`, for local masters.
"""

from __future__ import annotations

import socket
from typing import Final

from pyspark import daemon

_ENDS: Final = 1
_work = daemon.worker


def work(connection: socket.socket, authenticated: bool) -> int:
    """Work for one task; returns 0 if the worker may work for another one."""
    try:
        return _work(connection, authenticated)
    except (BrokenPipeError, ConnectionResetError):
        return _ENDS


if __name__ == "__main__":
    daemon.worker = work
    daemon.manager()

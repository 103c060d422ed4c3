"""A process that has imported the modules of Spark's Python processes, and becomes each of them by a fork.

The problem: Spark starts a Python process for every query with a Python source, and one of each kind of
worker for every session; each imports PySpark, pyarrow and Drivetrain, which takes 0.3 to 0.5 s of CPU before
it does anything.

The design: one process per session imports them once, while Java starts. Spark starts `fork_client`, which
sends its arguments, environment, directory and standard streams; a fork takes them over and runs the module,
as `python -m` does. The client stays, since Spark ends the processes that it started itself: when the client
ends, the fork is ended, and the client exits with the fork's exit code.

Invariants:

1. A fork has the arguments, environment, import path, directory and streams of its client, and nothing of
   another's.
2. Settings that an interpreter reads only when it starts (`PYTHONHASHSEED`, threads of numpy) are as in the
   client's environment; a client whose settings differ is refused, and runs the module itself.
3. Forks draw different random numbers.
4. This process ends when the one that started it does, however that ends. Spark ends the forks.

Run as a program by `python_launcher`, without `PYTHONPATH`: its arguments are the number of the socket that
listens, and the entries of that path. Source: Python's `multiprocessing.forkserver`.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import runpy
import selectors
import signal
import socket
import struct
import sys
from dataclasses import dataclass
from typing import Final

# Only the standard library is imported here: when this runs, the import path is not complete.

_PATIENCE_S: Final = 30.0
_LENGTH: Final = struct.Struct("!I")
_STATUS: Final = struct.Struct("!i")
_STREAMS: Final = 3
_ACCEPTED, _REFUSED = b"y", b"n"

_PRELOADED: Final = (
    "pyspark.worker",
    "drivetrain.spark.session.worker_daemon",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "drivetrain.spark.channel.source",
    "drivetrain.connectors.files.file_reader",
    "drivetrain.connectors.in_process.generator",
    "pandas",  # pyarrow imports it when it converts rows
    "encodings.idna",  # `socket` imports it for host names
)
_AT_START: Final = ("PYTHONHASHSEED", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
"""Variables that an interpreter, or a library that is already loaded, reads only at its start."""


@dataclass(frozen=True)
class Request:
    """A client's request: the arguments of `python -m`, its environment, directory and streams."""

    arguments: list[str]
    environment: dict[str, str]
    directory: str
    streams: list[int]


def received(connection: socket.socket) -> Request:
    """The request of a client; raises OSError or ValueError when it is incomplete."""
    head, streams, _, _ = socket.recv_fds(connection, _LENGTH.size, _STREAMS)
    try:
        content = _whole(connection, *_LENGTH.unpack(head)) if len(head) == _LENGTH.size else b""
        directory, count, *rest = os.fsdecode(content).split("\0")
        arguments, variables = rest[: int(count)], rest[int(count) :]
        return Request(arguments, dict(v.split("=", 1) for v in variables), directory, streams)
    except BaseException:
        _close(streams)
        raise


def _whole(connection: socket.socket, length: int) -> bytes:
    content = bytearray()
    while len(content) < length and (part := connection.recv(length - len(content))):
        content += part
    if len(content) < length:
        raise ValueError("the client has ended")
    return bytes(content)


def can_become(environment: dict[str, str]) -> bool:
    """Whether a fork of this process is what a new Python with that environment would be."""
    return all(environment.get(name, os.environ.get(name)) == os.environ.get(name) for name in _AT_START)


class Server:
    """Forks for clients until the process that started this one has ended."""

    def __init__(self, listening: socket.socket) -> None:
        self._listening = listening
        self._selector = selectors.DefaultSelector()
        self._woken, self._wakes = socket.socketpair()
        self._clients: dict[int, socket.socket] = {}  # by the id of the fork

    def serve(self) -> Request | None:
        """Serve; returns None when the parent process has ended, or, in a fork, the request to run."""
        for end in (self._woken, self._wakes):
            end.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wakes.fileno(), warn_on_full_buffer=False)
        for readable in (0, self._listening, self._woken):
            self._selector.register(readable, selectors.EVENT_READ)
        while True:
            for key, _ in self._selector.select():
                if key.fd == 0:
                    signal.set_wakeup_fd(-1)  # a fork that ends now would wake a socket that Python closes
                    return None
                if key.fileobj is self._woken:
                    with contextlib.suppress(BlockingIOError):
                        self._woken.recv(4096)
                    self._reap()
                elif key.fileobj is self._listening:
                    request = self._taken()
                    if request is not None:
                        return request
                elif key.data in self._clients:
                    self._left(key.data)

    def _taken(self) -> Request | None:
        """Accept a client and fork for it; returns the request in the fork, None in the server."""
        connection, _ = self._listening.accept()
        connection.settimeout(_PATIENCE_S)
        try:
            request = received(connection)
        except (OSError, ValueError):
            connection.close()
            return None
        pid = -1
        try:
            if not can_become(request.environment):
                connection.sendall(_REFUSED)
            elif (pid := os.fork()) == 0:
                self._forget_all(connection)
                return request
            else:
                self._clients[pid] = connection
                self._selector.register(connection, selectors.EVENT_READ, pid)
                connection.sendall(_ACCEPTED)
        except OSError:  # the client has ended, or no process can be forked: it runs the module itself
            if pid > 0:
                self._left(pid)
        finally:
            _close(request.streams if pid != 0 else [])
            if pid < 0:
                connection.close()
        return None

    def _forget_all(self, connection: socket.socket) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._selector.close()
        for known in (connection, self._listening, self._woken, self._wakes, *self._clients.values()):
            known.close()

    def _left(self, pid: int) -> None:
        """End the fork of a client that has ended."""
        self._forget(pid)
        os.kill(pid, signal.SIGTERM)  # not reaped yet, so no other process has the id

    def _reap(self) -> None:
        """Send the exit codes of ended forks to their clients."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            connection = self._clients.get(pid)
            if connection is not None:
                with contextlib.suppress(OSError):  # the client has ended as well
                    connection.sendall(_STATUS.pack(os.waitstatus_to_exitcode(status)))
                self._forget(pid)

    def _forget(self, pid: int) -> None:
        connection = self._clients.pop(pid)
        self._selector.unregister(connection)
        connection.close()


def become(request: Request, base: list[str]) -> None:
    """Become the process that the client asked for; `base` is the import path without `PYTHONPATH`."""
    for number, stream in enumerate(request.streams):
        os.dup2(stream, number)
    _close(request.streams)
    os.environ.clear()
    os.environ.update(request.environment)
    os.chdir(request.directory)
    sys.path[:] = [request.directory, *_entries(request.environment), *base]
    module, *arguments = request.arguments
    sys.argv[:] = [module, *arguments]
    sys.modules.pop(module, None)  # it runs as a program, not as an import
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _entries(environment: dict[str, str]) -> list[str]:
    """The import path that an environment adds."""
    return [entry for entry in environment.get("PYTHONPATH", "").split(os.pathsep) if entry]


def _preload() -> None:
    for name in _PRELOADED:
        importlib.import_module(name)
    os.register_at_fork(after_in_child=sys.modules["numpy.random"].seed)
    gc.collect()
    gc.freeze()  # pages that forks share stay shared


def _close(numbers: list[int]) -> None:
    for number in numbers:
        os.close(number)


def _main() -> None:
    base = sys.path[1:]  # without this file's folder
    listening = socket.socket(fileno=int(sys.argv[1]))
    sys.path[:] = [*sys.argv[2:], *base]
    _preload()
    request = Server(listening).serve()
    if request is not None:
        become(request, base)


if __name__ == "__main__":
    _main()

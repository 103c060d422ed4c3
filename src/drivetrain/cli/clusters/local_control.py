"""The requests of a local cluster's console to `drivetrain local`: to list its workers, to add one, to end
one.

Design: requests come in threads of the control socket. A process must be started by the main thread, since
the kernel ends it with the thread that started it (`cluster.parent`), so requests wait until the main thread
handles them.

Invariants:

1. Every request is answered, and none ends the cluster.
2. Only workers that this command has started are ended.

Called by `local`.
"""

from __future__ import annotations

import queue
from concurrent.futures import Future
from typing import Final

import msgspec

from drivetrain.cli.clusters.local_cluster import LocalCluster
from drivetrain.console.local_workers import LocalAnswer, LocalRequest
from drivetrain.errors import DrivetrainError
from drivetrain.runtime.control_socket import ControlSocket

MOST_WORKERS: Final = 64
_PATIENCE_S: Final = 8.0
"""Less than the console waits."""


class LocalControl:
    """Answers for a local cluster while it is open; the main thread calls `work` now and then."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster: Final = cluster
        self._asked: Final[queue.Queue[tuple[LocalRequest, Future[LocalAnswer]]]] = queue.Queue()
        self._socket: Final = ControlSocket(cluster.directory, self.answer)

    def close(self) -> None:
        """Stop answering."""
        self._socket.close()

    def answer(self, line: bytes) -> bytes:
        """The answer to a request, both a line of JSON; runs in a thread of the socket."""
        return msgspec.json.encode(self._answered(line))

    def work(self) -> None:
        """Carry out the requests since the last call; for the main thread."""
        while True:
            try:
                request, answer = self._asked.get_nowait()
            except queue.Empty:
                return
            if answer.set_running_or_notify_cancel():
                answer.set_result(self._done(request))

    def _answered(self, line: bytes) -> LocalAnswer:
        try:
            request = msgspec.json.decode(line, type=LocalRequest)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return self._refused("the request cannot be read", "use one version of Drivetrain everywhere")
        if request.ask == "list":
            return LocalAnswer(self._cluster.workers())
        answer: Future[LocalAnswer] = Future()
        self._asked.put((request, answer))
        try:
            return answer.result(_PATIENCE_S)
        except TimeoutError:
            if answer.cancel():
                return self._refused("drivetrain local is busy", "try again in a moment")
            return answer.result()

    def _done(self, request: LocalRequest) -> LocalAnswer:
        workers = self._cluster.workers()
        try:
            if request.ask == "add":
                if len(workers) >= MOST_WORKERS:
                    return self._refused(f"it runs {MOST_WORKERS} workers already", "remove one first")
                box = self._cluster.add_worker()
            elif request.worker not in workers:
                return self._refused(
                    "drivetrain local runs no worker of this name",
                    f"it runs {', '.join(workers) or 'none'}; end others where they were started",
                )
            else:
                box = self._cluster.remove_worker(request.worker)
        except (DrivetrainError, OSError) as error:
            return self._refused(f"the worker could not be started or ended: {error}", "see its log")
        return LocalAnswer(self._cluster.workers(), box.name, str(box.log))

    def _refused(self, what: str, remedy: str) -> LocalAnswer:
        return LocalAnswer(self._cluster.workers(), refused=what, remedy=remedy)

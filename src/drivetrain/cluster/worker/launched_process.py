"""One launched process: copies its output, reports its end, and leaves none of its descendants running.

Problem: a process must never wait for its worker to read its output, its end must be reported with the last
of its output, and the processes that it started must end with it.

Design: the process leads its own session; two threads serve it. One copies its output from a pipe into the
log. The other waits for its end *without* reaping it, so that its session id cannot be reused while the
session and everything with the launch's tag are killed; then it reaps the process, waits for the first
thread, and calls `on_end`. The process must be started by a thread that lives as long as the worker, see
`parent`.

Invariants:
1. `on_end(status)` is called once, from a thread, when no process of the launch is left.
2. `status` is the exit code, or minus the signal that ended it.

Called by the launcher, and by `spare_executors`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from drivetrain.cluster.parent import PARENT_VARIABLE
from drivetrain.cluster.worker.orphans import LAUNCH_VARIABLE, end_tagged, in_session, kill, start_ticks
from drivetrain.cluster.worker.worker_logs import LogWriter, SpareOutput

_BLOCK_BYTES: Final = 64 * 1024
_END_S: Final = 30.0
_DRAIN_S: Final = 5.0


class LaunchedProcess:
    """Starts `arguments` in `directory` with `environ` and the launch's `tag`; raises OSError."""

    def __init__(
        self,
        arguments: Sequence[str],
        directory: Path,
        environ: Mapping[str, str],
        tag: str,
        output: LogWriter | SpareOutput,
        on_end: Callable[[int], None],
    ) -> None:
        self._tag: Final = tag
        self._output: Final = output
        self._on_end: Final = on_end
        self._reaping: Final = threading.Lock()
        self._process: Final = subprocess.Popen(
            list(arguments),
            cwd=directory,
            env={**environ, LAUNCH_VARIABLE: tag, PARENT_VARIABLE: str(os.getpid())},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            bufsize=0,
        )
        self.pid: Final = self._process.pid
        self.started_ticks: Final = start_ticks(self.pid)
        self._reader: Final = threading.Thread(target=self._copy, name=f"log-{self.pid}", daemon=True)
        self._waiter: Final = threading.Thread(target=self._wait, name=f"wait-{self.pid}", daemon=True)
        self._reader.start()
        self._waiter.start()

    def tell(self, line: bytes) -> None:
        """Send a short line over the pipe that ties the process to its worker; raises OSError."""
        assert self._process.stdin is not None
        self._process.stdin.write(line)

    def ask_to_end(self) -> None:
        """Send SIGTERM to the process itself, so that it can clean up."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the process; the waiting thread then ends its descendants."""
        self._signal(signal.SIGKILL)

    def wait(self, timeout_s: float) -> bool:
        """Wait until the process and its descendants have ended; False after `timeout_s`. Blocking."""
        self._waiter.join(timeout_s)
        return not self._waiter.is_alive()

    def _signal(self, number: signal.Signals) -> None:
        with self._reaping:  # not after the reaping, when another process may have the id
            if self._process.returncode is None:
                self._process.send_signal(number)

    def _copy(self) -> None:
        pipe = self._process.stdout
        assert pipe is not None
        while block := os.read(pipe.fileno(), _BLOCK_BYTES):
            self._output.write(block)

    def _wait(self) -> None:
        try:
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
            for other in in_session(self.pid):
                kill(other)
            end_tagged(self._tag, _END_S)
        finally:
            with self._reaping:
                status = self._process.wait()
            self._reader.join(_DRAIN_S)  # do not wait for a process that still holds the pipe
            self._output.close()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None and not (self._reader.is_alive() and pipe is self._process.stdout):
                    pipe.close()
            self._on_end(status)

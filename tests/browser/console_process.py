"""A console with the recorded cluster, in a process of its own, which can be killed and started again."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from free_ports import free_port

PROGRAM: Final = Path(__file__).parent / "recorded_console.py"


class RecordedConsole:
    """Keeps its users and its audit log in `directory`."""

    def __init__(self, directory: Path) -> None:
        self.directory: Final = directory
        self.entrance = ""
        """The address with the token that signs a browser in."""
        self.is_entered = False
        """Whether the browser of the tests is signed in."""
        self._port: Final = free_port()
        self._process: subprocess.Popen[str] | None = None

    @property
    def address(self) -> str:
        """The address of the pages, with a slash at its end."""
        return self.entrance.partition("?")[0]

    def start(self) -> None:
        """Start it and wait for its address."""
        self.is_entered = False
        self._process = subprocess.Popen(
            [sys.executable, str(PROGRAM), str(self._port), str(self.directory)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        assert self._process.stdout is not None
        self.entrance = self._process.stdout.readline().strip()
        assert self.entrance.startswith("http://127.0.0.1:"), "the console did not start"

    def without_leader(self) -> contextlib.AbstractContextManager[None]:
        """The cluster has no leading master within the block."""
        return self._switched("no-leader")

    def without_application_masters(self) -> contextlib.AbstractContextManager[None]:
        """No application master answers within the block."""
        return self._switched("no-application-master")

    @contextlib.contextmanager
    def _switched(self, name: str) -> Iterator[None]:
        switch = self.directory / name
        switch.touch()
        try:
            yield
        finally:
            switch.unlink()

    def kill(self) -> None:
        """End it with SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

"""A fixture for unit tests of several modules: a process in place of Java."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest


@pytest.fixture
def java() -> Iterator[subprocess.Popen[bytes]]:
    """A process that stands for a holder's Java process."""
    process = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate(timeout=60)

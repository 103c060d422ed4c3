"""Starts servers of tests so that they end with the process that started them, however that ends.

The kernel ends them: a small program requests that, and then becomes the server. A `preexec_fn` could request
it, too, but Python then runs in the forked child, where it disposes of the other threads' connections to
Spark's Java process: it shuts down sockets that the parent shares, and a call that waits for its answer
fails.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

DIE_WITH_PARENT = ("setpriv", "--pdeathsig", "KILL")
"""What precedes a server's command (util-linux, which Debian always has)."""


def started(
    what: str,
    command: Sequence[str],
    path: Path,
    answers: Callable[[], bool],
    *,
    within_s: float = 60.0,
    directory: Path | None = None,
) -> subprocess.Popen[bytes]:
    """A server whose output goes to the file `path`, once it `answers`; it works in `directory`, if given."""
    with path.open("ab") as log:
        process = subprocess.Popen(
            [*DIE_WITH_PARENT, *command], cwd=directory, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    deadline = time.monotonic() + within_s
    while not answers():
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            process.wait(30)
            raise RuntimeError(f"{what} does not start:\n{path.read_text()[-4000:]}")
        time.sleep(0.05)
    return process

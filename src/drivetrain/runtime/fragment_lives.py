"""Which life each fragment has begun: without it, a fragment that has lost its state looks like a new one.

    <home of the life>/checkpoints/lives/<fragment>     the newest life that a fragment has begun

Design: one durable file for each fragment. It is noted before the fragment's first batch, and forgotten when
the fragment leaves the application, before its state is deleted.

Called by `fragment_places` and `checkpoints.transaction_file`, through which other modules use it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from drivetrain.core.checkpoint.barriers import NO_LIFE
from drivetrain.runtime.durable_file import DurableFile


class FragmentLives:
    """The lives of the fragments below `home`, the directory of an application's life."""

    def __init__(self, home: Path) -> None:
        self._directory: Final = home / "checkpoints" / "lives"

    def newest(self, fragment: str) -> int:
        """The newest life that a fragment has begun, `NO_LIFE` if none. Raises InputError if damaged."""
        noted = self._file(fragment).read()
        return NO_LIFE if noted is None else int(noted)

    def note(self, fragment: str, life: int) -> None:
        """Record that a fragment has begun a life. Raises OutputError."""
        if self.newest(fragment) != life:
            self._directory.mkdir(parents=True, exist_ok=True)
            self._file(fragment).write(str(life).encode())

    def forget(self, fragment: str) -> None:
        """Record that a fragment has begun none: another one of its name may come. Raises OutputError."""
        if self._directory.is_dir():
            self._file(fragment).remove()

    def _file(self, fragment: str) -> DurableFile:
        return DurableFile(
            self._directory / fragment,
            f"the life of fragment {fragment}",
            if_damaged="put the file back from a backup, start from a savepoint, or start over with --fresh",
            if_full="make room, or make the state directory writable",
        )

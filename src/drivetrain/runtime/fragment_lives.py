"""Which life each fragment has begun, and whether it has run; or one that has lost its state would look new.

    <home of the life>/checkpoints/lives/<fragment>     the newest life that a fragment has begun
    <home of the life>/checkpoints/ran/<fragment>       exists once it has run a batch

Design: two durable files for each fragment. With periodic checkpoints its life is noted before its first
batch, because it can be taken back to the beginning. Without them it cannot, so what counts is whether it has
run a batch. Both are forgotten when the fragment leaves the application, before its state is deleted.

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
        self._ran: Final = home / "checkpoints" / "ran"

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
        self.forget_batches(fragment)

    def has_run(self, fragment: str) -> bool:
        """Whether a fragment has run a batch, of which it must have a state."""
        return (self._ran / fragment).exists()

    def note_batch(self, fragment: str) -> None:
        """Record that a fragment has run a batch. Raises OutputError."""
        if not self.has_run(fragment):
            self._ran.mkdir(parents=True, exist_ok=True)
            self._mark(fragment).write(b"yes")

    def forget_batches(self, fragment: str) -> None:
        """Record that a fragment has run none: its state has been deleted. Raises OutputError."""
        if self._ran.is_dir():
            self._mark(fragment).remove()

    def _mark(self, fragment: str) -> DurableFile:
        return _noted(self._ran / fragment, f"whether fragment {fragment} has run")

    def _file(self, fragment: str) -> DurableFile:
        return _noted(self._directory / fragment, f"the life of fragment {fragment}")


def _noted(path: Path, what: str) -> DurableFile:
    return DurableFile(
        path,
        what,
        if_damaged="put the file back from a backup, start from a savepoint, or start over with --fresh",
        if_full="make room, or make the state directory writable",
    )

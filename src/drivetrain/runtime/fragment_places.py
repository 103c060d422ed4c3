"""The places of fragments that start, or have left, while an application runs: its state and its channels.

Problem: a fragment that starts must find nothing of an earlier one of its name; and sinks, which skip batches
that they have, must not take its first batches for some of an earlier fragment.

Design: before a fragment starts, everything that a fragment of its name has left is deleted. The number of
its first batch is noted in its directory; it is larger than those of every fragment that is there or has
left.

    <state directory>/fragments/<id>/first-batch   the number of its first batch, as outputs see it
    <state directory>/last-number                  the largest number that any fragment that has left has used

What if we die here: nothing is deleted before it is recorded that the fragment has to go, or while another
version could come into force with it; a deletion that was interrupted is done again.

Invariants:

1. No number of a batch is used twice by fragments of one name.
2. A fragment that starts has not begun: the state of an earlier one of its name is not missed as lost.
3. It does not continue with a snapshot of an earlier one either.

Called by `run_directory`, through which other modules use it.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from drivetrain.runtime.channel.beginning import ChannelBeginning
from drivetrain.runtime.durable_file import DurableFile
from drivetrain.runtime.former_snapshots import note_former
from drivetrain.runtime.fragment_lives import FragmentLives

FIRST_BATCH: Final = "first-batch"
"""The file in a fragment's directory with the number of its first batch."""
_LAST: Final = "last-number"


class FragmentPlaces:
    """The fragments below `home`, the directory of a life whose batches are numbered from `first_batch` on.

    `shared` is the application's state directory.
    """

    def __init__(self, home: Path, shared: Path, first_batch: int) -> None:
        self._home: Final = home
        self._shared: Final = shared
        self._first_batch: Final = first_batch

    def first_batch(self, fragment: str) -> int:
        """The number of a fragment's first batch, as outputs see it. Raises InputError when damaged."""
        known = _number_in(self._first(fragment))
        return self._first_batch if known is None else known

    def last_number(self) -> int:
        """The largest number that a batch of any fragment may have had; the life's first minus 1 at least."""
        numbers = [self._first_batch - 1]
        left = _number_in(self._last())
        if left is not None:
            numbers.append(left)
        numbers += [self._last_of(directory.name) for directory in (self._home / "fragments").glob("*")]
        return max(numbers)

    def prepare(self, fragment: str, channels: Iterable[str], sources: Iterable[str]) -> None:
        """Make the place of a fragment that is about to start, with the channels that it will read."""
        self.delete(fragment, channels, sources)
        number = self.last_number() + 1
        (self._home / "fragments" / fragment).mkdir(parents=True)
        self._first(fragment).write(str(number).encode())
        for channel in channels:
            ChannelBeginning(str(self._home / "channels" / channel)).prepare()

    def note_left(self, fragment: str) -> None:
        """Keep the numbers of a fragment's batches from being used again; before it is deleted."""
        if (self._home / "fragments" / fragment).exists():
            self._last().write(str(self.last_number()).encode())

    def delete(self, fragment: str, channels: Iterable[str], sources: Iterable[str]) -> None:
        """Delete a fragment's channels and its state, and what its sources have kept."""
        self.note_left(fragment)
        FragmentLives(self._home).forget(fragment)
        note_former(self._home / "checkpoints" / "snapshots", fragment)
        for channel in channels:
            _remove(self._home / "channels" / channel)
        for source in sources:
            _remove(self._shared / "stores" / source)
            _remove(self._shared / "sources" / source)
        _remove(self._home / "fragments" / fragment)

    def _last_of(self, fragment: str) -> int:
        """The largest number of a fragment's batches; one more than Spark's, for the one at its end."""
        offsets = self._home / "fragments" / fragment / "checkpoint" / "offsets"
        planned = [int(path.name) for path in offsets.glob("*") if path.name.isdigit()]
        return self.first_batch(fragment) + max(planned, default=-1) + 1

    def _first(self, fragment: str) -> DurableFile:
        return _file(
            self._home / "fragments" / fragment / FIRST_BATCH, "the number of a fragment's first batch"
        )

    def _last(self) -> DurableFile:
        return _file(self._shared / _LAST, "the largest number of a batch")


def _number_in(file: DurableFile) -> int | None:
    content = file.read()
    if content is None:
        return None
    if not content.isdigit():
        raise file.damaged(repr(content))
    return int(content)


def _file(path: Path, what: str) -> DurableFile:
    return DurableFile(
        path,
        what,
        if_damaged="start the application over with --fresh",
        if_full="make room, and run the same command again: it continues where it stopped",
    )


def _remove(directory: Path) -> None:
    if directory.exists():
        shutil.rmtree(directory)

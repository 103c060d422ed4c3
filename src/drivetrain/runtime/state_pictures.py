"""The pictures of a persistent Task's states, as files beside the fragment's checkpoint.

Problem: the state as of an hour ago must be there for whoever asks, for days, and Spark's state store writes
all that a bucket holds with every batch: there it would be paid again and again.

Design: `states/<bucket>/<time>` in the fragment's directory holds what the keys that changed then were before
(`core.state.two_state.Picture`), written by the worker that runs the bucket, before Spark commits the batch:
beside it, synced, renamed. A picture follows from the messages alone, so a batch that runs again writes the
same; what a restore to an earlier checkpoint leaves is newer than the state's own time, and nobody looks at
it until it has been written again, or dropped because nothing changed then.

Invariants:

1. A state that Spark has committed as of a time has all pictures up to it, as far back as they are kept.

Called by `compile.persistent_buckets` in Spark's workers, and by `state_query`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from drivetrain.core.state.two_state import Picture, decoded_picture, encoded_picture
from drivetrain.errors import InputError
from drivetrain.runtime.durable import sync, write_whole, writing

DIRECTORY: Final = "states"


class Pictures:
    """The pictures of one bucket, in `fragment/states/<bucket>`."""

    def __init__(self, fragment: str | Path, bucket: int) -> None:
        self.path: Final = Path(fragment) / DIRECTORY / str(bucket)

    def keep(self, pictures: Sequence[Picture], since_ms: int, keep_ms: int) -> None:
        """Write the pictures of a step of the clock, which was at `since_ms` before; drop what is too old.

        Raises DiskFullError, and OutputError when they may not be written.
        """
        newest_ms = pictures[-1].at_ms
        written = {picture.at_ms for picture in pictures}
        with writing("a picture of states", self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            for picture in pictures:
                write_whole(self.path / str(picture.at_ms), encoded_picture(picture), is_shared=True)
            for at_ms in self.times():
                # Between, there is only what a life that was given up has left.
                is_left = since_ms < at_ms <= newest_ms and at_ms not in written
                if is_left or at_ms <= newest_ms - keep_ms:
                    (self.path / str(at_ms)).unlink(missing_ok=True)
            sync(self.path)

    def times(self) -> list[int]:
        """As of when pictures are there, in order (ms)."""
        try:
            return sorted(int(name) for name in os.listdir(self.path) if name.removeprefix("-").isdigit())
        except FileNotFoundError:
            return []

    def between(self, after_ms: int, until_ms: int) -> list[Picture]:
        """The pictures after a time and up to another, in order; raises InputError for a damaged one."""
        found = []
        for at_ms in self.times():
            if after_ms < at_ms <= until_ms:
                file = self.path / str(at_ms)
                try:
                    found.append(decoded_picture(file.read_bytes()))
                except InputError as error:
                    error.where = str(file)
                    raise
        return found

"""The pictures of a persistent Task's states, as files next to the fragment's checkpoint.

Problem: the state as of an hour ago must remain available for days, and Spark's state store writes everything
that a bucket holds with every batch: there, each picture would be written again and again.

Design: `states/<bucket>/<time>` in the fragment's directory has the previous values of the keys that changed
then (`core.state.two_state.Picture`). The worker that runs the bucket writes it under a temporary name, syncs
and renames it, before Spark commits the batch. A picture follows from the messages alone, so a batch that
runs again writes the same one. Pictures left by a restore to an earlier checkpoint are newer than the state's
own time, and are not read until they have been written again, or dropped because nothing changed then.

Whether a picture is too old depends on the pictures of the committed state, not on those of the batch that
writes: if that batch dies before Spark commits it, the committed state still needs the pictures that it would
have dropped.

Invariants:

1. A state that Spark has committed as of a time has all pictures up to that time, as far back as they are
   kept, also while the next batch writes its own.

Called by `compile.persistent_buckets` in Spark's workers, and by `state_query`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from drivetrain.core.state.two_state import Picture, decoded_picture, encoded_picture
from drivetrain.durable import sync, write_whole, writing
from drivetrain.errors import InputError

DIRECTORY: Final = "states"


class Pictures:
    """The pictures of one bucket, in `fragment/states/<bucket>`."""

    def __init__(self, fragment: str | Path, bucket: int) -> None:
        self.path: Final = Path(fragment) / DIRECTORY / str(bucket)

    def keep(self, pictures: Sequence[Picture], since_ms: int, keep_ms: int) -> None:
        """Write the pictures of a step of the clock; drop those that are too old for the committed state.

        `since_ms` is the time of the committed state: where the clock stood before this step. Raises
        DiskFullError, and OutputError when they cannot be written.
        """
        newest_ms = pictures[-1].at_ms
        written = {picture.at_ms for picture in pictures}
        with writing("a picture of states", self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            for picture in pictures:
                write_whole(self.path / str(picture.at_ms), encoded_picture(picture), is_shared=True)
            existing = self.times()
            committed_ms = max((at_ms for at_ms in existing if at_ms <= since_ms), default=since_ms)
            for at_ms in existing:
                # In between there are only leftovers of an abandoned life.
                is_left = since_ms < at_ms <= newest_ms and at_ms not in written
                if is_left or at_ms <= committed_ms - keep_ms:
                    (self.path / str(at_ms)).unlink(missing_ok=True)
            sync(self.path)

    def times(self) -> list[int]:
        """The times of the existing pictures, in order (ms)."""
        try:
            return sorted(int(name) for name in os.listdir(self.path) if name.removeprefix("-").isdigit())
        except FileNotFoundError:
            return []

    def between(self, after_ms: int, until_ms: int) -> list[Picture]:
        """The pictures after `after_ms`, up to `until_ms`, in order; raises InputError for damaged ones."""
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

"""Where messages from before a change are written for its new fragments, until its version is recorded.

Problem: the channels of a new fragment with former messages must be whole before the version that has them
is recorded, and reading them takes long. Meanwhile the process that reads may die, or freeze and write later.

Design: the channels are made in a folder of their own, one folder for each running fragment that writes some,
and are renamed to their places when they are whole. In a cluster the folder has the name of the proposal, and
the application master renames: so an executor that wakes up after its change was given up writes into a
folder that nobody reads.

What if we die here: no version names what is in these folders, nor a channel that is in its place before its
version is recorded; `leftovers` deletes both.

Invariants:

1. A channel is in its place only when it is whole.

Called by `leftovers`, `spark.run.message_histories`, `cluster.executor.attempt_history` and
`cluster.app_master.stream.stored_versions`. Imports neither pyspark nor pyarrow.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from drivetrain.crash_points import CrashPoint, maybe_crash
from drivetrain.durable import publish_directory

if TYPE_CHECKING:
    from drivetrain.runtime.run_directory import RunDirectory

FOLDER: Final = "former-messages"


class FormerMessages:
    """The former messages for one change of the application in `rundir`: for the proposal `id`, if it has
    one."""

    def __init__(self, rundir: RunDirectory, id: str = "") -> None:
        self._rundir: Final = rundir
        self._id: Final = id

    @property
    def _home(self) -> Path:
        return self._rundir.home / FOLDER / self._id

    def of(self, fragment: str) -> Path:
        """The folder for the messages of a running fragment."""
        return self._home / fragment

    def place(self, fragment: str, channels: Iterable[str]) -> None:
        """Rename the channels that a running fragment will write, with their former messages, to their
        places."""
        for channel in channels:
            place = Path(self._rundir.channel(channel))
            shutil.rmtree(place, ignore_errors=True)
            place.parent.mkdir(parents=True, exist_ok=True)
            publish_directory(channel_aside(self.of(fragment), channel), place)
            maybe_crash(CrashPoint.HISTORY_PLACED)

    def delete(self, fragment: str | None = None) -> None:
        """Delete what was written, or what was for one fragment."""
        shutil.rmtree(self._home if fragment is None else self.of(fragment), ignore_errors=True)
        if fragment is not None:
            with suppress(OSError):  # another fragment's are in it, or it is gone
                self._home.rmdir()


def channel_aside(folder: Path, channel: str) -> Path:
    """Where a channel is made, in the folder of the fragment that writes it."""
    return folder / "channels" / channel


def delete_former(rundir: RunDirectory, but: str = "") -> None:
    """Delete the former messages of all changes, except those for the proposal `but`."""
    folder = rundir.home / FOLDER
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.name != but:
            shutil.rmtree(path, ignore_errors=True)
    if not but:
        shutil.rmtree(folder, ignore_errors=True)

"""Temporary folders that do not pile up: the next process removes what a killed one left.

Problem: a folder that lasts as long as its process is removed at the process's end, and SIGKILL skips that.

Design: the owner holds an advisory lock on the file `owner` in its folder, which the system drops however the
owner ends: a process that gets the lock knows that the owner is gone. (A process id could be another process
by now.) The file is locked before it gets its name, so no process sees it without the lock of a living owner.

Invariants:

1. A living process's folder is never removed, nor anything of another user, nor the target of a link.
2. A folder without `owner` belongs to a process that was killed while it created the folder, or is creating
   it: it is removed an hour after it was last touched.

Called by `spark.session.python_launcher`.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Final

_OWNER: Final = "owner"
_MAKING_S: Final = 3_600.0

_held: Final[list[int]] = []


def make_temporary_folder(prefix: str, parent: Path | None = None) -> Path:
    """A folder that only this user can read, removed when this process ends, or later if it is killed.

    It is in `parent`, else in the system's folder for temporary files. Removes the folders of the same prefix
    there that killed processes left.
    """
    parent = Path(tempfile.gettempdir()) if parent is None else parent
    remove_left_folders(prefix, parent)
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    aside = folder / f".{_OWNER}"
    lock = os.open(aside, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    aside.rename(folder / _OWNER)
    _held.append(lock)  # until the process ends
    return folder


def remove_left_folders(prefix: str, parent: Path | None = None) -> list[Path]:
    """Remove the folders whose owners have ended; returns the removed ones."""
    removed = []
    for folder in (Path(tempfile.gettempdir()) if parent is None else parent).glob(f"{prefix}*"):
        if _is_left(folder):
            shutil.rmtree(folder, ignore_errors=True)  # another process may be removing it as well
            removed.append(folder)
    return removed


def _is_left(folder: Path) -> bool:
    try:
        state = folder.lstat()
        if not folder.is_dir() or folder.is_symlink() or state.st_uid != os.geteuid():
            return False
        lock = os.open(folder / _OWNER, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return folder.is_dir() and time.time() - state.st_mtime > _MAKING_S
    except OSError:
        return False  # another user's
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(lock)
    return True

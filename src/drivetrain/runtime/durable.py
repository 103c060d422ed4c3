"""Local files and directories that appear whole and stay: written aside, synced, renamed.

Problem: a process may die at any instruction, a machine may lose power, a disk may be full. A file that
others rely on must be there whole or not at all, and a full disk is the user's to mend, not a bug.

Design: the few steps that this takes, in one place. They raise OSError, which knows nothing of what was to be
written; `writing` turns it into an error that does. Files on other file systems are written by whoever has a
handle on these (`runtime.whole_files`, `runtime.channel.files`), with the same steps for local ones.

Invariants:

1. Whoever looks at `path` while it is replaced sees the old content or the new one.
2. What a function here has written survives a power cut once it returns, as far as the disk is honest.
3. A full disk is a `DiskFullError`, and what was there before still is.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

from drivetrain.errors import DiskFullError, OutputError
from drivetrain.private_files import private

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_FULL_TEXTS: Final = (
    "No space left on device",
    "Disk quota exceeded",
    "File too large",
    *(f"[Errno {number}]" for number in sorted(_FULL)),
)
_IF_FULL: Final = "free some space and run the same command again: it continues where it stopped"
_IF_REFUSED: Final = "make it writable for this user, or choose another place"


def write_whole(path: Path, content: bytes, *, synced: bool = True, is_shared: bool = False) -> None:
    """Make `content` the file `path`, replacing what was there; raises OSError, and nothing has changed then.

    One writer at a time, unless `is_shared`: then the last one wins. Without `synced` a power cut may leave
    an empty file.
    """
    writer = f".{os.getpid()}-{threading.get_ident()}" if is_shared else ""
    aside = path.with_name(f".{path.name}{writer}.tmp")
    try:
        if synced:
            with new_file(aside) as file:
                file.write(content)
            publish(aside, path)
        else:
            with open(aside, "wb", opener=private) as file:
                file.write(content)
            os.replace(aside, path)
    except BaseException:
        with suppress(OSError):  # it counts for nothing, and the error that is raised says more
            aside.unlink(missing_ok=True)
        raise


@contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write, synced when the block ends. Who publishes it syncs the directory."""
    with open(path, "wb", opener=private) as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def publish(aside: Path, path: Path) -> None:
    """Give a finished file its name, durably; a file that had it is replaced."""
    os.replace(aside, path)
    sync(path.parent)


def publish_directory(aside: Path, path: Path) -> None:
    """Give a finished directory its name, durably, which nothing has, or an empty directory."""
    os.rename(aside, path)
    sync(path.parent)


def sync(path: str | os.PathLike[str]) -> None:
    """Make a file's content durable, or which files a directory has."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_full(error: BaseException) -> bool:
    """Whether the system, or Arrow, says that a disk has no room."""
    return isinstance(error, OSError) and (error.errno in _FULL or means_full(str(error)))


def means_full(text: str) -> bool:
    """Whether a message says that a disk has no room."""
    return any(sign in text for sign in _FULL_TEXTS)


@contextmanager
def writing(
    what: str, where: str | os.PathLike[str], *, if_full: str = _IF_FULL, if_refused: str = _IF_REFUSED
) -> Iterator[None]:
    """Turn an OSError of the block, which writes `what`, into DiskFullError or OutputError.

    `if_full` and `if_refused` are remedies.
    """
    try:
        yield
    except OSError as error:
        if is_full(error):
            raise disk_full(error, what, where, if_full) from error
        raise OutputError(
            f"{what} cannot be written",
            where=os.fspath(where),
            got=error.strerror or str(error),
            remedy=if_refused,
        ) from error


def disk_full(
    error: BaseException, what: str, where: str | os.PathLike[str] | None, remedy: str = _IF_FULL
) -> DiskFullError:
    """The error of a disk that has no room for `what`."""
    return DiskFullError(
        f"there is no space left to write {what}",
        where=None if where is None else os.fspath(where),
        got=getattr(error, "strerror", None) or str(error),
        remedy=remedy,
    )

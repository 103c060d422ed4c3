"""Local files and directories that appear complete and stay: written under another name, synced, renamed.

Problem: a process may die at any instruction, a machine may lose power, a disk may be full. A file that
others rely on must be complete or absent, and a full disk is the user's problem to solve, not a bug.

Design: the few steps that this takes, in one place. They raise OSError, which does not know what was to be
written; `writing` turns it into an error that does. `runtime.whole_files` and `runtime.channel.files` write
files on other file systems, with the same steps for local ones.

Invariants:

1. A reader of `path` sees the old content or the new one while it is replaced.
2. The result of a function here survives a power cut once it returns, as far as the disk is honest.
3. A full disk raises `DiskFullError`, and leaves the previous content.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
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


def write_whole(
    path: Path,
    content: bytes,
    *,
    synced: bool = True,
    is_shared: bool = False,
    require: Callable[[], None] | None = None,
) -> None:
    """Write `content` to the file `path`, replacing what was there; raises OSError, and then changes nothing.

    One writer at a time, unless `is_shared`: then the last one wins. Without `synced` a power cut may leave
    an empty file. `require` is called just before the file is replaced, and may raise.
    """
    is_shared = is_shared or require is not None
    writer = f".{os.getpid()}-{threading.get_ident()}" if is_shared else ""
    aside = path.with_name(f".{path.name}{writer}.tmp")
    try:
        if synced:
            with new_file(aside) as file:
                file.write(content)
            if require is not None:
                require()
            publish(aside, path)
        else:
            with open(aside, "wb", opener=private) as file:
                file.write(content)
            os.replace(aside, path)
    except BaseException:
        with suppress(OSError):  # a leftover is harmless, and the error that is raised matters more
            aside.unlink(missing_ok=True)
        raise


@contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write, synced when the block ends. `publish` syncs the directory."""
    with open(path, "wb", opener=private) as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def publish(aside: Path, path: Path) -> None:
    """Give a finished file its name, durably; a file that had it is replaced."""
    os.replace(aside, path)
    sync(path.parent)


def publish_new(aside: Path, path: Path) -> None:
    """Give a finished file a second name, durably; raises FileExistsError when the name is taken."""
    os.link(aside, path)
    sync(path.parent)


def publish_directory(aside: Path, path: Path) -> None:
    """Give a finished directory its name, durably; the name must be free, or an empty directory."""
    os.rename(aside, path)
    sync(path.parent)


def sync(path: str | os.PathLike[str]) -> None:
    """Make a file's content, or a directory's list of files, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_full(error: BaseException) -> bool:
    """Whether an error of the system, or of Arrow, means a full disk."""
    return isinstance(error, OSError) and (error.errno in _FULL or means_full(str(error)))


def means_full(text: str) -> bool:
    """Whether a message means a full disk."""
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
    """The error of a disk without enough space for `what`."""
    return DiskFullError(
        f"there is no space left to write {what}",
        where=None if where is None else os.fspath(where),
        got=getattr(error, "strerror", None) or str(error),
        remedy=remedy,
    )

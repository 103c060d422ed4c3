"""Directories and files of this user alone, and the refusal to load what others can write.

Problem: what Drivetrain keeps (states, logs, code, the registry) shows what an application processes; and
part of it is code that runs when it is loaded. Whoever can write there runs code as this user.

Design: a directory that Drivetrain makes for itself has mode 0700, so that nobody else reaches what lies in
it, whoever writes it: Spark, Arrow, a database. What Drivetrain itself writes has mode 0600 besides. Before
anything is loaded, the directory's owner and mode are checked. The directory that holds those of several
applications may have the sticky bit, as `/tmp` has it, which keeps others from renaming what is not theirs.

The user's own group, the one that many systems make for each user, counts as the user. Other groups are let
in by `Writers.GROUP`; then modes are left to the umask. Where modes say nothing, as on some mounted file
systems, there is `Writers.ANYONE`.

Invariants:

1. With `Writers.OWNER`, when `make_private_directory` has returned, the directory belongs to this user or to
   root, and nobody else can write to it.
2. A file that `private` made gives others nothing, and the group at most what its directory gives.

Called by whoever keeps something: run directories, masters, workers, local clusters, savepoints.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
from enum import StrEnum
from pathlib import Path
from typing import Final, TypeAlias

from drivetrain.errors import UserError

_DIRECTORY: Final = 0o700
_FILE: Final = 0o600

Stamp: TypeAlias = tuple[int, int, int, int]


class Writers(StrEnum):
    """The users that may write loaded files: the owner (or root), also the group, or anyone."""

    OWNER = "owner"
    GROUP = "group"
    ANYONE = "anyone"


def make_private_directory(path: Path, what: str, writers: Writers = Writers.OWNER) -> None:
    """Make a directory of this user alone, with those above it, or close an existing one to readers.

    `what` names it in errors. Raises UserError when others can write to it, OSError when it cannot be made.
    """
    mode = _DIRECTORY if writers is Writers.OWNER else 0o777
    missing = [each for each in (path, *path.parents) if not each.exists()]
    for each in (*reversed(missing), path):
        each.mkdir(mode=mode, exist_ok=True)
    require_trusted(path, what, writers)
    status = path.stat()
    if writers is Writers.OWNER and status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) & 0o077:
        path.chmod(_DIRECTORY)


def require_trusted(
    path: Path, what: str, writers: Writers = Writers.OWNER, *, sticky_is_enough: bool = False
) -> None:
    """Raise UserError when others than `writers` can write to a file or directory.

    What is not there is trusted: there is nothing to load. With `sticky_is_enough` the directory may be
    writable if it has the sticky bit: for one whose entries are looked at themselves.
    """
    if writers is Writers.ANYONE or not path.exists():
        return
    status = path.stat()
    reason = _reason(status, writers, sticky_is_enough and bool(status.st_mode & stat.S_ISVTX))
    if reason is not None:
        raise UserError(
            f"others can write to {what}, and code loaded from there runs as you",
            where=str(path),
            expected=f"only {_user(os.geteuid())} and root can write there",
            got=reason,
            remedy="make sure that no one has changed anything there, and restrict access: "
            f"chmod -R go-w {path}. Or use your own directory; or, for states and savepoints, set "
            "state.writers",
        )


def require_trusted_tree(path: Path, what: str, writers: Writers = Writers.OWNER) -> None:
    """Raise UserError when others than `writers` can write to a directory, or to anything in it."""
    require_trusted(path, what, writers)
    if path.exists() and path.stat().st_mode & 0o077:  # else nobody reaches what lies in it
        for inside in path.rglob("*"):
            require_trusted(inside, what, writers)


def private(path: str, flags: int) -> int:
    """An `opener` for `open`: a file of this user alone, or of the group as well if the directory is so."""
    group = os.stat(os.path.dirname(path) or ".").st_mode & 0o060
    return os.open(path, flags, _FILE | group)


def stamp_of(path: Path) -> Stamp | None:
    """What changes when a file, or who may read it, does; None when there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size, status.st_mode


def _reason(status: os.stat_result, writers: Writers, is_sticky: bool) -> str | None:
    """The other users that can write there, as text for an error."""
    if status.st_mode & stat.S_IWOTH and not is_sticky:
        return f"everybody can (mode {stat.S_IMODE(status.st_mode):o})"
    if (
        status.st_mode & stat.S_IWGRP
        and not is_sticky
        and writers is Writers.OWNER
        and not _is_own_group(status)
    ):
        return f"the group {_group(status.st_gid)} can (mode {stat.S_IMODE(status.st_mode):o})"
    if status.st_uid not in (os.geteuid(), 0) and writers is Writers.OWNER:
        return f"it belongs to {_user(status.st_uid)}"
    return None


def _is_own_group(status: os.stat_result) -> bool:
    """Whether the group is the one that the system made for the owner alone."""
    try:
        user, group = pwd.getpwuid(status.st_uid).pw_name, grp.getgrgid(status.st_gid)
    except KeyError:
        return False
    return group.gr_name == user and all(member == user for member in group.gr_mem)


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def _group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)

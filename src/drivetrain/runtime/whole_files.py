"""Files that appear complete and stay: write under a hidden name, sync, then one atomic step.

The problem: a process may die at any instruction, and a machine may lose power. A file that others
rely on must then be either absent or complete, on any file system that Arrow reaches.

On a local file system: write a hidden file, then the steps of `durable`. On an object
store an upload becomes visible as a whole when it ends, so the object is written in place. On any other
file system (HDFS) write a hidden file and move it.

Invariants:

1. A listing of a directory shows a published file complete or not at all.
2. When a function here returns, the file survives a crash of the machine (as far as the disk is honest).
3. A full disk raises `DiskFullError`, and nothing was published.

Called by the file log and by the file sink.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pyarrow.fs as pafs

from drivetrain.durable import is_full, publish, sync
from drivetrain.errors import DiskFullError

_OBJECT_STORES = frozenset({"s3", "gcs", "abfs"})


def is_local(filesystem: pafs.FileSystem) -> bool:
    """True when paths of this file system are paths of this machine."""
    return isinstance(filesystem, pafs.LocalFileSystem)


def publish_bytes(filesystem: pafs.FileSystem, path: str, content: bytes) -> None:
    """Write `content` to the file `path`, replacing what was there; the directory must exist."""
    if filesystem.type_name in _OBJECT_STORES:
        with full_disk_named(path), filesystem.open_output_stream(path) as stream:
            stream.write(content)
        return
    directory, _, name = path.rpartition("/")
    aside = f"{directory}/.{name}.tmp"
    with full_disk_named(path):
        with filesystem.open_output_stream(aside) as stream:
            stream.write(content)
        publish_file(filesystem, aside, path)


def publish_file(filesystem: pafs.FileSystem, aside: str, path: str) -> None:
    """Move the finished file `aside` to `path` in one step, after syncing it."""
    if not is_local(filesystem):
        filesystem.move(aside, path)
        return
    sync(aside)
    publish(Path(aside), Path(path))


@contextlib.contextmanager
def full_disk_named(path: str) -> Iterator[None]:
    """Turn the operating system's error for a full disk into a `DiskFullError` that names `path`."""
    try:
        yield
    except OSError as error:
        if is_full(error):
            raise DiskFullError(
                "no space left to write",
                where=path,
                got=str(error),
                remedy="free some space there and start the application again: it continues where it "
                "stopped, and nothing half-written was published",
            ) from error
        raise

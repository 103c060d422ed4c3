"""Files that appear complete and stay: write under a hidden name, sync, then one atomic step.

The problem: a process may die at any instruction, and a machine may lose power. A file that others
rely on must then be either absent or complete, on any file system that Arrow reaches.

On a local file system: write a hidden file, then the steps of `durable`. In an object store an
object is visible when it is whole, so it is written in place; a file to publish is written to the local disk,
then created only if its name is free. On any other file system (HDFS) write a hidden file and move it.

Invariants:

1. A listing of a directory shows a published file complete or not at all.
2. When a function here returns, the file survives a crash of the machine (as far as the disk is honest).
3. A full disk raises `DiskFullError`, and nothing was published.
4. In an object store `publish_file` never changes a file that is there: a file of that name was published
   by an earlier try.

Called by the file log and by the file sink.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.fs as pafs

from drivetrain.durable import is_full, new_file, publish, publish_new, sync
from drivetrain.errors import DiskFullError
from drivetrain.runtime.objects.object_files import objects_of

_OBJECT_STORES = frozenset({"s3", "gcs", "abfs"})


def is_local(filesystem: pafs.FileSystem) -> bool:
    """True when paths of this file system are paths of this machine."""
    return isinstance(filesystem, pafs.LocalFileSystem)


def publish_bytes(
    filesystem: pafs.FileSystem, path: str, content: bytes, require: Callable[[], None] | None = None
) -> None:
    """Write `content` to the file `path`, replacing what was there; the directory must exist.

    `require` is called just before the file changes, and may raise; then several may write it at a time.
    """
    objects = objects_of(filesystem)
    if objects is not None:
        if require is not None:
            require()
        objects.replace_file(path, content)
        return
    if filesystem.type_name in _OBJECT_STORES:
        with full_disk_named(path), filesystem.open_output_stream(path) as stream:
            stream.write(content)
        return
    directory, _, name = path.rpartition("/")
    aside = f"{directory}/.{name}.{'' if require is None else f'{uuid.uuid4().hex}.'}tmp"
    with full_disk_named(path):
        with filesystem.open_output_stream(aside) as stream:
            stream.write(content)
        publish_file(filesystem, aside, path, require=require)


def create_file(filesystem: pafs.FileSystem, path: str, content: bytes) -> bool:
    """Create the file `path`; False, and nothing changed, if there is one.

    In an object store, in HDFS, or on a file system of this machine; in the latter its directory is made.
    """
    objects = objects_of(filesystem)
    if objects is not None:
        return objects.create_file(path, content)
    assert is_local(filesystem), filesystem.type_name
    directory, _, name = path.rpartition("/")
    filesystem.create_dir(directory, recursive=True)
    aside = Path(f"{directory}/.{name}.{uuid.uuid4().hex}.tmp")
    with full_disk_named(path):
        try:
            with new_file(aside) as file:
                file.write(content)
            publish_new(aside, Path(path))
        except FileExistsError:
            return False
        finally:
            aside.unlink(missing_ok=True)
    return True


def delete_if_there(filesystem: pafs.FileSystem, path: str) -> None:
    """Delete a file, which another process may have deleted already."""
    with contextlib.suppress(FileNotFoundError):
        filesystem.delete_file(path)


def read_whole_file(filesystem: pafs.FileSystem, path: str) -> bytes:
    """The content of a file, with one request to an object store; raises FileNotFoundError."""
    objects = objects_of(filesystem)
    if objects is not None:
        return objects.read_file(path)
    with filesystem.open_input_stream(path) as stream:
        return bytes(stream.read())


def staging_files(filesystem: pafs.FileSystem) -> pafs.FileSystem:
    """The file system on which files are written before they are published; local for an object store."""
    return filesystem if objects_of(filesystem) is None else pafs.LocalFileSystem()


def staging_folder(filesystem: pafs.FileSystem, folder: str) -> str:
    """The folder of `staging_files` for a hidden folder of this file system."""
    if objects_of(filesystem) is None:
        return folder
    return os.path.join(tempfile.gettempdir(), f"drivetrain-{os.getpid()}", folder)


def publish_file(
    filesystem: pafs.FileSystem,
    aside: str,
    path: str,
    staged: pafs.FileSystem | None = None,
    *,
    require: Callable[[], None] | None = None,
) -> None:
    """Move the finished file `aside` to `path` in one step, after syncing it.

    `staged` is the file system of `aside`, if it is not the same: the local one, for an object store.
    `require` is called just before that step, and may raise.
    """
    objects = objects_of(filesystem)
    if objects is not None and staged is not None and is_local(staged):
        with full_disk_named(aside):
            content = Path(aside).read_bytes()
    if is_local(filesystem):
        sync(aside)
    if require is not None:
        require()
    if objects is not None and staged is not None and is_local(staged):
        objects.create_file(path, content)
    elif is_local(filesystem):
        publish(Path(aside), Path(path))
    else:
        filesystem.move(aside, path)


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

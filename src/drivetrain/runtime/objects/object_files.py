"""An object store as a file system of pyarrow, so that sources and sinks of files need not know about it.

The problem: readers and writers of files use a pyarrow file system. Pyarrow's own ones for object stores have
different settings and different retries for each store, cannot create a file only if it does not exist, and
leave empty objects for folders.

The design: a file system over `ObjectStore`. A folder exists while there is an object below it, and costs
nothing to make. A file that is written is collected on the local disk and becomes an object when it is
closed. Moving does not exist in an object store: it creates the object of the new name if it does not exist,
and then deletes the old one. What if we die here: both exist, with the same content; callers delete one.

Invariants:

1. A file is seen whole or not at all.
2. `move` never replaces a file.

Paths are "bucket/name", as in pyarrow's own file systems. Called by `locations` and `runtime.file_locations`.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from drivetrain.errors import InternalError
from drivetrain.runtime.objects.object_store import ObjectStore, StoredObject

READ_AHEAD_BYTES = 1024 * 1024
_IN_MEMORY_BYTES = 16 * 1024 * 1024


class ObjectFiles(pafs.FileSystemHandler):  # type: ignore[misc] # pyarrow has no types
    """The buckets of one store; `open_bucket` gives the objects of one, for each request. See above."""

    def __init__(self, kind: str, open_bucket: Callable[[str], ObjectStore]) -> None:
        self._kind = kind
        self._store = open_bucket

    def get_type_name(self) -> str:
        """The kind of store."""
        return self._kind

    def normalize_path(self, path: str) -> str:
        """The path itself."""
        return path

    # -- looking ---------------------------------------------------------------------------------

    def get_file_info(self, paths: list[str]) -> list[pafs.FileInfo]:
        """The kind of each path: a file, a folder, or nothing."""
        return [self._info(path) for path in paths]

    def get_file_info_selector(self, selector: pafs.FileSelector) -> list[pafs.FileInfo]:
        """The files below a folder; if not recursive those in it, and the folders in it."""
        bucket, folder = split_path(selector.base_dir)
        prefix = f"{folder}/" if folder else ""
        found: dict[str, pafs.FileInfo] = {}
        for one in self._below(bucket, folder):
            inside, _, deeper = one.path.removeprefix(prefix).partition("/")
            if selector.recursive or not deeper:
                found[one.path] = _file_info(bucket, one)
            elif inside not in found:
                found[inside] = pafs.FileInfo(f"{bucket}/{prefix}{inside}", pafs.FileType.Directory)
        if not found and not selector.allow_not_found:
            raise FileNotFoundError(f"there is nothing below {self._kind}://{selector.base_dir}")
        return list(found.values())

    def _info(self, path: str) -> pafs.FileInfo:
        bucket, name = split_path(path)
        found = self._store(bucket).find(name) if name else None
        if found is not None:
            return _file_info(bucket, found)
        for _ in self._below(bucket, name):
            return pafs.FileInfo(path, pafs.FileType.Directory)
        return pafs.FileInfo(path, pafs.FileType.NotFound)

    def _below(self, bucket: str, folder: str) -> Iterator[StoredObject]:
        for page in self._store(bucket).pages(folder):
            yield from (one for one in page if not one.path.endswith("/"))

    # -- reading -------------------------------------------------------------------------------

    def open_input_stream(self, path: str) -> pa.NativeFile:
        """A file, from its beginning."""
        return self.open_input_file(path)

    def open_input_file(self, path: str) -> pa.NativeFile:
        """A file, at any place."""
        bucket, name = split_path(path)
        found = self._store(bucket).find(name)
        if found is None:
            raise FileNotFoundError(f"there is no object {self._kind}://{path}")
        raw = _Reading(self._store(bucket), name, found.size_bytes)
        return pa.PythonFile(io.BufferedReader(raw, READ_AHEAD_BYTES), mode="r")

    # -- writing -------------------------------------------------------------------------------

    def open_output_stream(self, path: str, metadata: Any) -> pa.NativeFile:
        """A new file, which appears when it is closed, and replaces what was there."""
        bucket, name = split_path(path)
        return pa.PythonFile(_Writing(self._store(bucket), name), mode="w")

    def open_append_stream(self, path: str, metadata: Any) -> pa.NativeFile:
        """Raises: objects do not grow."""
        raise InternalError(f"an object cannot be appended to: {path}")

    def create_dir(self, path: str, recursive: bool) -> None:
        """Does nothing: a folder exists with its first file."""

    def delete_dir(self, path: str) -> None:
        """Delete what is below a folder."""
        self.delete_dir_contents(path, True)

    def delete_dir_contents(self, path: str, missing_dir_ok: bool) -> None:
        """Delete what is below a folder."""
        bucket, folder = split_path(path)
        for one in list(self._below(bucket, folder)):
            self._store(bucket).delete(one.path)

    def delete_root_dir_contents(self) -> None:
        """Raises: a whole store is never emptied."""
        raise InternalError("a whole object store is not deleted")

    def delete_file(self, path: str) -> None:
        """Delete a file; it may be gone already."""
        bucket, name = split_path(path)
        self._store(bucket).delete(name)

    def move(self, source: str, target: str) -> None:
        """Create `target` with the content of `source`, unless it exists, and delete `source`."""
        self.copy_file(source, target)
        self.delete_file(source)

    def copy_file(self, source: str, target: str) -> None:
        """Create `target` with the content of `source`, unless it exists."""
        bucket, name = split_path(source)
        self.create_file(target, self._store(bucket).get(name))

    # -- beyond pyarrow's file systems -----------------------------------------------------------

    def read_file(self, path: str) -> bytes:
        """The content of a file, in one request; raises FileNotFoundError."""
        bucket, name = split_path(path)
        return self._store(bucket).get(name)

    def create_file(self, path: str, content: bytes) -> bool:
        """Create a file; False, and nothing changed, if there is one."""
        bucket, name = split_path(path)
        return self._store(bucket).put_if_absent(name, content)

    def replace_file(self, path: str, content: bytes) -> None:
        """Create or replace a file."""
        bucket, name = split_path(path)
        self._store(bucket).put(name, content)


def objects_of(filesystem: pafs.FileSystem) -> ObjectFiles | None:
    """The object store of a file system; None for any other kind of file system."""
    handler = filesystem.handler if isinstance(filesystem, pafs.PyFileSystem) else None
    return handler if isinstance(handler, ObjectFiles) else None


class _Reading(io.RawIOBase):
    """An object, read by ranges."""

    def __init__(self, store: ObjectStore, name: str, size_bytes: int) -> None:
        self._store = store
        self._name = name
        self._size_bytes = size_bytes
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size_bytes}[whence]
        self._at = base + offset
        return self._at

    def readinto(self, buffer: Any) -> int:
        end = min(self._at + len(buffer), self._size_bytes)
        content = self._store.get(self._name, self._at, end) if self._at < end else b""
        buffer[: len(content)] = content
        self._at += len(content)
        return len(content)


class _Writing(io.RawIOBase):
    """A file on the local disk (or in memory, if it is small) that becomes an object when it is closed."""

    def __init__(self, store: ObjectStore, name: str) -> None:
        self._store = store
        self._name = name
        self._collected = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES)  # noqa: SIM115 - closed below

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._collected.tell()

    def write(self, content: Any) -> int:
        return self._collected.write(content)

    def close(self) -> None:
        if self.closed:
            return
        with self._collected:
            self._collected.seek(0)
            content = self._collected.read()
        super().close()
        self._store.put(self._name, content)


def split_path(path: str) -> tuple[str, str]:
    """The bucket (or name node) of a path, and the name in it."""
    bucket, _, name = path.strip("/").partition("/")
    return bucket, name


def _file_info(bucket: str, found: StoredObject) -> pafs.FileInfo:
    return pafs.FileInfo(
        f"{bucket}/{found.path}",
        pafs.FileType.File,
        size=found.size_bytes,
        mtime_ns=found.modified_ms * 1_000_000,
    )

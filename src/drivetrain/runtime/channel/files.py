"""The files of one channel, on any file system that Arrow can reach.

Problem: a log entry must appear whole or not at all, and only one of two racing producers may create
entry `n`. File systems differ: a local disk has hard links and fsync, HDFS has a rename that refuses
to overwrite, object stores have a PUT that is atomic but overwrites.

Design: three ways to create a file, picked by the kind of file system.

- local: write a temporary file, fsync it, hard-link it to its name (fails if taken), fsync the folder;
- with rename: write a temporary file and move it; the name is probed first;
- object store: one PUT; the name is probed first.

Invariants:

1. A file made by `create` is never seen half-written, and never overwrites another on a local disk.
   Elsewhere two *simultaneous* creators may both succeed: there, the first producer of a channel must be
   stopped before a second one starts.
2. Paths are relative to the channel and use `/`.

Called by: the channel store, segment writers and readers (also inside Spark's Python workers).
"""

from __future__ import annotations

import errno
import os
import posixpath
import uuid
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.fs as pafs

from drivetrain.config.references import without_password
from drivetrain.durable import is_full, sync
from drivetrain.errors import DiskFullError, OutputError

if TYPE_CHECKING:
    from collections.abc import Iterator

_OBJECT_STORES = frozenset({"s3", "gcs", "abfs"})
_NO_HARD_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS})


class ChannelFiles:
    """Reads and creates the files below `uri`; a path without a scheme is local.

    `durable` makes created files survive a power cut (local disks only; elsewhere the file system
    decides). Copies travel to Spark's workers by uri.
    """

    def __init__(self, uri: str, *, durable: bool = True, filesystem: Any = None) -> None:
        self.uri = uri
        self.durable = durable
        self._fs, self._root = (filesystem, uri) if filesystem is not None else _resolve(uri)
        self._local = isinstance(self._fs, pafs.LocalFileSystem)
        self._atomic_put = self._fs.type_name in _OBJECT_STORES
        self._made_folders: set[str] = set()

    def __reduce__(self) -> tuple[object, ...]:
        return (_reopen, (self.uri, self.durable))

    # -- reading -------------------------------------------------------------------------------

    def read(self, path: str) -> pa.Buffer:
        """The whole content; local files are mapped, not copied. Raises FileNotFoundError."""
        full = self._full(path)
        if self._local:
            if os.path.getsize(full) == 0:  # an empty file cannot be mapped
                return pa.py_buffer(b"")
            with pa.memory_map(full) as mapped:
                return mapped.read_buffer()
        with self._fs.open_input_file(full) as stream:
            return stream.read_buffer()

    def exists(self, path: str) -> bool:
        """True if the file is there."""
        full = self._full(path)
        if self._local:
            return os.path.exists(full)
        return bool(self._fs.get_file_info(full).type == pafs.FileType.File)

    def names(self, folder: str) -> list[str]:
        """The names of the files in a folder, unordered; a missing folder is empty."""
        full = self._full(folder)
        if self._local:
            try:
                return os.listdir(full)
            except FileNotFoundError:
                return []
        selector = pafs.FileSelector(full, allow_not_found=True)
        return [info.base_name for info in self._fs.get_file_info(selector) if info.is_file]

    def modified_ms(self, path: str) -> int:
        """When the file was written, in ms since the epoch. Raises FileNotFoundError."""
        if self._local:
            return os.stat(self._full(path)).st_mtime_ns // 1_000_000
        modified_ns = self._fs.get_file_info(self._full(path)).mtime_ns
        if modified_ns is None:
            raise FileNotFoundError(self._full(path))
        return int(modified_ns) // 1_000_000

    # -- writing -------------------------------------------------------------------------------

    def create(self, path: str, content: Any) -> bool:
        """Create the file atomically; False, and nothing changed, if the name is taken."""
        full = self._full(path)
        with self._writing(full):
            self._make_folder(full)
            if self._local:
                return self._create_local(full, content)
            if self.exists(path):
                return False
            if self._atomic_put:
                self._put(full, content)
            else:
                temporary = self._temporary(full)
                self._put(temporary, content)
                self._fs.move(temporary, full)
            return True

    def replace(self, path: str, content: Any, *, kept: bool = False) -> None:
        """Create or overwrite a small file atomically; it survives a power cut only with `kept`."""
        full = self._full(path)
        with self._writing(full):
            self._make_folder(full)
            if self._atomic_put:
                self._put(full, content)
                return
            temporary = self._temporary(full)
            if self._local and kept:
                self._write_local(temporary, content)
            else:
                self._put(temporary, content)
            if self._local:
                os.replace(temporary, full)
                if kept:
                    self._sync_folder(posixpath.dirname(full))
            else:
                self._fs.move(temporary, full)

    def write(self, path: str, content: Any) -> None:
        """Write a file under a name that nothing else uses; a crash may leave a part of it."""
        full = self._full(path)
        with self._writing(full):
            self._make_folder(full)
            if self._local:
                self._write_local(full, content)
            else:
                self._put(full, content)

    def delete(self, path: str) -> None:
        """Delete the file; it may be gone already."""
        with suppress(FileNotFoundError):
            self._fs.delete_file(self._full(path))

    @property
    def is_local(self) -> bool:
        """Whether the files are on a local disk."""
        return self._local

    def made_folder(self, folder: str) -> str:
        """The full path of a folder, which is made if it is missing. Raises OutputError and DiskFullError."""
        full = self._full(folder)
        with self._writing(full):
            self._make_folder(posixpath.join(full, "any"))
        return full

    # -- by kind of file system ------------------------------------------------------------------

    def _full(self, path: str) -> str:
        return posixpath.join(self._root, path)

    def _temporary(self, full: str) -> str:
        folder, name = posixpath.split(full)
        return posixpath.join(folder, f".{name}.{uuid.uuid4().hex}.tmp")

    def _make_folder(self, full: str) -> None:
        folder = posixpath.dirname(full)
        if folder in self._made_folders or self._atomic_put:
            return
        self._fs.create_dir(folder, recursive=True)
        if self._local:
            self._sync_folder(posixpath.dirname(folder))
        self._made_folders.add(folder)

    def _create_local(self, full: str, content: Any) -> bool:
        temporary = self._temporary(full)
        self._write_local(temporary, content)
        try:
            os.link(temporary, full)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in _NO_HARD_LINKS:
                raise
            if os.path.exists(full):
                return False
            os.rename(temporary, full)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(temporary)
        self._sync_folder(posixpath.dirname(full))
        return True

    def _write_local(self, full: str, content: Any) -> None:
        with open(full, "xb") as file:
            file.write(content)
            if self.durable:
                file.flush()
                os.fsync(file.fileno())

    def _sync_folder(self, folder: str) -> None:
        if self.durable:
            sync(folder)

    def _put(self, full: str, content: Any) -> None:
        with self._fs.open_output_stream(full) as stream:
            stream.write(content)

    @contextmanager
    def _writing(self, full: str) -> Iterator[None]:
        try:
            yield
        except PermissionError as error:
            raise OutputError(
                "the channel cannot be written",
                where=full,
                got=str(error),
                remedy="give the application a folder that it may write to",
            ) from error
        except OSError as error:
            if is_full(error):
                raise DiskFullError(
                    "no space left to write the channel",
                    where=full,
                    got=str(error),
                    remedy="free some space and run the same command again: it continues",
                ) from error
            raise


def _reopen(uri: str, durable: bool) -> ChannelFiles:
    return ChannelFiles(uri, durable=durable)


def _resolve(uri: str) -> tuple[Any, str]:
    parts = urlsplit(uri)
    if parts.scheme == "file":  # Arrow refuses spaces in a uri; a path may have them
        return pafs.LocalFileSystem(), os.path.abspath(unquote(parts.path))
    if "://" not in uri:
        return pafs.LocalFileSystem(), os.path.abspath(uri)
    found: tuple[Any, str] = pafs.FileSystem.from_uri(without_password(uri))
    return found

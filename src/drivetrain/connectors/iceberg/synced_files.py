"""Files of a table's description that are on the disk when they are closed.

The problem: a catalog names a file durably, and the library leaves it to the system when the file's content
reaches the disk.

The design: the library's own class of files, with a stream that syncs a local file when it is closed. Object
stores need nothing: an object that can be read is durable.

Opened by pyiceberg, by the name in `iceberg_catalog`.
"""

from __future__ import annotations

import os
from types import TracebackType
from typing import Any

import pyarrow.fs as pafs
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from drivetrain.durable import sync


class SyncedFiles(PyArrowFileIO):
    """The library's files; what is written to a local disk is synced."""

    def new_output(self, location: str) -> PyArrowFile:
        """A file to write."""
        scheme, netloc, path = self.parse_location(location, self.properties)
        return _SyncedFile(
            location=location, path=path, fs=self.fs_by_scheme(scheme, netloc), buffer_size=_BUFFER_BYTES
        )


_BUFFER_BYTES = 1024 * 1024


class _SyncedFile(PyArrowFile):
    def create(self, overwrite: bool = False) -> Any:
        stream = super().create(overwrite)
        is_local = isinstance(self._filesystem, pafs.LocalFileSystem)
        return _SyncedStream(stream, self._path) if is_local else stream


class _SyncedStream:
    def __init__(self, stream: Any, path: str) -> None:
        self._stream = stream
        self._path = path

    def write(self, content: bytes) -> int:
        return int(self._stream.write(content))

    def tell(self) -> int:
        return int(self._stream.tell())

    def close(self) -> None:
        if not self._stream.closed:
            self._stream.close()
            sync(self._path)
            sync(os.path.dirname(self._path))

    def __enter__(self) -> _SyncedStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

"""Files of a table's description: on the disk when they are closed, and read once by each process.

The problem: a catalog names a file durably, and the library leaves it to the system when the file's content
reaches the disk. And a commit that is tried again reads the whole description again, in an object store with
a request for each file: a sink beside it then commits first again.

The design: the library's own class of files, with a stream that syncs a local file when it is closed. Object
stores need nothing: an object that can be read is durable. What a manifest or a list of them contains never
changes, and its name has a random part; so their contents are kept, as far as they fit, the ones used last.

Opened by pyiceberg, by the name in `iceberg_catalog`.
"""

from __future__ import annotations

import io
import os
import threading
from contextlib import suppress
from types import TracebackType
from typing import Any, Final

import pyarrow.fs as pafs
from cachetools import LRUCache
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from drivetrain.durable import sync

_MANIFESTS: Final = ".avro"
_KEPT_BYTES: Final = 128 * 1024 * 1024
_kept: Final[LRUCache[str, bytes]] = LRUCache(_KEPT_BYTES, getsizeof=len)
"""Contents by the place of the file."""
_turn: Final = threading.Lock()


class SyncedFiles(PyArrowFileIO):
    """The library's files; what is written to a local disk is synced, and manifests are read once."""

    def new_input(self, location: str) -> PyArrowFile:
        """A file to read."""
        scheme, netloc, path = self.parse_location(location, self.properties)
        kind = _CachedFile if location.endswith(_MANIFESTS) else PyArrowFile
        return kind(
            location=location, path=path, fs=self.fs_by_scheme(scheme, netloc), buffer_size=_BUFFER_BYTES
        )

    def new_output(self, location: str) -> PyArrowFile:
        """A file to write."""
        scheme, netloc, path = self.parse_location(location, self.properties)
        return _SyncedFile(
            location=location, path=path, fs=self.fs_by_scheme(scheme, netloc), buffer_size=_BUFFER_BYTES
        )


_BUFFER_BYTES = 1024 * 1024


class _CachedFile(PyArrowFile):
    def open(self, seekable: bool = True) -> Any:
        with _turn:
            content = _kept.get(self.location)
        if content is None:
            with super().open(seekable=False) as stream:
                content = bytes(stream.read())
            with _turn, suppress(ValueError):  # one that is larger than all that is kept
                _kept[self.location] = content
        return io.BytesIO(content)


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

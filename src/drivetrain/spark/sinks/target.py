"""The directory that a file sink writes to: whose it is, and how a file gets into it.

    out/part-<sink id>-<batch>.parquet     what readers see: one file per batch that had rows
    out/_drivetrain/owner.json             the application that writes here
    out/_drivetrain/<name>.tmp…            files being written; readers ignore names that start with _

A file is written whole under `_drivetrain`, synced, and then renamed: readers never see half a batch.

Invariants:

1. A directory that holds somebody else's files, or another application's, is never written to.
2. A published file is never changed.
"""

from __future__ import annotations

import errno
import json
import os
import posixpath
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.fs as pafs

from drivetrain.errors import DiskFullError, OutputError

HIDDEN = "_drivetrain"


class Target:
    """One output directory, on any file system that pyarrow reaches; pickles to Spark's workers."""

    def __init__(self, path: str) -> None:
        self.told = path
        self.uri = path if "://" in path else os.path.abspath(os.path.expanduser(path))
        self._opened: tuple[Any, str] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}

    @property
    def fs(self) -> Any:
        """The file system."""
        return self._open()[0]

    def at(self, *names: str) -> str:
        """A path inside the directory, as the file system knows it."""
        return posixpath.join(self._open()[1], *names)

    def staged(self, name: str) -> str:
        """Where a file is written before it is published as `name`."""
        return self.at(HIDDEN, name)

    # -- ownership ---------------------------------------------------------------------------------

    def claim(self, app_id: str) -> None:
        """Make the directory this application's; raises `OutputError` when it cannot be."""
        with self._told_errors():
            info = self.fs.get_file_info(self.at())
            if info.type == pafs.FileType.File:
                raise OutputError(
                    "the output is a file, and must be a directory",
                    where=self.told,
                    remedy="choose another path, or remove the file",
                )
            owner = self.owner()
            if owner is not None and owner != app_id:
                raise OutputError(
                    "the output directory belongs to another application",
                    where=self.told,
                    expected=app_id,
                    got=owner,
                    remedy="choose another directory; other settings make another application",
                )
            if owner is None:
                foreign = self.visible()
                if foreign:
                    raise OutputError(
                        "the output directory holds files that this application did not write",
                        where=self.told,
                        got=", ".join(foreign[:3]) + (", …" if len(foreign) > 3 else ""),
                        remedy="choose an empty directory, or move these files away",
                    )
            self.fs.create_dir(self.at(HIDDEN), recursive=True)
            if owner is None:
                self.put("owner.json", [json.dumps({"application": app_id}).encode()], hidden=True)
            probe = self.staged("writable")
            with self.fs.open_output_stream(probe):
                """Creating it is the check."""
            self.fs.delete_file(probe)

    def owner(self) -> str | None:
        """The application that writes here, or None."""
        path = self.staged("owner.json")
        if self.fs.get_file_info(path).type != pafs.FileType.File:
            return None
        with self.fs.open_input_stream(path) as stream:
            return str(json.loads(stream.read())["application"])

    def visible(self) -> list[str]:
        """Names that readers see, sorted."""
        selector = pafs.FileSelector(self.at(), allow_not_found=True)
        names = [info.base_name for info in self.fs.get_file_info(selector)]
        return sorted(n for n in names if not n.startswith(("_", ".")))

    def forget(self, prefix: str) -> None:
        """Delete the published files that start with `prefix`, and the claim."""
        for name in self.visible():
            if name.startswith(prefix):
                self.fs.delete_file(self.at(name))
        if self.fs.get_file_info(self.at(HIDDEN)).type == pafs.FileType.Directory:
            self.fs.delete_dir(self.at(HIDDEN))

    # -- files -------------------------------------------------------------------------------------

    def exists(self, name: str) -> bool:
        """Whether a file has been published."""
        return bool(self.fs.get_file_info(self.at(name)).type == pafs.FileType.File)

    def put(self, name: str, chunks: Any, *, compression: str | None = None, hidden: bool = False) -> None:
        """Publish a file of these bytes."""
        with self.writing(name, compression=compression, hidden=hidden) as stream:
            for chunk in chunks:
                stream.write(chunk)

    @contextmanager
    def writing(
        self, name: str, *, compression: str | None = None, hidden: bool = False
    ) -> Iterator[BinaryIO | Any]:
        """A stream to write a file with; it is published when the block ends, and only then."""
        staged = self.staged(f"{name}.tmp")
        with self._told_errors():
            try:
                with self.fs.open_output_stream(staged, compression=compression) as stream:
                    yield stream
                self._sync(staged)
                self.fs.move(staged, self.staged(name) if hidden else self.at(name))
            except BaseException:
                self.discard(staged)
                raise

    def publish(self, staged: str, name: str) -> None:
        """Publish a file that was written at `staged`."""
        with self._told_errors():
            self._sync(staged)
            self.fs.move(staged, self.at(name))

    def discard(self, path: str) -> None:
        """Delete a file if it is there."""
        if self.fs.get_file_info(path).type == pafs.FileType.File:
            self.fs.delete_file(path)

    def _sync(self, path: str) -> None:
        """Have the disk hold a local file before its name says that it is whole."""
        if isinstance(self.fs, pafs.LocalFileSystem):
            handle = os.open(path, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)

    def _open(self) -> tuple[Any, str]:
        if self._opened is None:
            if "://" in self.uri and urlsplit(self.uri).scheme != "":
                with self._told_errors():
                    fs, path = pafs.FileSystem.from_uri(self.uri)
                self._opened = (fs, path)
            else:
                self._opened = (pafs.LocalFileSystem(), self.uri)
        return self._opened

    @contextmanager
    def _told_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise DiskFullError(
                    "there is no room for the output",
                    where=self.told,
                    remedy="free some room and run the same command again: it goes on where it stopped",
                ) from error
            raise OutputError(
                "the output cannot be written",
                where=self.told,
                got=str(error),
                remedy="check the path and its permissions, or choose another",
            ) from error
        except pa.ArrowException as error:
            raise OutputError("the output cannot be written", where=self.told, got=str(error)) from error

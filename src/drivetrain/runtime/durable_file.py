"""A small file whose content survives any crash intact, and that is refused when it is damaged.

Problem: content that was reported as written must survive any crash, a power cut included; an incomplete
file, or one that someone has edited, must not be mistaken for it.

Design: the content and a checksum of it, written by `durable.write_whole`. What if we die here: before the
rename the old content is there, after it the new one; the temporary file is ignored.

Invariants:

1. `read` returns the content of the last completed `write`, or of a later one; a damaged file raises, and so
   does an empty one.

Called by `clock_file`, `graph_versions`, `checkpoints` and other modules that keep records.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final, Generic, TypeAlias, TypeVar

import msgspec

from drivetrain.durable import sync, write_whole, writing
from drivetrain.errors import InputError

T = TypeVar("T")
Keep: TypeAlias = "Callable[[Mapping[str, bytes]], None]"
"""Notes files elsewhere before they are here, by their names in the state directory; it may raise."""


class DurableFile:
    """The file at `path`, which holds `what` (for errors); its directory exists.

    `if_damaged` and `if_full` are remedies.
    """

    def __init__(self, path: Path, what: str, *, if_damaged: str, if_full: str) -> None:
        self.path: Final = path
        self._what: Final = what
        self._if_damaged: Final = if_damaged
        self._if_full: Final = if_full

    def read(self) -> bytes | None:
        """The content, None when none was written; raises InputError when the file is damaged."""
        try:
            found = self.path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self.damaged(str(error)) from error
        content, _, checksum = found.strip().rpartition(b" ")
        if checksum != _checksum(content):
            raise self.damaged(_shown(found))
        return content

    def read_json(self, type: type[T]) -> T | None:
        """The value of this type that was written as JSON, None when none was; raises InputError like `read`,
        and for another value."""
        content = self.read()
        try:
            return None if content is None else msgspec.json.decode(content, type=type)
        except msgspec.MsgspecError as error:
            raise self.damaged(str(error)) from error

    def write(self, content: bytes, require: Callable[[], None] | None = None) -> None:
        """Write content without line ends; raises DiskFullError, OutputError when it cannot be written.

        `require` is called just before the file changes, and may raise.
        """
        with writing(self._what, self.path, if_full=self._if_full, if_refused=self._if_full):
            write_whole(self.path, _with_checksum(content), require=require)

    def write_kept(self, content: bytes, keep: Keep | None, folder: str = "") -> None:
        """Write content as `write` does; `keep` notes the file elsewhere just before it changes.

        `folder` is the one of the state directory in which the file is; "": the directory itself.
        """
        noted = {f"{folder}/{self.path.name}".lstrip("/"): _with_checksum(content)}
        self.write(content, None if keep is None else partial(keep, noted))

    def remove(self) -> None:
        """Delete the file, durably, if there is one; raises DiskFullError and OutputError."""
        with writing(self._what, self.path, if_full=self._if_full, if_refused=self._if_full):
            self.path.unlink(missing_ok=True)
            sync(self.path.parent)

    def damaged(self, got: str) -> InputError:
        """The error for a damaged file."""
        return InputError(
            f"{self._what} cannot be read",
            where=str(self.path),
            expected="the content as it was written, with its checksum",
            got=got,
            remedy=self._if_damaged,
        )


class DurableRecord(Generic[T]):
    """A value of one type, as JSON in a durable file."""

    def __init__(self, file: DurableFile, type: type[T]) -> None:
        self._file: Final = file
        self._type: Final = type

    def read(self) -> T | None:
        """The value, None when none was written; raises InputError when the file is damaged."""
        return self._file.read_json(self._type)

    def write(self, value: T, keep: Keep | None = None) -> None:
        """Write the value, noted elsewhere by `keep` before; raises DiskFullError and OutputError."""
        self._file.write_kept(msgspec.json.encode(value), keep)

    def remove(self) -> None:
        """Delete the file, if there is one; raises DiskFullError and OutputError."""
        self._file.remove()


def _with_checksum(content: bytes) -> bytes:
    """What a file with this content has on the disk."""
    return content + b" " + _checksum(content) + b"\n"


def _shown(found: bytes) -> str:
    if not found:
        return "an empty file"
    text = repr(found[:80].decode("utf-8", "replace"))
    return text if len(found) <= 80 else f"{len(found)} bytes that begin with {text}"


def _checksum(content: bytes) -> bytes:
    return f"{zlib.crc32(content):08x}".encode()

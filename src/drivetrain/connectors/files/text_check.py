"""Checks text files before Spark's own reader reads them: are they UTF-8, and where can lines end?

The problem: Spark passes on whatever bytes are in a line, and takes a lone CR for the end of one. Checking
each line in Spark costs two thirds of what reading it costs.

The design: a file is looked through as bytes, by native code, at more than a gigabyte per second. A line
break is one byte in UTF-8, and no other character contains that byte, so a file is UTF-8 if and only if each
of its lines is; and without a CR, Spark's line ends are ours. The reader is chosen before the first batch, so
whether there is a CR is only found out for input that is not too large. Whether it is UTF-8 is found out
before each batch.

Invariants:

1. Before a batch reads a file, all its bytes are UTF-8.
2. Spark's own line ends are used only for files without a CR.
3. A file that was written to after it was looked through is looked through again.

Called by `native_files`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs

from drivetrain.connectors.files.blocks import BLOCK_BYTES, LineNumbers, read_blocks, unreadable
from drivetrain.connectors.files.file_log import FileLog, FileSplit
from drivetrain.connectors.files.text_decoder import TextDecoder
from drivetrain.connectors.files.text_records import (
    BadRecord,
    UndecodableError,
    bad_record_error,
    parse_records,
    require_utf8,
)
from drivetrain.errors import DrivetrainError, InputError
from drivetrain.runtime.file_locations import FoundFile
from drivetrain.runtime.whole_files import publish_bytes

MAX_SCAN_BYTES = 1024 * 1024 * 1024
"""How much text is looked through before the reader is chosen: a slow disk needs seconds for it."""
_NO_RETURNS = "no-returns"
"""The file that says that no file has a carriage return."""
_LEAD_BYTE = 0xC0
_CONTINUATION_BYTE = 0x80


@dataclass(frozen=True)
class TextContent:
    """What is known of a file's bytes; after the first that are not UTF-8 nobody has looked."""

    is_utf8: bool
    has_returns: bool
    """Whether there is a carriage return."""


class TextCheck:
    """Looks through text files before Spark reads them, each once, unless it was written to since.

    `directory` is where the choice of the reader is kept.
    """

    def __init__(self, directory: Path) -> None:
        self._no_returns = directory / _NO_RETURNS
        self._known: dict[tuple[str, int, int, int], TextContent] = {}

    @property
    def has_no_returns(self) -> bool:
        """Whether the reader was chosen for files without carriage returns."""
        return self._no_returns.exists()

    def choose(self, log: FileLog) -> None:
        """Choose the reader for files without carriage returns, if they are known to have none."""
        if log.total_bytes > MAX_SCAN_BYTES:
            return
        contents = (self._content(file.path) for file in log.files())
        if all(content.is_utf8 and not content.has_returns for content in contents):
            publish_bytes(pafs.LocalFileSystem(), str(self._no_returns), b"")

    def require(self, file: FoundFile) -> None:
        """Raise InputError unless the file is UTF-8, and as the reader needs it."""
        content = self._content(file.path)
        if not content.is_utf8:
            raise _first_bad_line(file)
        if content.has_returns and self.has_no_returns:
            raise InputError(
                "the file changed after the application first saw it",
                where=file.path,
                expected="no carriage return, as when it was first seen",
                remedy="restore the file, or start over with --fresh",
            )

    def _content(self, path: str) -> TextContent:
        try:
            now = os.stat(path)
        except OSError as error:
            raise unreadable(path, error) from error
        key = path, now.st_ino, now.st_size, now.st_mtime_ns
        if key not in self._known:
            self._known[key] = look_through(path)
        return self._known[key]


def look_through(path: str, block_bytes: int = BLOCK_BYTES) -> TextContent:
    """Read a local file, so many bytes at once (more than three); raises InputError when it cannot be read.

    >>> look_through("/dev/null")
    TextContent(is_utf8=True, has_returns=False)
    """
    buffer = bytearray(block_bytes)
    kept, has_returns = 0, False
    try:
        with open(path, "rb", buffering=0) as file:
            while True:
                size = file.readinto(memoryview(buffer)[kept:]) or 0
                end = kept + size
                has_returns = has_returns or buffer.find(b"\r", kept, end) != -1
                border = _last_border(buffer, end) if size else end
                try:
                    require_utf8(memoryview(buffer)[:border])
                except UndecodableError:
                    return TextContent(False, has_returns)
                if not size:
                    return TextContent(True, has_returns)
                kept = end - border
                buffer[:kept] = buffer[border:end]
    except OSError as error:
        raise unreadable(path, error) from error


def ends_with_return(path: str) -> bool:
    """Whether the last byte of a local file is a carriage return: one that is part of its last line."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.stat(path).st_size - 1))
            return file.read() == b"\r"
    except OSError as error:
        raise unreadable(path, error) from error


def _last_border(data: bytearray, end: int) -> int:
    """A border of characters at most three bytes before `end`: the last character may be incomplete."""
    for back in range(1, min(3, end) + 1):
        if data[end - back] >= _LEAD_BYTE:
            return end - back
        if data[end - back] < _CONTINUATION_BYTE:
            return end
    return end


def _first_bad_line(file: FoundFile) -> DrivetrainError:
    """The error for the first line of a file that is not UTF-8."""
    filesystem = pafs.LocalFileSystem()
    decoder = TextDecoder(pa.schema([("value", pa.string())]))
    split = FileSplit(file.path, 0, file.size_bytes, file.size_bytes, whole=False)
    lines = LineNumbers(filesystem, split, None)
    for block in read_blocks(filesystem, split):
        for piece in parse_records(decoder, block.data, block.ends):
            if isinstance(piece, BadRecord):
                return bad_record_error(file.path, lines.of(block, piece.start), block, piece)
    return InputError("the file changed while it was read", where=file.path)

"""Blocks: the records of a file split, a few megabytes at a time, cut at record borders.

The problem: native parsers want large buffers of complete records; splits are cut at arbitrary bytes,
records may be longer than a buffer, and the report of a bad record needs its line number.

The design: a record belongs to the split that contains its first byte. A split that does not start at
byte 0 begins after the first line break at or after `start - 1`; every split reads past its end until
the record that began inside it is complete. A block is a buffer plus the positions of its record ends.

A line break inside quotes does not end a record when `quote` is given (multi-line CSV): a break counts
when an even number of quotes is before it. That requires reading from the first byte, so such files are
read as a whole; so are compressed ones, which have no random access.

Invariants:

1. The blocks of all splits of a file, in order, are the file without its byte order mark, each byte once.
2. Every block but a file's last ends with a record end; a missing last one is treated as present.
3. `first_line` numbers are exact for whole files; for others they count from the split's first record,
   and `LineNumbers` adds the lines before it, on demand.

Called by the record reader. Source: Hadoop's line reader; RFC 4180.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.fs as pafs

from drivetrain.connectors.files.file_log import FileSplit
from drivetrain.errors import DrivetrainError, InputError
from drivetrain.runtime.file_locations import compression_of

BLOCK_BYTES = 4 * 1024 * 1024
MAX_RECORD_BYTES = 256 * 1024 * 1024
_NEWLINE = 10
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"

Ends = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Block:
    """`data` with its record ends: positions of the closing line breaks (or `len(data)` for a last one).

    `offset` is the position of `data` in the (uncompressed) file; `lines_before` counts the lines
    between the split's first record and this block.
    """

    data: bytes
    ends: Ends
    offset: int
    lines_before: int


def read_blocks(filesystem: pafs.FileSystem, split: FileSplit, quote: str | None = None) -> Iterator[Block]:
    """The records of `split` as blocks; raises InputError when the file has changed since it was logged."""
    refuse_changed(filesystem, split.path, split.size_bytes)
    compression = compression_of(split.path)
    try:
        if compression is not None or split.whole:
            with filesystem.open_input_stream(split.path, compression=compression) as stream:
                yield from _whole_blocks(stream.read, split.path, quote)
        else:
            with filesystem.open_input_file(split.path) as file:
                yield from _split_blocks(lambda size, at: file.read_at(size, at), split)
    except (OSError, pa.ArrowInvalid) as error:
        raise unreadable(split.path, error) from error


def refuse_changed(filesystem: pafs.FileSystem, path: str, size_bytes: int) -> None:
    """Raise InputError unless the file exists with the logged size."""
    info = filesystem.get_file_info(path)
    if info.type != pafs.FileType.File or info.size != size_bytes:
        raise InputError(
            "the file changed after the application first saw it",
            where=path,
            expected=f"{size_bytes} bytes, as when it was first seen",
            got="it is gone" if info.type != pafs.FileType.File else f"{info.size} bytes",
            remedy="restore the file, or start over with --fresh; files must arrive complete, "
            "by rename, and stay as they are",
        )


def unreadable(path: str, error: Exception) -> DrivetrainError:
    """The error for a file that cannot be read at all; that of an object store has its own remedy."""
    if isinstance(error, DrivetrainError):
        return error
    return InputError(
        "the file cannot be read",
        where=path,
        got=f"{type(error).__name__}: {error}",
        remedy="check that it is complete, not damaged, and that this user may read it",
    )


def record_ends(data: bytes, quote: str | None = None) -> Ends:
    """Positions of the line breaks that end a record."""
    buffer = np.frombuffer(data, dtype=np.uint8)
    breaks = np.flatnonzero(buffer == _NEWLINE)
    if quote is None or quote.encode() not in data:
        return breaks
    quotes = np.flatnonzero(buffer == ord(quote))
    return breaks[np.searchsorted(quotes, breaks) % 2 == 0]


def _split_blocks(read_at: Callable[[int, int], bytes], split: FileSplit) -> Iterator[Block]:
    at = _first_record(read_at, split)
    # The first record counts as starting at byte 0, before the byte order mark.
    end = max(split.end, at + 1) if split.start == 0 else split.end
    lines_before = 0
    size = BLOCK_BYTES
    while at < end:
        data = read_at(size, at)
        if not data:
            return
        at_end_of_file = at + len(data) >= split.size_bytes
        # The record that contains the split's last byte is this split's last.
        last = data.find(b"\n", end - 1 - at) if at + len(data) >= end else data.rfind(b"\n")
        if last == -1 and not at_end_of_file:
            if at + len(data) >= end and (closed := data.rfind(b"\n")) != -1:
                last = closed
            else:
                size = _grown(size, split.path)
                continue
        block = data if last == -1 else data[: last + 1]
        ends = record_ends(block)
        if last == -1:
            ends = _closed(block, ends)
        yield Block(block, ends, at, lines_before)
        at += len(block)
        lines_before += len(ends)
        size = BLOCK_BYTES


def _first_record(read_at: Callable[[int, int], bytes], split: FileSplit) -> int:
    if split.start == 0:
        return len(_BYTE_ORDER_MARK) if read_at(3, 0) == _BYTE_ORDER_MARK else 0
    at = split.start - 1
    while at < split.end:
        data = read_at(64 * 1024, at)
        if not data:
            break
        found = data.find(b"\n")
        if found != -1:
            return at + found + 1
        at += len(data)
    return split.end


def _whole_blocks(read: Callable[[int], bytes], path: str, quote: str | None) -> Iterator[Block]:
    at = lines_before = 0
    carried = b""
    size = BLOCK_BYTES
    while True:
        read_now = read(size)
        data = carried + read_now
        if at == 0 and data.startswith(_BYTE_ORDER_MARK):
            data = data[3:]
            at = 3
        if not data:
            return
        ends = record_ends(data, quote)
        if not read_now:
            block, carried, ends = data, b"", _closed(data, ends)
        elif len(ends) == 0:
            carried = data
            size = _grown(max(size, len(data)), path)
            continue
        else:
            block, carried = data[: int(ends[-1]) + 1], data[int(ends[-1]) + 1 :]
        yield Block(block, ends, at, lines_before)
        at += len(block)
        lines_before += len(ends) if quote is None else block.count(b"\n")
        size = BLOCK_BYTES
        if not read_now:
            return


def _closed(data: bytes, ends: Ends) -> Ends:
    """The ends of a file's last block: its last record counts as closed."""
    if len(ends) and int(ends[-1]) == len(data) - 1:
        return ends
    return np.append(ends, len(data))


def _grown(size: int, path: str) -> int:
    if size >= MAX_RECORD_BYTES:
        raise InputError(
            f"a record is longer than {MAX_RECORD_BYTES // 2**20} MiB",
            where=path,
            remedy="check that the file has line breaks (LF or CRLF) and no unclosed quote",
        )
    return size * 2


class LineNumbers:
    """Line numbers of one split's records, for messages; reads the file up to the split once, on demand."""

    def __init__(self, filesystem: pafs.FileSystem, split: FileSplit, max_scan_bytes: int | None) -> None:
        self._filesystem = filesystem
        self._split = split
        self._max_scan_bytes = max_scan_bytes
        self._before_split: int | None = None

    def of(self, block: Block, start: int) -> int | None:
        """The number, from 1, of the line at `start` in the block; None when counting would cost too much."""
        before = self._lines_before_split()
        if before is None:
            return None
        return 1 + before + block.lines_before + block.data.count(b"\n", 0, start)

    def _lines_before_split(self) -> int | None:
        if self._split.start == 0:
            return 0
        if self._max_scan_bytes is not None and self._split.start > self._max_scan_bytes:
            return None
        if self._before_split is None:
            with self._filesystem.open_input_file(self._split.path) as file:
                first = _first_record(lambda size, at: file.read_at(size, at), self._split)
                self._before_split = sum(
                    file.read_at(min(BLOCK_BYTES, first - at), at).count(b"\n")
                    for at in range(0, first, BLOCK_BYTES)
                )
        return self._before_split


def first_line(filesystem: pafs.FileSystem, path: str) -> bytes:
    """A file's first line, without its line break."""
    try:
        with filesystem.open_input_stream(path, compression=compression_of(path)) as stream:
            read = b""
            while b"\n" not in read:
                more = stream.read(64 * 1024)
                if not more:
                    break
                read += more
    except (OSError, pa.ArrowInvalid) as error:
        raise unreadable(path, error) from error
    return read.partition(b"\n")[0].rstrip(b"\r")

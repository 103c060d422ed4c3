"""Records: blocks of text as Arrow batches, with the records that cannot be read separated.

The problem: a native parser is fast because it converts a whole block, but its errors are vague:
one bad value among fifty thousand lines, without the line. Checking every line first would cost more
than parsing.

The design: a decoder converts a whole block or raises. Only when it raises is the block cut in two at
a record end and each half tried again, down to the single records that fail; the decoder explains
those, slowly and precisely. k bad records among n cost about k log n small conversions.

Invariants:

1. The result for a record does not depend on its block, split or batch: a decoder accepts a
   block only if it gives one row for every record that is not blank.
2. Rows keep the order of the file, bad ones included.
3. No record is dropped silently: it becomes a row or a bad record, or is blank.

Called by the file reader. `Decoder` is implemented for text, CSV and JSON lines.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from drivetrain.connectors.files.blocks import Block, Ends
from drivetrain.errors import InputError


class UndecodableError(Exception):
    """A block has a record that cannot be read; `Decoder.explain` finds which and why."""


@dataclass(frozen=True)
class Explanation:
    """Why one record cannot be read; `column` and `expected` if a single column is the cause."""

    problem: str
    column: str | None = None
    expected: str | None = None
    got: str | None = None

    def __str__(self) -> str:
        parts = [self.problem if self.column is None else f"column {self.column}: {self.problem}"]
        if self.expected is not None:
            parts.append(f"expected {self.expected}")
        if self.got is not None:
            parts.append(f"got {self.got}")
        return ", ".join(parts)


@dataclass(frozen=True)
class BadRecord:
    """A record that cannot be read: its bytes, where it starts in its block, and why."""

    raw: bytes
    start: int
    explanation: Explanation


class Decoder(Protocol):
    """A text format."""

    def decode(self, data: bytes, ends: Ends) -> pa.RecordBatch:
        """One row per record that is not blank, in the target schema.

        Raises UndecodableError, ArrowInvalid or ArrowNotImplementedError if any record cannot be read.
        """
        ...

    def explain(self, record: bytes) -> Explanation:
        """The reason why `decode` refuses this single record."""
        ...


def parse_records(decoder: Decoder, data: bytes, ends: Ends) -> Iterator[pa.RecordBatch | BadRecord]:
    """The rows of `data`, in order; bad records come between the batches of good ones."""
    yield from _parse(decoder, data, ends, 0)


def _parse(decoder: Decoder, data: bytes, ends: Ends, start: int) -> Iterator[pa.RecordBatch | BadRecord]:
    if len(ends) == 0:
        return
    try:
        batch = decoder.decode(data, ends)
    except (UndecodableError, pa.ArrowInvalid, pa.ArrowNotImplementedError):
        if len(ends) == 1:
            record = data.rstrip(b"\r\n")
            yield BadRecord(record, start, decoder.explain(record))
            return
        middle = len(ends) // 2
        border = int(ends[middle - 1]) + 1
        yield from _parse(decoder, data[:border], ends[:middle], start)
        yield from _parse(decoder, data[border:], ends[middle:] - border, start + border)
    else:
        if batch.num_rows:
            yield batch


def record_starts(ends: Ends) -> Ends:
    """The starts of the records with these ends."""
    starts = np.empty_like(ends)
    starts[0] = 0
    starts[1:] = ends[:-1] + 1
    return starts


def count_blank(data: bytes, ends: Ends) -> int:
    """How many records have no characters, or only a carriage return."""
    lengths = ends - record_starts(ends)
    blank = int(np.count_nonzero(lengths == 0))
    for index in np.flatnonzero(lengths == 1):
        blank += data[int(ends[index]) - 1] == 13
    return blank


def require_utf8(data: bytes | memoryview) -> None:
    """Raise UndecodableError unless all of `data` is UTF-8; runs at gigabytes per second."""
    offsets = pa.py_buffer(np.array([0, len(data)], dtype=np.int64))
    try:
        pa.LargeStringArray.from_buffers(1, offsets, pa.py_buffer(data)).validate(full=True)
    except pa.ArrowInvalid as error:
        raise UndecodableError("not UTF-8") from error


def explain_encoding(record: bytes) -> Explanation | None:
    """Where a record stops being UTF-8; None if all of it is."""
    try:
        record.decode("utf-8")
    except UnicodeDecodeError as error:
        return Explanation(
            "the text is not UTF-8",
            expected="UTF-8",
            got=f"byte 0x{record[error.start]:02x} at position {error.start + 1} of the line",
        )
    return None


def bad_record_error(path: str, line: int | None, block: Block, bad: BadRecord) -> InputError:
    """The error that stops the application under the policy `fail`."""
    place = path if line is None else f"{path}, line {line}"
    why = bad.explanation
    shown = bad.raw[:200].decode("utf-8", errors="backslashreplace") + ("…" if len(bad.raw) > 200 else "")
    shown = shown.replace("\r", "\\r").replace("\n", "\\n")
    got = f"{why.got}, in the record: {shown}" if why.got is not None else f"the record: {shown}"
    what = "a record cannot be read" if why.column is None else f"column {why.column} cannot be read"
    return InputError(
        f"{what}: {why.problem}",
        where=place if line is not None else f"{path}, byte {block.offset + bad.start}",
        expected=why.expected,
        got=got,
        remedy='correct the file, or set on_bad_record="dead_letter" on the source to put such records into '
        "the dead letters",
    )

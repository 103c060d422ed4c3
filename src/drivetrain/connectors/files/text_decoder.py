"""Text files: one message per line, without a parser.

The line breaks are removed from the block with one mask, and the remaining bytes *are* the data of an Arrow
string column, whose offsets follow from the positions of the breaks. Arrow then checks the UTF-8.
LF and CRLF end a line; the break is not part of the message; an empty line is an empty message.

Called by the file reader.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from drivetrain.connectors.files.blocks import Ends, record_ends
from drivetrain.connectors.files.text_records import Explanation, explain_encoding


class TextDecoder:
    """Decodes lines into the column `value`."""

    def __init__(self, target: pa.Schema) -> None:
        self._target = target

    def decode(self, data: bytes, ends: Ends) -> pa.RecordBatch:
        """One row per line; see `Decoder`."""
        if b"\r\n" in data:
            data = data.replace(b"\r\n", b"\n")
            closed = len(data) > 0 and data[-1] == 10
            ends = record_ends(data) if closed else np.append(record_ends(data), len(data))
        count = len(ends)
        buffer = np.frombuffer(data, dtype=np.uint8)
        offsets = np.zeros(count + 1, dtype=np.int32)
        offsets[1:] = ends - np.arange(count)
        values = pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(buffer[buffer != 10]))
        values.validate(full=True)
        return pa.RecordBatch.from_arrays([values], schema=self._target)

    def explain(self, record: bytes) -> Explanation:
        """Only the encoding can be wrong; see `Decoder`."""
        return explain_encoding(record) or Explanation("the line cannot be read as text")

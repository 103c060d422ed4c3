"""CSV: delimited records, parsed by Arrow.

Columns are found by the names in the file's first line, or by position if there is none. Columns
outside the schema are split but not converted. A block is accepted only if all its bytes are UTF-8 and
there is one row per line that is not blank: Arrow would take a lone carriage return, or a line break
inside quotes, for a record border or not, depending on where the block happened to be cut.

Temporal columns are read as text and converted by `to_temporal`.

Called by the file reader. Source: RFC 4180.
"""

from __future__ import annotations

import csv
import io

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

from drivetrain.api.sources import CsvFiles
from drivetrain.connectors.files.blocks import Ends
from drivetrain.connectors.files.text_records import (
    Explanation,
    UndecodableError,
    count_blank,
    explain_encoding,
    require_utf8,
)
from drivetrain.connectors.files.timestamps import is_temporal, to_temporal
from drivetrain.errors import InputError


class CsvDecoder:
    """Decodes the records of one file, whose columns are `names`, into `target`."""

    def __init__(
        self, target: pa.Schema, ddl_types: dict[str, str], source: CsvFiles, names: list[str]
    ) -> None:
        self._target = target
        self._ddl_types = ddl_types
        self._source = source
        self._names = names
        self._types = {field.name: pa.string() if is_temporal(field.type) else field.type for field in target}
        self._parse_options = pacsv.ParseOptions(
            delimiter=source.delimiter, quote_char=source.quote, newlines_in_values=source.multiline
        )

    def decode(self, data: bytes, ends: Ends) -> pa.RecordBatch:
        """One row per record that is not blank; see `Decoder`."""
        return self._decode(data, ends, self._target)

    def explain(self, record: bytes) -> Explanation:
        """A wrong number of fields, or the first column that does not convert; see `Decoder`."""
        encoding = explain_encoding(record)
        if encoding is not None:
            return encoding
        try:
            rows = list(
                csv.reader(
                    io.StringIO(record.decode("utf-8"), newline=""),
                    delimiter=self._source.delimiter,
                    quotechar=self._source.quote,
                    strict=True,
                )
            )
        except csv.Error as error:
            return Explanation(
                f"not valid CSV ({error})", expected="quotes that close, on the same line unless multiline"
            )
        if len(rows) != 1:
            return Explanation("a line break inside the record", expected="one record per line")
        if len(rows[0]) != len(self._names):
            return Explanation(
                "the number of fields is wrong",
                expected=f"{len(self._names)} fields",
                got=f"{len(rows[0])} fields",
            )
        for field in self._target:
            try:
                self._decode(record, np.array([len(record)]), pa.schema([field]))
            except (UndecodableError, pa.ArrowInvalid, pa.ArrowNotImplementedError):
                return Explanation(
                    "does not parse as a date or time"
                    if is_temporal(field.type)
                    else "does not fit the type",
                    column=field.name,
                    expected=self._ddl_types[field.name],
                    got=repr(rows[0][self._names.index(field.name)]),
                )
        return Explanation("the record cannot be read")

    def _decode(self, data: bytes, ends: Ends, target: pa.Schema) -> pa.RecordBatch:
        require_utf8(data)
        expected = len(ends) - count_blank(data, ends)
        if expected == 0:
            return pa.RecordBatch.from_pylist([], schema=target)
        table = pacsv.read_csv(
            pa.BufferReader(data),
            read_options=pacsv.ReadOptions(
                column_names=self._names, use_threads=False, block_size=len(data) + 1
            ),
            parse_options=self._parse_options,
            convert_options=pacsv.ConvertOptions(
                column_types=self._types,
                include_columns=target.names,
                null_values=list(self._source.nulls),
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                check_utf8=False,
            ),
        )
        if table.num_rows != expected:
            raise UndecodableError(f"{expected} lines hold {table.num_rows} records")
        columns = []
        for field in target:
            column = table.column(field.name).combine_chunks()
            if is_temporal(field.type):
                column = to_temporal(column, field.type, self._source.timestamp_format)
            columns.append(column if column.type == field.type else column.cast(field.type))
        return pa.RecordBatch.from_arrays(columns, schema=target)


def column_names(source: CsvFiles, target: pa.Schema, first_line: bytes, path: str) -> list[str]:
    """The names of a file's columns, in order; `first_line` is the file's first line without its break.

    Raises InputError when the header lacks a column of the schema or has it twice, or when a file
    without header has another number of columns.
    """
    try:
        text = first_line.removeprefix(b"\xef\xbb\xbf").decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError("the first line is not UTF-8", where=path, got=repr(first_line[:80])) from error
    fields = next(csv.reader([text], delimiter=source.delimiter, quotechar=source.quote), [])
    if not source.header:
        return list(target.names)
    for name in target.names:
        if fields.count(name) != 1:
            raise InputError(
                f"the header has no column {name}" if name not in fields else f"the header has {name} twice",
                where=path,
                expected=f"each of {', '.join(target.names)} once",
                got=", ".join(fields) or "an empty line",
                remedy="correct the schema or the file, or set header=False when the first line is data",
            )
    return fields


def check_csv_schema(target: pa.Schema, where: str) -> None:
    """Raise InputError when a column's type has no form in CSV."""
    for field in target:
        if pa.types.is_nested(field.type):
            raise InputError(
                f"column {field.name} has a type that cannot be read from CSV",
                where=where,
                expected="strings, numbers, booleans, timestamps, dates, decimals and binary",
                got=str(field.type),
                remedy="read the column as string and parse it with from_json or split",
            )

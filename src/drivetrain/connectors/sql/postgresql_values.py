"""Values that PostgreSQL cannot hold, found before a batch is kept.

The problem: a batch that is kept is published when its checkpoint is complete, and can no longer be computed
differently. A value that the server refuses then stops the application for good, and anyone who sends
messages may send one.

The design: a batch is refused while it is prepared: the message names the column, and a changed application
computes the same batch again.

Called by `postgresql`. Source: the manual's chapters on character, date and JSON types.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from drivetrain.connectors.sql.sql_columns import SqlTable, require_years
from drivetrain.errors import OutputError

_ESCAPED_NUL = r"(^|[^\\])(\\\\)*\\u0000"
"""The character 0 in JSON, which has it escaped; a doubled backslash before it is one of the text."""


def require_postgresql_values(messages: pa.RecordBatch, table: SqlTable, where: str) -> None:
    """Raise `OutputError` for values that no column accepts: the character 0, and years before 1."""
    for name in messages.schema.names:
        column = messages.column(name)
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            known = table.columns.get(name)
            _require_characters(name, column, known is not None and known.type == "jsonb", where)
        elif pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
            require_years(name, column, where)


def _require_characters(name: str, column: pa.Array, is_json: bool, where: str) -> None:
    found = pc.match_substring(column, "\0")
    if is_json:
        found = pc.or_(found, pc.match_substring_regex(column, _ESCAPED_NUL))
    if pc.any(found).as_py():
        raise OutputError(
            f"there is text with the character 0 in the column {name}",
            where=where,
            expected="text that PostgreSQL can hold: any character but that one",
            remedy="remove it before the sink: translate(column, '\\0', '')",
        )

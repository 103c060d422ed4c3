"""Rows as insert statements of MySQL: which values they may have, how Arrow writes them, how long they get.

The problem: reading files from the client is off in most servers, so rows come as text in statements. A
server closes the connection at a statement that is longer than `max_allowed_packet`. It rounds fractions of
seconds that a column does not keep, and has no NaN.

The design: each column becomes an array of literals, by Arrow's functions; a row is their join, and a
statement has as many rows as fit into a mebibyte. The session has `NO_BACKSLASH_ESCAPES`: in a literal, only
its quotes are doubled. Values that a column would change are errors before the batch is kept.

Called by `mysql`. Source: the grammar of literals in MySQL's manual.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from drivetrain.connectors.sql.sql_columns import SqlTable, require_years
from drivetrain.errors import OutputError

_STATEMENT_BYTES = 2**20
_MICROSECOND_DIGITS = 6
_LAST_YEAR = 9999


def insert_statements(
    start: str, columns: Sequence[pa.Array], packet_bytes: int, where: str
) -> Iterator[bytes]:
    """Statements that insert the rows of these columns, in order; `start` ends with `values `.

    Raises `OutputError` for a row that is longer than the server accepts in one packet.
    """
    if not columns or not len(columns[0]):
        return
    null = pa.scalar(b"NULL", pa.large_binary())  # here, as pyarrow then imports pandas, which takes 0.3 s
    literals = [pc.fill_null(_literals(column), null) for column in columns]
    comma = pa.scalar(b",", pa.large_binary())
    begin = start.encode()
    limit = min(packet_bytes - 1, _STATEMENT_BYTES)
    rows: list[bytes] = []
    size = len(begin)
    for values in pc.binary_join_element_wise(*literals, comma).to_pylist():
        row = b"(" + values + b")"
        if len(begin) + len(row) >= packet_bytes:
            raise OutputError(
                "a row is larger than the server accepts",
                where=where,
                expected=f"statements of less than {packet_bytes} bytes (max_allowed_packet there)",
                got=f"one of {len(begin) + len(row)} bytes",
                remedy="raise max_allowed_packet of the server; the same command continues with the batch",
            )
        if rows and size + len(row) + 1 > limit:
            yield begin + b",".join(rows)
            rows, size = [], len(begin)
        rows.append(row)
        size += len(row) + 1
    yield begin + b",".join(rows)


def require_mysql_values(messages: pa.RecordBatch, table: SqlTable, where: str) -> None:
    """Raise `OutputError` for values that no column accepts, or that the table's column would change."""
    for name in messages.schema.names:
        column = messages.column(name)
        if pa.types.is_floating(column.type):
            _require_finite(name, column, where)
        elif pa.types.is_temporal(column.type) and name in table.columns:
            if not pa.types.is_time(column.type):
                require_years(name, column, where, last=_LAST_YEAR)
            if not pa.types.is_date(column.type):
                _require_digits(name, column, table.columns[name].digits, where)


def _require_finite(name: str, column: pa.Array, where: str) -> None:
    if column.null_count < len(column) and not pc.all(pc.is_finite(column)).as_py():
        raise OutputError(
            f"there is NaN or infinity in the column {name}",
            where=where,
            expected="numbers: the server has no others",
            remedy="replace such values before the sink: nanvl(column, null)",
        )


def _require_digits(name: str, column: pa.Array, digits: int | None, where: str) -> None:
    if digits is None or digits >= _MICROSECOND_DIGITS:
        return
    unit = 10 ** (_MICROSECOND_DIGITS - digits)
    kind = pa.time64("us") if pa.types.is_time(column.type) else pa.timestamp("us", column.type.tz)
    micros = column.cast(kind).cast(pa.int64())
    whole = pc.multiply(pc.divide(micros, unit), unit)
    if column.null_count < len(column) and not pc.all(pc.equal(whole, micros)).as_py():
        raise OutputError(
            f"the table's column {name} would round the times",
            where=where,
            expected=f"times with {digits} digits of a second at most",
            remedy=f"let the column keep microseconds (alter table … modify {name} datetime(6)), or cut them "
            "before the sink with date_trunc",
        )


def _literals(column: pa.Array) -> pa.Array:
    """The values of a column as literals, null where they are null."""
    kind = column.type
    if pa.types.is_boolean(kind):
        text = column.cast(pa.int8()).cast(pa.large_string())
    elif pa.types.is_integer(kind) or pa.types.is_floating(kind):
        text = column.cast(pa.large_string())
    elif pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        hexadecimal = [None if value is None else f"x'{value.hex()}'" for value in column.to_pylist()]
        text = pa.array(hexadecimal, pa.large_string())
    else:
        text = _quoted_text(_text(column))
    return text.cast(pa.large_binary())


def _text(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_timestamp(kind):
        zone = None if kind.tz is None else "UTC"
        column = pc.strftime(column.cast(pa.timestamp("us", zone)), "%Y-%m-%d %H:%M:%S")
    return column.cast(pa.large_string())


def _quoted_text(text: pa.Array) -> pa.Array:
    doubled = pc.replace_substring(text, "'", "''")
    quote, nothing = pa.scalar("'", pa.large_string()), pa.scalar("", pa.large_string())
    return pc.binary_join_element_wise(quote, doubled, quote, nothing)

"""Reads what a contender wrote, whatever its format, and compares it with what is known of the data."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from benchmarks.measure import WrongResultError


def read_output(directory: Path, csv_columns: list[str]) -> pa.Table:
    """All rows below `directory`: Parquet files, or CSV files without a header in these columns.

    Names that start with `.` or `_` are not output.
    """
    files = [
        path
        for path in sorted(directory.rglob("*"))
        if path.is_file() and not any(part[0] in "._" for part in path.relative_to(directory).parts)
    ]
    parquet = [path for path in files if path.suffix == ".parquet"]
    if parquet:
        return pa.concat_tables([pq.ParquetFile(path).read() for path in parquet])
    read = pa_csv.ReadOptions(column_names=csv_columns)
    text = pa_csv.ConvertOptions(
        column_types={"word": pa.string(), "key": pa.string()}, strings_can_be_null=False
    )
    tables = [pa_csv.read_csv(path, read, convert_options=text) for path in files if path.stat().st_size]
    if not tables:
        raise WrongResultError(f"nothing was written to {directory}")
    return pa.concat_tables(tables)


def milliseconds(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A timestamp column as milliseconds since the epoch; numbers are taken to be that already."""
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.timestamp("ms", column.type.tz)).cast(pa.int64())
    return column.cast(pa.int64())


def expect_equal(got: pa.Table, expected: pa.Table, keys: list[str]) -> None:
    """Raise `WrongResultError` unless both hold the same rows, in any order."""
    if set(got.column_names) != set(expected.column_names):
        raise WrongResultError(f"columns {got.column_names} instead of {expected.column_names}")
    names = expected.column_names
    order = [(key, "ascending") for key in keys]
    wanted = expected.sort_by(order)
    found = got.select(names).cast(expected.schema).sort_by(order)
    if wanted.equals(found):
        return
    told = f"{found.num_rows:,} rows instead of {wanted.num_rows:,}"
    if found.num_rows == wanted.num_rows:
        differs = next(n for n in names if not found[n].equals(wanted[n]))
        at = pc.index(pc.equal(found[differs], wanted[differs]), False).as_py()
        told = f"{found.slice(at, 1).to_pylist()[0]} instead of {wanted.slice(at, 1).to_pylist()[0]}"
    raise WrongResultError(f"the output is not what the data says: {told}")

"""Delta tables as sources, without Spark: which rows come, whatever happens to the table meanwhile."""

from __future__ import annotations

import datetime as dt
import itertools
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from delta_reading import DeltaReading, ids
from hypothesis import given, settings
from hypothesis import strategies as st

from drivetrain.api import sources
from drivetrain.api.connectors.delta_source import DeltaRows
from drivetrain.connectors.delta.delta_reader import DeltaBatchReader, divided
from drivetrain.connectors.delta.opened_delta import OpenedDelta, require_table
from drivetrain.connectors.delta.table_log import TableFile
from drivetrain.errors import GraphError, InputError
from drivetrain.runtime.objects.settings import StoreSettings

TABLE = "table"


def write(directory: Path, *ids: int, **more: Any) -> None:
    rows = {"id": pa.array(ids, pa.int64()), **{name: [value] * len(ids) for name, value in more.items()}}
    deltalake.write_deltalake(str(directory / TABLE), pa.table(rows), mode="append", schema_mode="merge")


def table(directory: Path) -> deltalake.DeltaTable:
    return deltalake.DeltaTable(str(directory / TABLE))


def test_a_bounded_source_has_the_rows_of_the_first_start(tmp_path: Path) -> None:
    write(tmp_path, 1, 2)
    write(tmp_path, 3)
    reading = DeltaReading(tmp_path / TABLE, tmp_path)
    write(tmp_path, 4)
    assert ids(reading.batch()) == [1, 2, 3]
    assert reading.batch() == []
    again = DeltaReading(tmp_path / TABLE, tmp_path)
    assert ids(again.batch()) == [1, 2, 3]
    begun, log = again.plan.open()
    opened = OpenedDelta(None, begun, log)  # type: ignore[arg-type]
    assert opened.bounded
    assert not opened.position(None).finished
    done = opened.position(json.dumps(again.at))
    assert (done.finished, done.done) == (True, opened.total)
    whole = DeltaBatchReader(again.plan, again.schema)
    assert ids([r for p in whole.partitions() for b in whole.read(p) for r in b.to_pylist()]) == [1, 2, 3]


def test_a_watched_table_gives_what_is_appended_from_a_version_on(tmp_path: Path) -> None:
    for id in range(4):
        write(tmp_path, id)
    reading = DeltaReading(tmp_path / TABLE, tmp_path, from_version=2, watch=True)
    assert ids(reading.batch()) == [2, 3]
    assert reading.batch() == []
    write(tmp_path, 4)
    table(tmp_path).optimize.compact()
    write(tmp_path, 5, 6)
    assert ids(reading.batch()) == [4, 5, 6]
    assert ids(DeltaReading(tmp_path / TABLE, tmp_path, "bounded", from_version=3).batch()) == [3, 4, 5, 6]
    assert ids(DeltaReading(tmp_path / TABLE, tmp_path, "new", watch=True).batch()) == [0, 1, 2, 3, 4, 5, 6]


STEPS = st.lists(st.sampled_from(["append", "compact", "checkpoint", "read", "restart"]), max_size=14)


@settings(max_examples=25)
@given(STEPS, st.integers(1, 4000), st.booleans())
def test_every_appended_row_comes_once_and_again_where_a_batch_is_repeated(
    steps: list[str], limit_bytes: int, partitioned: bool
) -> None:
    with TemporaryDirectory() as place:
        directory = Path(place)
        columns = pa.schema([("id", pa.int64()), ("p", pa.string())])
        deltalake.DeltaTable.create(
            str(directory / TABLE), columns, partition_by=["p"] if partitioned else None
        )
        write(directory, 0, p="a")
        write(directory, 1, p="b c")
        reading = DeltaReading(directory / TABLE, directory, watch=True)
        written, seen, batches = 2, [], []
        for step in [*steps, *["read"] * (2 * len(steps) + 6)]:
            if step == "append":
                write(directory, written, p="x%2F/é")
                written += 1
            elif step == "compact":
                table(directory).optimize.compact()
            elif step == "checkpoint":
                table(directory).create_checkpoint()
            elif step == "read":
                start = reading.at
                rows = reading.batch(limit_bytes)
                seen += rows
                batches.append((start, reading.at, rows))
            else:
                at = reading.at
                reading = DeltaReading(directory / TABLE, directory, watch=True)
                reading.at = at
        assert ids(seen) == list(range(written))
        assert {row["p"] for row in seen} <= {"a", "b c", "x%2F/é"}
        for start, end, rows in batches:
            assert reading.rows(start, end) == rows


def test_a_version_that_removes_rows_is_an_error_or_left_out(tmp_path: Path) -> None:
    write(tmp_path, 1, 2)
    failing, skipping = (
        DeltaReading(tmp_path / TABLE, tmp_path, watch=True),
        DeltaReading(tmp_path / TABLE, tmp_path, "s", watch=True, on_change="skip"),
    )
    for reading in (failing, skipping):
        assert ids(reading.batch()) == [1, 2]
    table(tmp_path).delete("id = 1")
    table(tmp_path).update(updates={"id": "id + 10"})
    write(tmp_path, 3)
    with pytest.raises(Exception, match=r"version 1 of the table removes or replaces rows"):
        failing.batch()
    assert ids(skipping.batch()) == [3]


def test_columns_are_those_of_the_first_start(tmp_path: Path) -> None:
    write(tmp_path, 1)
    reading = DeltaReading(tmp_path / TABLE, tmp_path, watch=True)
    write(tmp_path, 2, note="new")
    assert reading.batch() == [{"id": 1}, {"id": 2}]
    later = DeltaReading(tmp_path / TABLE, tmp_path, "later", watch=True)
    assert sorted(map(str, later.batch())) == ["{'id': 1, 'note': None}", "{'id': 2, 'note': 'new'}"]
    columns = pa.table({"id": ["other"]})
    deltalake.write_deltalake(str(tmp_path / TABLE), columns, mode="overwrite", schema_mode="overwrite")
    with pytest.raises(Exception, match="changes columns that the source reads"):
        reading.batch()


def test_values_of_partitions_have_their_types(tmp_path: Path) -> None:
    rows = pa.table(
        {
            "id": pa.array([1, 2], pa.int64()),
            "day": pa.array([dt.date(2024, 2, 29), None]),
            "at": pa.array([dt.datetime(2024, 1, 1, 2, 3, 4, 5, dt.UTC)] * 2, pa.timestamp("us", "UTC")),
        }
    )
    deltalake.write_deltalake(str(tmp_path / TABLE), rows, partition_by=["day", "at"])
    found = sorted(DeltaReading(tmp_path / TABLE, tmp_path).batch(), key=lambda row: row["id"])
    assert found == rows.to_pylist()


def test_an_entry_of_the_log_that_was_deleted_is_an_error(tmp_path: Path) -> None:
    for id in range(4):
        write(tmp_path, id)
    reading = DeltaReading(tmp_path / TABLE, tmp_path, from_version=0, watch=True)
    table(tmp_path).create_checkpoint()
    (tmp_path / TABLE / "_delta_log" / f"{1:020d}.json").unlink()
    with pytest.raises(Exception, match="no entry of version 1 any more"):
        reading.batch()


def test_what_cannot_be_read_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no Delta table"):
        require_table(sources.delta(tmp_path / TABLE), StoreSettings())
    write(tmp_path, 1)
    with pytest.raises(InputError, match="the table has no version 7 yet"):
        require_table(sources.delta(tmp_path / TABLE, from_version=7), StoreSettings())
    for settings_ in ({"path": ""}, {"path": "ftp://b/t"}, {"from_version": -1}, {"on_change": "ignore"}):
        with pytest.raises(GraphError):
            sources.delta(**{"path": "t", **settings_})
    assert isinstance(sources.delta("t"), DeltaRows)


def test_a_file_that_was_vacuumed_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, 1)
    reading = DeltaReading(tmp_path / TABLE, tmp_path)
    for path in (tmp_path / TABLE).glob("*.parquet"):
        path.unlink()
    with pytest.raises(Exception, match="no longer has a file whose rows come next"):
        reading.batch()


def test_files_are_divided_evenly_and_completely() -> None:
    files = [TableFile("a", 10_000_000, {}), TableFile("b", 1, {}), TableFile("c", 6_000_000, {})]
    parts = divided(files, 4)
    assert len(parts) == 4
    pieces = [piece for part in parts for piece in part.pieces]
    for file in files:
        ranges = [(start, end) for one, start, end in pieces if one is file]
        assert ranges[0][0] == 0
        assert ranges[-1][1] == file.size_bytes
        assert all(a[1] == b[0] for a, b in itertools.pairwise(ranges))
    assert len(divided(files[1:2], 4)) == 1
    assert divided([], 4) == []

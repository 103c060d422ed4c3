"""Delta sinks without Spark: what only tables of Delta Lake have."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import deltalake
import polars as pl
import pyarrow as pa
import pytest
from arrow_frame import frame
from table_worlds import DeltaWorld

from drivetrain.connectors.delta.delta_table import DeltaTarget
from drivetrain.errors import DiskFullError, MissingDependencyError, OutputError


def opened(directory: Path, **how: Any) -> Any:
    return DeltaWorld(directory).open(**how)


def refused(directory: Path, match: str, **columns: Any) -> None:
    with pytest.raises(OutputError, match=match):
        opened(directory).write(frame(**columns), 1)


def shown(directory: Path) -> set[str]:
    return DeltaWorld(directory).shown()


def test_rules_of_a_table_are_observed_or_refused(tmp_path: Path) -> None:
    place = str(tmp_path / "table")
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])
    table = deltalake.DeltaTable.create(place, columns)
    assert opened(tmp_path).write(frame(id=pa.array([1], pa.int64())), 0) == 1
    refused(tmp_path, "accepts no null in the column id", id=pa.array([None], pa.int64()))
    refused(tmp_path, "requires a value for id", v=["x"])
    table.update_incremental()
    table.alter.add_constraint({"small": "id < 100"})
    with pytest.raises(OutputError, match="rules that this sink cannot observe") as caught:
        opened(tmp_path).validate()
    assert "delta.constraints.small" in str(caught.value)


def test_a_missing_library_and_a_full_disk_are_reported_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = DeltaTarget(str(tmp_path), "t").meant(
        OSError("write failed: No space left on device (os error 28)")
    )
    assert type(full) is DiskFullError
    other = DeltaTarget(str(tmp_path), "t").meant(ValueError("first line\n  0: <unknown>"))
    assert type(other) is OutputError
    assert other.got == "first line"
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'drivetrain\[delta\]'"):
        opened(tmp_path).validate()


def test_a_directory_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "table").mkdir()
    (tmp_path / "table" / "notes.txt").write_text("mine")
    with pytest.raises(OutputError, match="is not a Delta table"):
        opened(tmp_path).validate()


def test_each_partition_is_a_file_and_its_values_are_in_the_log(tmp_path: Path) -> None:
    sink = opened(tmp_path, partition_by=["p", "n"])
    values = frame(
        id=pa.array([1, 2, 3, 4, 5], pa.int64()),
        p=["b/c d=é", "a", None, "a", ""],
        n=pa.array([1, 2, None, 2, 1], pa.int32()),
    )
    assert sink.write(values, 0) == 5
    assert len(shown(tmp_path)) == 4
    found = pl.read_delta(str(tmp_path / "table")).sort("id")
    assert found.select("id", "p", "n").rows() == [
        (1, "b/c d=é", 1),
        (2, "a", 2),
        (3, None, None),
        (4, "a", 2),
        (5, None, 1),
    ]

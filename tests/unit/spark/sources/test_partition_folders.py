"""Columns from the names of directories: as our sinks, Hive and Spark write them."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from file_reading import with_bad_column
from pyspark.sql.types import StructType

from drivetrain.api import sources
from drivetrain.api.connectors.file_sources import FileSource
from drivetrain.connectors.files.file_log import FileSplit
from drivetrain.connectors.files.file_reader import read_splits
from drivetrain.connectors.partition_values import folder_of
from drivetrain.errors import InputError
from drivetrain.runtime.file_locations import list_files, locate
from drivetrain.spark.connector.source import BAD_COLUMN

NAMES: list[str | None] = ["FR", "é/ü=%", None]
ID = StructType().add("id", "integer")


def rows(source: FileSource, in_files: StructType, folders: StructType) -> list[dict[str, Any]]:
    """The rows of a bounded source, in the order of its files, as Spark's tasks read them."""
    filesystem, root = locate(source.path)
    splits = [
        FileSplit(file.path, 0, file.size_bytes, file.size_bytes, whole=False)
        for file in list_files(filesystem, root, source.glob)
    ]
    struct = StructType(in_files.fields + folders.fields)
    source = dataclasses.replace(source, schema=None) if hasattr(source, "schema") else source
    if source.on_bad_record == "dead_letter":
        struct = with_bad_column(struct)
    batches = read_splits(source, splits, struct, folders=folders.names)
    return [row for batch in batches for row in batch.to_pylist()]


def fill(directory: Path) -> Path:
    """A directory as our sink divides it, with the files that it keeps for itself."""
    root = directory / "in"
    for n, name in enumerate(NAMES):
        folder = root / folder_of({"country": name, "day": f"2024-05-0{n + 1}"})
        folder.mkdir(parents=True)
        (folder / f"part-{n}.json").write_text("".join(f'{{"id": {10 * n + i}}}\n' for i in range(2)))
    (root / "_drivetrain").mkdir()
    (root / "_drivetrain" / "owner.json").write_text(json.dumps({"application": "x"}))
    return root


def test_values_come_from_the_names_of_directories_with_the_declared_types(tmp_path: Path) -> None:
    folders = StructType().add("day", "date").add("country", "string")
    found = rows(sources.json(fill(tmp_path), schema="id int"), ID, folders)
    found.sort(key=lambda row: row["id"])
    assert [list(row) for row in found] == [["id", "day", "country"]] * 6
    assert [(row["id"], row["country"]) for row in found] == [
        (0, "FR"), (1, "FR"), (10, "é/ü=%"), (11, "é/ü=%"), (20, None), (21, None)
    ]  # fmt: skip
    assert {row["day"] for row in found} == {dt.date(2024, 5, day) for day in (1, 2, 3)}


@pytest.mark.parametrize("format", ["text", "csv", "parquet"])
def test_every_format_has_them(tmp_path: Path, format: str) -> None:
    for n in (1, 2):
        folder = tmp_path / "in" / "deep" / f"n={n}"
        folder.mkdir(parents=True)
        if format == "parquet":
            pq.write_table(pa.table({"value": [f"{n}"]}), folder / "f")
        else:
            (folder / "f").write_text(f"value\n{n}\n" if format == "csv" else f"{n}\n")
    how = {"csv": {"schema": "value string"}}.get(format, {})
    source = getattr(sources, format)(tmp_path / "in", **how)
    found = rows(source, StructType().add("value", "string"), StructType().add("n", "long"))
    assert found == [{"value": "1", "n": 1}, {"value": "2", "n": 2}]


def test_a_record_that_cannot_be_read_has_its_place_beside_them(tmp_path: Path) -> None:
    folder = tmp_path / "in" / "n=1"
    folder.mkdir(parents=True)
    (folder / "f").write_text('{"id": 1}\nbroken\n')
    source = sources.json(tmp_path / "in", schema="id int", on_bad_record="dead_letter")
    good, broken = rows(source, ID, StructType().add("n", "integer"))
    assert (good["id"], good["n"], good[BAD_COLUMN]) == (1, 1, None)
    assert broken[BAD_COLUMN]["raw"] == "broken"


def test_directories_that_do_not_fit_are_errors(tmp_path: Path) -> None:
    source = sources.json(fill(tmp_path), schema="id int")
    with pytest.raises(InputError, match="another type"):
        rows(source, ID, StructType().add("country", "integer"))
    with pytest.raises(InputError, match="in no directory month=…"):
        rows(source, ID, StructType().add("month", "integer"))

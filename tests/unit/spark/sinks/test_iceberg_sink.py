"""Iceberg sinks without Spark: what only tables of Iceberg have."""

from __future__ import annotations

import datetime as dt
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from arrow_frame import frame, rows
from table_worlds import IcebergWorld

from drivetrain.connectors.iceberg import iceberg_table, synced_files
from drivetrain.connectors.iceberg.iceberg_table import IcebergTarget
from drivetrain.connectors.tables.table_target import ConflictError
from drivetrain.crash_points import CrashPoint, armed
from drivetrain.errors import MissingDependencyError, OutputError, UnavailableError
from drivetrain.spark.connector.publishing import publish_transaction

UTC = dt.UTC


@pytest.fixture
def table(tmp_path: Path) -> IcebergWorld:
    return IcebergWorld(tmp_path)


def test_partitions_are_columns_or_units_of_time_and_readers_use_them(table: IcebergWorld) -> None:
    moments = [dt.datetime(1969, 12, 31, 23, tzinfo=UTC), None, dt.datetime(2024, 2, 29, 5, 7, tzinfo=UTC)]
    values = frame(
        id=pa.array([1, 2, 3], pa.int64()),
        p=["a b/é", "", None],
        at=pa.array(moments, pa.timestamp("us", "UTC")),
        day=pa.array([dt.date(1969, 12, 31), dt.date(2024, 2, 29), None], pa.date32()),
    )
    units = ["p", "hour(at)", "day(day)"]
    assert table.open(partition_by=units).write(values, 0) == 3
    again = table.open(partition_by=units)
    again.validate()
    assert again.write(values, 1) == 3
    assert [field.name for field in table.table().spec().fields] == ["p", "at_hour", "day_day"]
    assert table.read().sort("id")["p"].to_list() == ["a b/é", "a b/é", "", "", None, None]
    for filter, wanted in (
        ("at < '1970-01-01T00:00:00+00:00'", [1, 1]),
        ("p = ''", [2, 2]),
        ("day >= '2024-01-01'", [2, 2]),
        ("p is null", [3, 3]),
    ):
        scan = table.table().scan(row_filter=filter)
        assert scan.to_arrow()["id"].to_pylist() == wanted
        assert len(list(scan.plan_files())) == 2
    with pytest.raises(OutputError, match="other partitions"):
        table.open(partition_by="day(at)").write(values, 2)


@pytest.mark.parametrize(
    ("unit", "wanted"), [("year", [-1, 54]), ("month", [-1, 54 * 12 + 1]), ("day", [-1, 19782])]
)
def test_units_before_and_after_1970_are_those_of_the_library(
    table: IcebergWorld, unit: str, wanted: list[int]
) -> None:
    moments = [dt.datetime(1969, 12, 31, 23, 59, 59, 999999, UTC), dt.datetime(2024, 2, 29, tzinfo=UTC)]
    values = frame(id=pa.array([1, 2], pa.int64()), at=pa.array(moments, pa.timestamp("us", "UTC")))
    table.open(partition_by=f"{unit}(at)").write(values, 0)
    files = sorted((task.file for task in table.table().scan().plan_files()), key=lambda f: f.partition[0])
    assert [file.partition[0] for file in files] == wanted
    from pyiceberg.transforms import parse_transform
    from pyiceberg.types import TimestamptzType

    transform = parse_transform(unit).transform(TimestamptzType())
    assert [transform(int(at.timestamp() * 1_000_000)) for at in moments] == wanted


def test_columns_that_have_no_such_unit_are_refused(table: IcebergWorld) -> None:
    for kind in (pa.string(), pa.date32()):
        with pytest.raises(OutputError, match="the column at has no hour"):
            table.open(partition_by="hour(at)").write(frame(at=pa.array([None], kind)), 0)


def test_every_commit_of_a_sink_makes_a_snapshot_that_says_which_batches_it_has(table: IcebergWorld) -> None:
    sink = table.open(on_fresh="keep")
    sink.write(rows(1), 0)
    sink.prepare(rows(2), 1)
    sink.prepare(rows(3), 2)
    publish_transaction({"a": sink}, 1, {"a": 2})
    snapshots = table.table().snapshots()
    assert [one.summary["drivetrain/app-1/a/batch"] for one in snapshots] == ["0", "2"]
    sink.fresh()
    assert table.version() == 3
    assert table.table().properties["drivetrain/app-1/a/owner"] == "0"


def test_marks_outlive_the_snapshots(table: IcebergWorld) -> None:
    table.open().write(rows(1), 0)
    table.open("other", app="app-2").write(rows(9), 0)
    first = table.table().snapshots()[0]
    table.table().maintenance.expire_snapshots().by_id(first.snapshot_id).commit()
    assert table.version() == 1
    assert table.open().write(rows(1), 0) == 0
    assert table.open().write(rows(2), 1) == 1
    assert table.ids() == [1, 2, 9]


def test_an_answer_that_is_lost_is_looked_up(table: IcebergWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """The catalog has carried out the commit, and its client learns of an error."""
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.exceptions import CommitStateUnknownException

    sink = table.open()
    sink.write(rows(1), 0)
    commit = SqlCatalog.commit_table
    left = iter([True])

    def lost(*args: Any) -> Any:
        answer = commit(*args)
        if next(left, False):
            raise CommitStateUnknownException("the connection ended")
        return answer

    monkeypatch.setattr(SqlCatalog, "commit_table", lost)
    sink.write(rows(2), 1)
    assert sink.write(rows(3), 2) == 1
    assert table.ids() == [1, 2, 3]


def test_columns_that_a_replacing_row_lacks_keep_their_values(
    table: IcebergWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.create(pa.schema([("k", pa.int64()), ("v", pa.int64()), ("note", pa.list_(pa.string()))]))
    table.table().append(
        pa.table(
            {
                "k": pa.array([1, 2, 3], pa.int64()),
                "v": pa.array([1, 2, 3], pa.int64()),
                "note": [["a"], None, ["c"]],
            }
        )
    )
    table.table().append(pa.table({"k": pa.array([7], pa.int64()), "v": pa.array([7], pa.int64())}))
    before = table.shown()
    target = IcebergTarget(table.declared(), _stores())
    found, late = target.refreshed(), target.refreshed()
    given = pa.table({"v": pa.array([10, 30, 50], pa.int64()), "k": pa.array([1, 3, 5], pa.int64())})
    assert found is not None
    target.merge(found, given, ["k"], {"drivetrain/x": 1})
    wanted = [(1, 10, ["a"]), (2, 2, None), (3, 30, ["c"]), (5, 50, None), (7, 7, None)]
    assert table.read().sort("k").select("k", "v", "note").rows() == wanted
    assert len(before & table.shown()) == 1
    stale = len(table.data())
    with pytest.raises(ConflictError):
        target.merge(late, given, ["k"], {"drivetrain/x": 2})
    assert len(table.data()) == stale
    many = pa.table({"k": pa.array(range(1000), pa.int64()), "v": pa.array(range(1000), pa.int64())})
    newest = target.refreshed()
    assert newest is not None
    target.merge(newest, many, ["k"], {"drivetrain/x": 2})
    assert table.read().sort("k").select("k", "note").head(3).rows() == [(0, None), (1, ["a"]), (2, None)]
    assert table.read().height == 1000


def _stores() -> Any:
    from drivetrain.runtime.objects.settings import StoreSettings

    return StoreSettings()


def test_files_are_synced_before_the_catalog_names_them(
    table: IcebergWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyiceberg.catalog.sql import SqlCatalog

    table.open().write(rows(1), 0)
    synced: list[str] = []
    monkeypatch.setattr(synced_files, "sync", lambda path: synced.append(str(path)))
    before = {path for path in table.directory.rglob("*") if path.is_file()}
    names_file: list[bool] = []
    stage = SqlCatalog._write_metadata

    def written(*args: Any, **how: Any) -> None:
        stage(*args, **how)
        new = {path for path in (table.directory / "warehouse").rglob("*") if path.is_file()} - before
        names_file.append({str(p) for p in new if p.suffix != ".parquet"} <= set(synced) and len(new) >= 4)

    monkeypatch.setattr(SqlCatalog, "_write_metadata", staticmethod(written))
    table.open().write(rows(2), 1)
    assert names_file == [True]


def test_rules_of_a_table_are_observed_or_refused(table: IcebergWorld) -> None:
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])
    table.create(columns)
    sink = table.open()
    assert sink.write(frame(id=pa.array([1], pa.int64())), 0) == 1
    with pytest.raises(OutputError, match="accepts no null in the column id"):
        sink.write(frame(id=pa.array([None], pa.int64())), 1)
    with table.table().update_spec() as spec:
        from pyiceberg.transforms import BucketTransform

        spec.add_field("id", BucketTransform(4))
    with pytest.raises(OutputError, match="rules that this sink cannot observe") as caught:
        table.open().validate()
    assert "bucket[4] of id" in str(caught.value)


def test_a_missing_library_and_a_catalog_that_is_away_are_reported_as_such(
    table: IcebergWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Away(IcebergWorld):
        options = {"type": "rest", "uri": "http://127.0.0.1:9/"}  # noqa: RUF012 - a property elsewhere

    with pytest.raises(UnavailableError, match="the catalog does not answer"):
        Away(table.directory).open().validate()

    class Wrong(IcebergWorld):
        options = {"type": "rest"}  # noqa: RUF012

    with pytest.raises(OutputError, match="the table refuses"):
        Wrong(table.directory).open().validate()
    monkeypatch.setitem(sys.modules, "pyiceberg.catalog", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'drivetrain\[iceberg\]'"):
        table.open().validate()


def test_a_process_that_slept_is_refused_although_the_library_would_try_again(table: IcebergWorld) -> None:
    """With the library's own retries, the batch would be there twice."""
    sink, zombie = table.open(), table.open()
    sink.write(rows(1), 0)
    found = zombie._target.refreshed()
    assert "commit.retry.num-retries" not in found.properties

    def overtaken(point: CrashPoint) -> None:
        if point is CrashPoint.IN_TRANSACTION and not woken:
            woken.append(point)
            sink.write(rows(2), 1)

    woken: list[CrashPoint] = []
    with armed(overtaken):
        assert zombie.write(rows(2), 1) == 0
    assert table.ids() == [1, 2]
    assert iceberg_table._RETRIES not in table.table().properties

"""Compactions of tables beside their sinks, without Spark: no row is lost or repeated, and no sink ends."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from arrow_frame import frame, rows
from hypothesis import given
from hypothesis import strategies as st
from sink_worlds import Crash
from table_worlds import WORLDS, DeltaWorld, IcebergWorld, TableWorld

import drivetrain
from drivetrain import sinks
from drivetrain.connectors.delta import library_files
from drivetrain.connectors.iceberg import iceberg_compaction, synced_files
from drivetrain.connectors.iceberg.iceberg_table import IcebergTarget
from drivetrain.connectors.tables.compaction import Compaction, Sized, groups_of, total_bytes
from drivetrain.connectors.tables.table_target import ConflictError
from drivetrain.crash_points import CrashPoint, armed
from drivetrain.errors import InputError, OutputError, UnavailableError, UserError


@pytest.fixture(params=WORLDS)
def tables(request: pytest.FixtureRequest, tmp_path: Path) -> TableWorld:
    return WORLDS[request.param](tmp_path)


@pytest.fixture(autouse=True)
def _unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is synced, another test looks at; here it would only take time."""
    monkeypatch.setattr(synced_files, "sync", lambda path: None)


def compacted(tables: TableWorld, **how: Any) -> Compaction:
    return drivetrain.compact(tables.declared(**how))


def filled(tables: TableWorld, batches: int = 5, **how: Any) -> Any:
    """The sink of a table with a small file for each batch, which holds the row of that number."""
    sink = tables.open(**how)
    for batch in range(batches):
        sink.write(rows(batch), batch)
    return sink


# -- plans ---------------------------------------------------------------------------------------------


@given(
    sizes=st.lists(st.tuples(st.integers(1, 120), st.sampled_from("ab")), max_size=40),
    target=st.integers(1, 200),
)
def test_groups_have_neighbours_of_one_partition_up_to_the_size(
    sizes: list[tuple[int, str]], target: int
) -> None:
    files = [Sized(number, size, partition) for number, (size, partition) in enumerate(sizes)]
    groups = groups_of(files, target)
    chosen = [file.file for group in groups for file in group]
    assert len(chosen) == len(set(chosen))
    for group in groups:
        assert len(group) > 1
        assert len({file.partition for file in group}) == 1
        assert total_bytes(group) <= target
        assert all(file.size_bytes < 0.75 * target for file in group)
        assert [file.file for file in group] == sorted(file.file for file in group)


def test_a_dry_run_says_what_would_be_done_and_changes_nothing(tables: TableWorld) -> None:
    filled(tables)
    before, version = tables.data(), tables.version()
    plan = drivetrain.compact(tables.declared(), dry_run=True)
    assert (plan.files, plan.replaced_files, plan.written_files, plan.is_planned) == (5, 5, 1, True)
    assert (tables.data(), tables.version()) == (before, version)
    done = compacted(tables)
    assert (done.files, done.replaced_files, done.written_files, done.is_planned) == (5, 5, 1, False)
    assert done.replaced_bytes == plan.replaced_bytes == done.bytes
    again = compacted(tables)
    assert (again.files, again.bytes, again.replaced_files) == (1, done.written_bytes, 0)
    assert tables.version() == version + 1


def test_files_of_the_wanted_size_stay(tables: TableWorld) -> None:
    filled(tables)
    one = drivetrain.compact(tables.declared(), dry_run=True).bytes // 5
    done = drivetrain.compact(tables.declared(), target_size=f"{one * 5 // 2} B")
    assert (done.replaced_files, done.written_files) == (4, 2)
    assert drivetrain.compact(tables.declared(), target_size=f"{one} B").replaced_files == 0
    assert tables.ids() == [0, 1, 2, 3, 4]


# -- tables --------------------------------------------------------------------------------------------


def test_partitions_and_values_of_all_types_stay_as_they_are(tables: TableWorld) -> None:
    sink = tables.open(partition_by=["p"])
    instant = dt.datetime(2024, 2, 29, 23, 59, 59, 123456, dt.UTC)
    for batch in range(4):
        values = frame(
            id=pa.array([batch, batch + 10], pa.int32()),
            p=["a b/é", None],
            exact=pa.array([Decimal("12345678901234567890.123"), None], pa.decimal128(30, 3)),
            real=pa.array([float("nan"), 1.5], pa.float64()),
            at=pa.array([instant, None], pa.timestamp("us", "UTC")),
            day=pa.array([dt.date(1969, 12, 31), None], pa.date32()),
            data=pa.array([b"\x00\xff", None], pa.binary()),
            some=pa.array([[1, None], None], pa.list_(pa.int32())),
            record=pa.array(
                [{"a": 1.5, "b": "x"}, None], pa.struct([("a", pa.float64()), ("b", pa.string())])
            ),
        )
        sink.write(values, batch)
    before = tables.read().sort("id")
    done = compacted(tables)
    assert (done.replaced_files, done.written_files) == (8, 2)
    after = tables.read().sort("id")
    assert after.schema == before.schema
    assert after.equals(before)
    assert len(tables.shown()) == 2


def test_columns_that_came_later_are_null_in_joined_rows(tables: TableWorld) -> None:
    tables.open().write(rows(1), 0)
    sink = tables.open(evolve=True)
    sink.write(frame(id=pa.array([2], pa.int64()), v=["x"]), 1)
    assert compacted(tables).written_files == 1
    assert tables.read().sort("id").rows() == [(1, None), (2, "x")]
    sink.write(frame(id=pa.array([3], pa.int64()), v=["y"]), 2)
    assert tables.ids() == [1, 2, 3]


def test_marks_outlive_compactions(tables: TableWorld) -> None:
    filled(tables, 3)
    compacted(tables)
    again = tables.open()
    again.validate()
    assert again.write(rows(2), 2) == 0
    assert again.write(rows(3), 3) == 1
    compacted(tables)
    assert tables.ids() == [0, 1, 2, 3]
    with pytest.raises(OutputError, match="another state directory"):
        tables.open(state="other").validate()


# -- beside sinks --------------------------------------------------------------------------------------


@pytest.mark.usefixtures("_staged")
@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_a_sink_that_a_compaction_overtakes_commits_its_batch_once(tables: TableWorld, mode: str) -> None:
    how: dict[str, Any] = {"mode": "upsert", "key": "id"} if mode == "upsert" else {}
    sink = filled(tables, **how)
    done: list[Compaction] = []

    def overtaking(point: CrashPoint) -> None:
        if point is CrashPoint.IN_TRANSACTION and not done:
            done.append(Compaction("begun", 0, 0))
            done.append(compacted(tables))

    with armed(overtaking):
        assert sink.write(rows(4, 5) if mode == "upsert" else rows(5), 5) == (2 if mode == "upsert" else 1)
    assert done[1].replaced_files == 5
    assert tables.ids() == [0, 1, 2, 3, 4, 5]
    assert tables.open(**how).write(rows(5), 5) == 0


def test_a_process_that_slept_through_a_compaction_is_refused(tables: TableWorld) -> None:
    sink, zombie = filled(tables), tables.open()
    woken: list[CrashPoint] = []

    def overtaken(point: CrashPoint) -> None:
        if point is CrashPoint.IN_TRANSACTION and not woken:
            woken.append(point)
            sink.write(rows(5), 5)
            compacted(tables)

    with armed(overtaken):
        assert zombie.write(rows(5), 5) == 0
    assert tables.ids() == [0, 1, 2, 3, 4, 5]


@pytest.mark.usefixtures("_staged")
def test_rows_that_were_replaced_meanwhile_do_not_come_back(
    tables: TableWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first try of the compaction is overtaken by a sink, which replaces rows of one partition."""
    sink = tables.open(mode="upsert", key="id", partition_by="p")

    def write(batch: int, id: int, text: str) -> None:
        sink.write(
            frame(id=pa.array([id], pa.int64()), p=["even", "odd"][id % 2 : id % 2 + 1], v=[text]), batch
        )

    for batch in range(6):
        write(batch, batch, "first")
    left = iter([6])
    name = "compact" if isinstance(tables, DeltaWorld) else "replace"
    before = getattr(tables.target, name)

    def overtaken(*given: Any) -> Any:
        batch = next(left, None)
        if batch is not None:
            write(batch, 4, "second")
        return before(*given)

    monkeypatch.setattr(tables.target, name, overtaken)
    done = compacted(tables)
    wanted = [(id, "second" if id == 4 else "first") for id in range(6)]
    assert tables.read().sort("id").select("id", "v").rows() == wanted
    assert next(left, None) is None
    if isinstance(tables, IcebergWorld):
        assert (done.replaced_files, done.overtaken_files) == (3, 3)
        assert len([file for file in tables.data() if file.startswith("compacted-")]) == 1
    else:
        assert (done.replaced_files, done.written_files) == (6, 2)


def test_a_compaction_that_is_always_overtaken_ends_and_leaves_nothing(
    tables: TableWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tables)

    def overtaken(*given: Any) -> Any:
        raise ConflictError("another commit came first")

    monkeypatch.setattr(tables.target, "compact", overtaken, raising=False)
    monkeypatch.setattr(tables.target, "replace", overtaken, raising=False)
    before = tables.data()
    with pytest.raises(UnavailableError, match="the compaction could not be committed"):
        compacted(tables, timeout="50 ms")
    assert tables.data() == before


def test_whoever_dies_leaves_a_table_that_reads_the_same(
    tables: TableWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tables)

    def dying(*given: Any) -> Any:
        raise Crash

    with monkeypatch.context() as patched:
        patched.setattr(tables.target, "compact", dying, raising=False)
        patched.setattr(tables.target, "replace", dying, raising=False)
        with pytest.raises(Crash):
            compacted(tables)
    assert tables.ids() == [0, 1, 2, 3, 4]

    def dies_after(point: CrashPoint) -> None:
        if point is CrashPoint.AFTER_TRANSACTION:
            raise Crash

    with armed(dies_after), pytest.raises(Crash):
        compacted(tables)
    assert len(tables.shown()) == 1
    assert tables.ids() == [0, 1, 2, 3, 4]


# -- what only one of the formats has ------------------------------------------------------------------


def test_files_of_a_delta_table_are_synced_and_have_no_inexact_statistics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = DeltaWorld(tmp_path)
    sink = tables.open(partition_by="p")
    for batch in range(2):
        values = frame(
            id=pa.array([batch], pa.int64()),
            p=["a b/é"],
            exact=pa.array([Decimal("12345678901234567890.123")], pa.decimal128(30, 3)),
            real=pa.array([float("nan")], pa.float64()),
        )
        sink.write(values, batch)
    synced: set[str] = set()
    monkeypatch.setattr(library_files, "sync", lambda path: synced.add(Path(path).name))
    compacted(tables)
    assert tables.shown() <= synced
    log = Path(tables.place) / "_delta_log" / f"{tables.version():020d}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    added = [action["add"] for action in actions if "add" in action]
    removed = [action["remove"] for action in actions if "remove" in action]
    assert [one["dataChange"] for one in (*added, *removed)] == [False] * 3
    statistics = json.loads(added[0]["stats"])
    assert statistics["minValues"] == {"id": 0}
    assert statistics["maxValues"] == {"id": 1}
    assert statistics["numRecords"] == 2


def test_a_delta_table_with_unknown_features_is_refused(tmp_path: Path) -> None:
    import deltalake

    tables = DeltaWorld(tmp_path)
    deltalake.DeltaTable.create(tables.place, pa.schema([("id", pa.int64())]))
    log = Path(tables.place) / "_delta_log" / f"{1:020d}.json"
    features = ["deletionVectors", "rowTracking", "domainMetadata"]
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features[:1]}
    log.write_text(json.dumps({"protocol": {**protocol, "writerFeatures": features}}))
    with pytest.raises(OutputError, match="features with which it is not compacted") as caught:
        compacted(tables)
    assert caught.value.got == "domainMetadata, rowTracking"
    assert "delta-spark" in str(caught.value)


def test_a_lost_answer_of_the_catalog_is_looked_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = IcebergWorld(tmp_path)
    filled(tables)
    replace = IcebergTarget.replace

    def lost(*given: Any) -> None:
        replace(*given)
        raise ConflictError("the connection ended", is_certain=False)

    monkeypatch.setattr(IcebergTarget, "replace", lost)
    assert compacted(tables).replaced_files == 5
    assert tables.version() == 6
    assert tables.ids() == [0, 1, 2, 3, 4]


def test_files_of_earlier_partitions_and_with_removed_rows_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyiceberg.transforms import IdentityTransform

    tables = IcebergWorld(tmp_path)
    filled(tables, 3)
    with tables.table().update_spec() as spec:
        spec.add_field("id", IdentityTransform())
    sink = tables.open()
    for batch in range(3, 6):
        sink.write(rows(7), batch)
    done = compacted(tables)
    assert (done.files, done.replaced_files, done.written_files) == (6, 3, 1)
    assert tables.ids() == [0, 1, 2, 7, 7, 7]
    sink.write(rows(7), 6)
    monkeypatch.setattr(iceberg_compaction, "_is_whole", lambda task: False)
    assert compacted(tables).replaced_files == 0


# -- errors --------------------------------------------------------------------------------------------


def test_what_is_no_table_is_reported_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no Delta table") as caught:
        drivetrain.compact(sinks.delta(tmp_path / "nowhere"))
    assert caught.value.got == "no directory"
    (tmp_path / "part-0.parquet").write_bytes(b"")
    with pytest.raises(InputError, match="Parquet files without a table's log") as caught:
        drivetrain.compact(sinks.delta(tmp_path))
    assert "roll=" in str(caught.value)
    lake = IcebergWorld(tmp_path / "lake")
    lake.directory.mkdir()
    lake.open().write(rows(1), 0)
    place = str(lake.table().location()).removeprefix("file://")
    with pytest.raises(InputError, match="a directory of an Iceberg table") as caught:
        drivetrain.compact(sinks.delta(place))
    assert "--catalog" in str(caught.value)
    with pytest.raises(InputError, match="no such table in the catalog"):
        drivetrain.compact(sinks.iceberg("shop.other", catalog="lake", options=lake.options))


def test_sinks_without_tables_and_wrong_sizes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="writes to no table") as caught:
        drivetrain.compact(sinks.parquet(tmp_path))  # type: ignore[arg-type]
    assert "roll=" in str(caught.value)
    with pytest.raises(UserError, match="not a size for files"):
        drivetrain.compact(sinks.delta(tmp_path), target_size="128")

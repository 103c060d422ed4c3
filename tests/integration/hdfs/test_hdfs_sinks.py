"""Sinks and copies of checkpoints in a real HDFS, batch by batch, without Spark."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import drivetrain
from drivetrain.api import sinks, sources
from drivetrain.config import Config
from drivetrain.connectors.files.file_checks import validate_source
from drivetrain.connectors.opening import open_sink
from drivetrain.core.checkpoint.transaction import CheckpointRecord
from drivetrain.core.replay.replay import Life
from drivetrain.crash_points import CrashPoint, armed
from drivetrain.errors import InputError
from drivetrain.runtime.checkpoints.checkpoint_copy import TakenOverError
from drivetrain.runtime.checkpoints.copied_checkpoints import CopiedCheckpoints
from drivetrain.runtime.checkpoints.savepoint_manifest import FORMAT, Manifest
from drivetrain.runtime.file_locations import list_files, locate
from drivetrain.spark.connector.publishing import publish_transaction
from drivetrain.spark.connector.sink import SinkContext
from drivetrain.spark.measure import small_batches
from hdfs_server import HdfsServer

sys.path.insert(0, str(Path(__file__).parents[2] / "unit" / "spark" / "sinks"))
from arrow_frame import ArrowFrame, frame, rows


class Place:
    """A directory in HDFS; `open` gives the sink that a process would open."""

    def __init__(self, hdfs: HdfsServer, name: str, directory: Path) -> None:
        self.uri = f"{hdfs.uri}/{name}"
        self.config = Config.load(None, {}, hdfs.sets())
        self.settings = hdfs.settings()
        self._directory = directory

    def open(self, declared: Any, *, app: str = "app-1") -> Any:
        return open_sink(declared, SinkContext(app, "a", str(self._directory / app), self.config))

    def ids(self) -> list[int]:
        files, root = locate(self.uri, self.settings)
        found = [pq.read_table(files.open_input_file(one.path)) for one in list_files(files, root, None)]
        return sorted(id for table in found for id in table["id"].to_pylist())


def table_ids(uri: str) -> list[int]:
    return sorted(deltalake.DeltaTable(uri).to_pyarrow_table()["id"].to_pylist())


@pytest.fixture
def place(
    hdfs: HdfsServer, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Place:
    monkeypatch.setattr(small_batches, "small_table", ArrowFrame.toArrow)
    return Place(hdfs, f"s{abs(hash(request.node.name)):x}", tmp_path)


@pytest.mark.nightly("the unit tests of sinks run the same; other tests of this module write to HDFS")
@pytest.mark.parametrize("how", [{}, {"roll": "1 h"}], ids=["each", "rolled"])
def test_a_batch_of_files_is_there_once_whoever_writes_it_again(place: Place, how: dict[str, Any]) -> None:
    declared = sinks.parquet(place.uri, **how)
    for batch in range(4):
        for _ in range(2):
            sink = place.open(declared)
            sink.validate()
            sink.write(rows(batch), batch)
    place.open(declared).roll(ends=True)
    assert place.ids() == [0, 1, 2, 3]
    place.open(declared).fresh()
    assert place.ids() == []
    place.open(declared, app="app-2").validate()


@pytest.mark.nightly("test_hdfs_store by day; the unit tests of sinks run the same")
def test_what_is_prepared_is_shown_by_another_process_once(place: Place) -> None:
    declared = sinks.parquet(place.uri)
    sink = place.open(declared)
    for batch in range(3):
        sink.prepare(rows(batch), batch)
    assert place.ids() == []
    other = place.open(declared)
    assert other.prepared() == [0, 1, 2]
    other.abort(2)
    for count in (2, 0):
        assert publish_transaction({"a": place.open(declared)}, 1, {"a": 1}) == {"a": count}
    assert place.ids() == [0, 1]


@pytest.mark.nightly("test_hdfs_store by day; the unit tests of sinks run the same")
def test_partitions_are_directories_and_are_finished_by_the_next_process(place: Place) -> None:
    declared = sinks.parquet(place.uri, partition_by="p")
    batch = frame(id=pa.array([1, 2, 3], pa.int64()), p=["x", "y/z", "x"])
    assert place.open(declared).write(batch, 0) == 3
    assert place.open(declared).write(batch, 0) == 0
    assert place.ids() == [1, 2, 3]
    files, root = locate(place.uri, place.settings)
    names = {one.path.removeprefix(f"{root}/").partition("/")[0] for one in list_files(files, root, None)}
    assert names == {"p=x", "p=y%2Fz"}


@pytest.mark.nightly("the unit tests of sinks run the same; other tests of this module write to HDFS")
def test_a_delta_table_refuses_a_process_that_slept_and_is_compacted(place: Place) -> None:
    declared = sinks.delta(place.uri)
    sink, zombie = place.open(declared), place.open(declared)
    sink.validate()
    sink.write(rows(1), 0)
    zombie.prepare(rows(2), 1)

    def overtaken(point: CrashPoint) -> None:
        if point is CrashPoint.IN_TRANSACTION and not woken:
            woken.append(point)
            assert sink.write(rows(2), 1) == 1

    woken: list[CrashPoint] = []
    with armed(overtaken):
        assert publish_transaction({"a": zombie}, 1, {"a": 1}) == {"a": 0}
    assert woken
    again = place.open(declared)
    again.validate()
    assert (again.write(rows(2), 1), again.write(rows(3), 2)) == (0, 1)
    assert table_ids(place.uri) == [1, 2, 3]
    assert drivetrain.compact(declared, config=place.config).replaced_files == 3
    assert table_ids(place.uri) == [1, 2, 3]


@pytest.mark.nightly("the unit tests of sinks run the same; other tests of this module write to HDFS")
def test_two_applications_append_to_one_delta_table(place: Place) -> None:
    errors: list[Exception] = []

    def write(app: str, first: int) -> None:
        try:
            sink = place.open(sinks.delta(place.uri), app=app)
            for batch in range(5):
                sink.write(rows(first + batch), batch)
        except Exception as error:  # noqa: BLE001 - the test looks at it
            errors.append(error)

    threads = [threading.Thread(target=write, args=one) for one in (("one", 0), ("two", 100))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert errors == []
    assert table_ids(place.uri) == [*range(5), *range(100, 105)]


@pytest.mark.nightly("test_hdfs_store by day; the unit tests of sinks run the same")
def test_a_source_is_checked_before_anything_runs(place: Place) -> None:
    with pytest.raises(InputError):
        validate_source(sources.csv(place.uri, schema="id bigint"), place.settings)
    files, root = locate(place.uri, place.settings)
    with files.open_output_stream(f"{root}/one.csv") as out:
        out.write(b"id\n1\n")
    validate_source(sources.csv(place.uri, schema="id bigint"), place.settings)


@pytest.mark.nightly("the same on S3, in test_lost_machine")
def test_copied_checkpoints_belong_to_one_process_at_a_time(
    hdfs: HdfsServer, place: Place, tmp_path: Path
) -> None:
    folder = place.uri.removeprefix(f"{hdfs.uri}/")

    def copies(name: str) -> CopiedCheckpoints:
        (tmp_path / name).mkdir(exist_ok=True)
        return CopiedCheckpoints(hdfs.store(), folder, place.uri, tmp_path / name)

    def checkpoint(made: CopiedCheckpoints, text: str) -> int:
        (tmp_path / "state").write_text(text)
        record = CheckpointRecord(1, 1, {})
        return made.add(
            [("state", tmp_path / "state")],
            lambda files: Manifest(
                FORMAT, "shop", "shop-1", {}, {}, 0, {}, Life(), record, None, {}, dict(files)
            ),
        )

    former, next_one = copies("former"), copies("next")
    assert former.begin() is None
    former.claim(starts_over=False)
    for text in ("one", "two", "three", "four"):
        assert checkpoint(former, text) == len(text)
    newest = next_one.begin()
    assert newest is not None
    fetched = tmp_path / "fetched"
    fetched.mkdir()
    next_one.fetch(newest, fetched)
    assert (fetched / "state").read_text() == "four"
    assert next_one.claim(starts_over=False)
    with pytest.raises(TakenOverError, match="another process has continued"):
        checkpoint(former, "five")
    with pytest.raises(TakenOverError):
        former.require_newest()
    assert checkpoint(next_one, "six") == 3
    names = [one.path for page in hdfs.store().pages(f"{folder}/checkpoints") for one in page]
    assert len(names) == 2

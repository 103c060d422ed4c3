"""A Delta table in a real object store as a source: each row once, what it costs, and what goes wrong."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import polars as pl
import pyarrow as pa
import pytest
from killed_runs import run_killed_at

from drivetrain import run, start
from drivetrain.api import sources
from drivetrain.code.application_file import load_application
from drivetrain.config import Config
from drivetrain.connectors.delta.opened_delta import require_table
from drivetrain.core.job.run_progress import RunOutcome
from drivetrain.crash_points import CrashPoint
from drivetrain.errors import InputError, UnavailableError
from drivetrain.runtime.objects.obstore_store import NoBucketError, StoreAccessError
from object_store import ACCESS_KEY, SECRET_KEY, S3Server
from store_faults import Fault, FaultyStore

if TYPE_CHECKING:
    pass

sys.path.insert(0, str(Path(__file__).parents[2] / "unit" / "spark" / "sources"))
from delta_reading import DeltaReading, ids


class StoredTable:
    """A table in a bucket, which another program writes."""

    def __init__(self, s3: S3Server, name: str) -> None:
        self.folder = s3.bucket(name)
        self.place = f"s3://{name}/deep/table"
        self.options = {
            "aws_endpoint": s3.endpoint,
            "aws_access_key_id": ACCESS_KEY,
            "aws_secret_access_key": SECRET_KEY,
            "aws_region": "us-east-1",
            "aws_allow_http": "true",
            "aws_conditional_put": "etag",
        }

    def write(self, *ids: int, **how: Any) -> None:
        columns = {"id": pa.array(ids, pa.int64()), "p": [f"x%2F/é {id % 2}" for id in ids]}
        options = {"mode": "append", "partition_by": ["p"], "storage_options": self.options}
        deltalake.write_deltalake(self.place, pa.table(columns), **options, **how)

    def opened(self) -> deltalake.DeltaTable:
        return deltalake.DeltaTable(self.place, storage_options=self.options)


@pytest.fixture
def table(s3: S3Server, request: pytest.FixtureRequest) -> StoredTable:
    return StoredTable(s3, f"d{abs(hash(request.node.name)):x}"[:40])


@pytest.mark.nightly("test_delta_reader; below an application follows a table")
def test_every_row_comes_once_and_again_where_a_batch_is_repeated(
    table: StoredTable, s3: S3Server, tmp_path: Path
) -> None:
    def reading() -> DeltaReading:
        return DeltaReading(table.place, tmp_path, stores=s3.settings(), watch=True)

    table.write(0, 1)
    table.write(2)
    read, batches = reading(), []
    for step in range(3, 9):
        for _ in range(3):
            began = read.at
            batches.append((began, (rows := read.batch(limit_bytes=1)), read.at))
            assert all(row["p"] == f"x%2F/é {row['id'] % 2}" for row in rows)
        table.write(step)
        if step == 5:
            table.opened().optimize.compact()
            table.opened().create_checkpoint()
            at, read = read.at, reading()
            read.at = at
    batches.append((read.at, read.batch(), read.at))
    assert ids([row for _, rows, _ in batches for row in rows]) == list(range(9))
    again = reading()
    for began, rows, end in batches[:-1]:
        assert again.rows(began, end) == rows
    bounded = DeltaReading(table.place, tmp_path, "b", stores=s3.settings(), from_version=2)
    table.write(9)
    assert (ids(bounded.batch()), bounded.batch()) == ([3, 4, 5, 6, 7, 8], [])


def test_a_look_for_new_versions_costs_two_requests_a_second(
    table: StoredTable, s3: S3Server, tmp_path: Path
) -> None:
    for id in range(3):
        table.write(id)
    table.opened().create_checkpoint()
    with FaultyStore(s3.endpoint) as proxy:
        settings = s3.settings(endpoint=proxy.endpoint)
        read = DeltaReading(table.place, tmp_path, stores=settings, watch=True)
        assert ids(read.batch()) == [0, 1, 2]
        proxy.requests.clear()
        assert read.batch() == []
        assert dict(proxy.requests) == {"GET": 2}
        for _ in range(20):
            read.reader.latestOffset(read.at, read.reader.getDefaultReadLimit())
        assert proxy.requests["GET"] <= 4  # a second may have passed once
        proxy.plan = lambda *_: Fault.BUSY if sum(proxy.requests.values()) % 2 else Fault.NONE
        table.write(3)
        assert ids(read.batch()) == [3]
        assert proxy.faults[Fault.BUSY] > 0


def test_what_is_not_there_or_not_allowed_is_an_error_with_a_remedy(
    table: StoredTable, s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = s3.settings(retry_ms=100)
    with pytest.raises(NoBucketError, match="no such bucket"):
        require_table(sources.delta("s3://nowhere/t"), settings)
    with pytest.raises(InputError, match="there is no Delta table"):
        require_table(sources.delta(table.place), settings)
    table.write(1)
    gone = s3.settings(endpoint="http://127.0.0.1:9", retry_ms=100)
    with pytest.raises(UnavailableError, match=r"run the same command again"):
        require_table(sources.delta(table.place), gone)
    read = DeltaReading(table.place, tmp_path, stores=settings, watch=True)
    assert ids(read.batch()) == [1]
    monkeypatch.setenv("TESTS_S3_SECRET", "expired")
    with pytest.raises(StoreAccessError, match="renew the credentials"):
        require_table(sources.delta(table.place), settings)
    with pytest.raises(Exception, match="renew the credentials"):
        read.batch()
    with pytest.raises(Exception, match="renew the credentials"):
        read.rows(read.reader.initialOffset(), read.at)
    monkeypatch.setenv("TESTS_S3_SECRET", SECRET_KEY)
    assert ids(read.rows(read.reader.initialOffset(), read.at)) == [1]


def test_a_version_or_a_file_that_the_table_has_deleted_is_an_error(
    table: StoredTable, s3: S3Server, tmp_path: Path
) -> None:
    for id in range(3):
        table.write(id)
    settings = s3.settings()
    read = DeltaReading(table.place, tmp_path, stores=settings, from_version=0, watch=True)
    assert ids(read.batch(limit_bytes=1)) == [0]
    table.opened().optimize.compact()
    table.opened().vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    with pytest.raises(Exception, match="no longer has a file whose rows come next"):
        read.batch()
    table.opened().create_checkpoint()
    (table.folder / "deep" / "table" / "_delta_log" / f"{1:020d}.json").unlink()
    later = DeltaReading(table.place, tmp_path, stores=settings, from_version=0, watch=True)
    with pytest.raises(Exception, match="no entry of version 1 any more"):
        later.batch()
    with pytest.raises(InputError, match="no entry of version 1 any more"):
        DeltaReading(table.place, tmp_path, "new", stores=settings, from_version=1)


PROGRAM = """
from drivetrain import Application, sinks, sources
app = Application("lake")
rows = app.read(sources.delta("{place}", watch={watch}))
rows.filter("id >= 0").sink(sinks.delta("{place}-copy"))
"""


def config_of(s3: S3Server, directory: Path) -> Config:
    sets = s3.sets() | {"spark.master": "local[2]", "state.dir": str(directory / "state")}
    return Config.load(None, {}, sets | {"run.max-batch-bytes": "1 KiB", "run.min-batch-bytes": "1 KiB"})


def copied(table: StoredTable) -> list[int]:
    try:
        found = pl.read_delta(f"{table.place}-copy", storage_options=table.options)
    except deltalake.exceptions.TableNotFoundError:
        return []
    return sorted(found["id"].to_list())


@pytest.mark.usefixtures("spark")
def test_an_application_follows_a_table_stops_and_continues(
    table: StoredTable, s3: S3Server, tmp_path: Path
) -> None:
    table.write(0, 1, 2)
    program = tmp_path / "lake.py"
    program.write_text(PROGRAM.format(place=table.place, watch=True))
    rows = [0, 1, 2]
    for round in range(2):
        with start(load_application(str(program), {}), config_of(s3, tmp_path)) as running:
            for id in (10 * round + 10, 10 * round + 11):
                table.write(id)
                rows.append(id)
                while copied(table) != rows:
                    assert running.is_running
                    time.sleep(0.05)
            running.stop()
        assert running.wait().outcome is RunOutcome.STOPPED
        table.write(10 * round + 12)  # while nothing runs
        rows.append(10 * round + 12)


@pytest.mark.nightly("test_every_row_comes_once_and_again, and test_table_application on a disk")
@pytest.mark.usefixtures("spark")
def test_killed_and_run_again_the_copy_has_every_row_once(
    table: StoredTable, s3: S3Server, tmp_path: Path
) -> None:
    for id in range(8):
        table.write(*range(100 * id, 100 * id + 100))
    program = tmp_path / "lake.py"
    program.write_text(PROGRAM.format(place=table.place, watch=False))
    toml = "".join(f"{key.removeprefix('s3.')} = {json.dumps(value)}\n" for key, value in s3.sets().items())
    batches = '[run]\nmax-batch-bytes = "1 KiB"\nmin-batch-bytes = "1 KiB"\n'
    (tmp_path / "drivetrain.toml").write_text(f"[s3]\n{toml}{batches}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DRIVETRAIN_CONFIG", str(tmp_path / "drivetrain.toml"))
        with run_killed_at(program, tmp_path, CrashPoint.AFTER_TRANSACTION, times=3):
            pass
    table.opened().optimize.compact()
    assert run(load_application(str(program), {}), config_of(s3, tmp_path)).batches > 1
    assert copied(table) == list(range(800))

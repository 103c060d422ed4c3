"""Tables that are read again while the application runs."""

from __future__ import annotations

import csv
import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from harness import Harness, at

from drivetrain import Application, Stream, agg, sinks, sources, windows
from drivetrain.errors import GraphError

BATCHES, ROWS = 5, 40


def messages(app: Application, drive: Harness) -> Stream[Any]:
    """A file in each batch."""
    directory = drive.directory / "in"
    directory.mkdir()
    for batch in range(BATCHES):
        times = [at((batch * ROWS + i) * 1000) for i in range(ROWS)]
        columns = {"ts": pa.array(times, pa.timestamp("us", "UTC")), "key": ["k"] * ROWS}
        pq.write_table(pa.table(columns), directory / f"{batch}.parquet")
    return app.read(sources.parquet(directory, event_time="ts"), name="messages")


def write(path: Path, version: int) -> None:
    with open(path, "w") as file:
        csv.writer(file).writerows([["key", "version"], ["k", version]])


@pytest.mark.nightly("test_guarantee_loss reaches what it reaches")
def test_each_batch_sees_the_rows_that_are_the_newest_when_it_begins(drive: Harness) -> None:
    path, seen = drive.directory / "versions.csv", {}
    write(path, 0)

    def next_version(table: pa.Table, batch: int) -> None:
        if table.num_rows:
            seen[batch] = set(table["version"].to_pylist())
            write(path, batch + 1)

    app = Application("refreshed")
    versions = sources.csv(path, schema="key string, version bigint")
    joined = messages(app, drive).join(app.table(versions, refresh="1 ms", name="versions"), on="key")
    joined.sink(sinks.batches(next_version))
    counts = joined.group_by("version").window(windows.tumbling("1 d")).aggregate(n=agg.count())
    drive.sink(counts)
    drive.run(app, run__max_batch_bytes="1 KiB")
    assert len(seen) == BATCHES
    begun = sorted(seen)
    assert [seen[batch] for batch in begun] == [{0}, *({batch + 1} for batch in begun[:-1])]
    assert {r["version"]: r["n"] for r in drive.rows()} == {v: ROWS for seen in seen.values() for v in seen}


@pytest.mark.nightly("the unit tests of refreshed tables")
def test_rows_stay_while_a_table_cannot_be_read_again(
    drive: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    reads = []

    def rows() -> list[tuple[str, int]]:
        reads.append(1)
        if len(reads) in (2, 3):
            raise LookupError("the database is away")  # no error that we know
        return [("k", len(reads))]

    app = Application("away")
    table = app.table(sources.items(rows, schema="key string, n bigint"), refresh="1 ms", name="numbers")
    drive.sink(messages(app, drive).join(table, on="key"))
    with caplog.at_level(logging.WARNING, logger="drivetrain"):
        drive.run(app, run__max_batch_bytes="1 KiB")
    numbers = {row["n"] for row in drive.rows()}
    assert 1 in numbers
    assert max(numbers) > 3
    assert not numbers & {2, 3}
    warnings = [r.getMessage() for r in caplog.records if "numbers cannot be read again" in r.getMessage()]
    assert len(warnings) == 2
    assert all("the database is away" in warning for warning in warnings)


def test_the_first_read_must_succeed(drive: Harness) -> None:
    def rows() -> list[tuple[str, int]]:
        raise OSError("the database is away")

    app = Application("never")
    table = app.table(sources.items(rows, schema="key string, n bigint"), refresh="1 h")
    drive.sink(messages(app, drive).join(table, on="key"))
    with pytest.raises(OSError, match="the database is away"):
        drive.run(app)


def test_refresh_is_a_time() -> None:
    with pytest.raises(GraphError, match="refresh= needs a length"):
        Application("app").table(sources.items([], schema="n bigint"), refresh="0 s")

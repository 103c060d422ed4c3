"""A query that has ended does not stay in memory: a process may run many applications, as notebooks do."""

from __future__ import annotations

import gc
import logging
import time
import weakref
from typing import Any

import pytest
from harness import Harness

from drivetrain import Application, sources
from drivetrain.errors import DrivetrainError
from drivetrain.spark.batch.micro_batch_query import MicroBatchQuery
from nightly_run import some_by_day

RUNS = 3
PATIENCE_S = 20.0


def refused(n: int) -> int:
    raise ValueError(f"{n} is refused")


@pytest.mark.parametrize("ending", some_by_day(["finished", "failed"], ["failed"], "one that failed, by day"))
def test_queries_that_have_ended_are_forgotten(
    drive: Harness, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    made = list[weakref.ref[MicroBatchQuery]]()
    start = MicroBatchQuery.start

    def noting(self: MicroBatchQuery) -> None:
        made.append(weakref.ref(self))
        start(self)

    monkeypatch.setattr(MicroBatchQuery, "start", noting)
    # pytest keeps what is logged, with the frames of errors, until the end of a test.
    monkeypatch.setattr(logging.getLogger("py4j.clientserver"), "disabled", True)
    for number in range(RUNS):
        run(drive, f"{ending}-{number}", fails=ending == "failed")

    assert len(made) == RUNS
    until_s = time.monotonic() + PATIENCE_S
    while left := [query for query in made if query() is not None]:
        assert time.monotonic() < until_s, f"{len(left)} of {RUNS} queries are still in memory"
        time.sleep(0.1)
        gc.collect()


def run(drive: Harness, name: str, *, fails: bool) -> None:
    """Run an application to its end."""
    app = Application(name)
    stream: Any = app.read(sources.items([1, 2], schema="n bigint"))
    drive.sink(stream.map(refused, returns=int) if fails else stream, name)
    if not fails:
        drive.run(app)
        assert drive.rows(name) == [{"n": 1}, {"n": 2}]
        return
    with pytest.raises(DrivetrainError, match="is refused"):
        drive.run(app)

"""Which of Spark's reports of a query are fetched; a report is a long text to write, send and parse."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass, field
from typing import Any, cast

from drivetrain.spark.batch.spark_engine import SparkQuery

REPORT = {
    "id": "7c0c8a4b-1f0f-4b06-a77a-b5a6e3e2f6f5",
    "runId": "0e6b1f8e-3f64-4a3e-9b2f-6a5d1c0f9a11",
    "name": "a query",
    "batchDuration": 7,
    "durationMs": {"addBatch": 5},
    "eventTime": {},
    "stateOperators": [],
    "sources": [],
    "sink": {"description": "a sink", "numOutputRows": -1},
    "numInputRows": 1,
    "inputRowsPerSecond": 1.0,
    "processedRowsPerSecond": 1.0,
    "observedMetrics": {},
}


@dataclass
class JavaReport:
    """A report as Java has it, which counts how often its text is made."""

    batch: int
    at: int
    has_run: bool = True
    texts: int = 0

    def batchId(self) -> int:
        return self.batch

    def timestamp(self) -> str:
        return f"2026-01-01T00:00:{self.at:02}.000Z"

    def json(self) -> str:
        self.texts += 1
        took = {"addBatch": 5} if self.has_run else {}
        return json.dumps(
            {**REPORT, "batchId": self.batch, "timestamp": self.timestamp(), "durationMs": took}
        )


@dataclass
class JavaQuery:
    """A query as Java has it, with the reports that it keeps."""

    kept: list[JavaReport] = field(default_factory=list)
    asked_for_all: int = 0

    def lastProgress(self) -> JavaReport | None:
        return self.kept[-1] if self.kept else None

    def recentProgress(self) -> list[JavaReport]:
        self.asked_for_all += 1
        return list(self.kept)


class PythonQuery:
    def __init__(self, java: JavaQuery) -> None:
        self._jsq = java
        self._ended = threading.Event()
        self.asked = 0

    @property
    def isActive(self) -> bool:
        self.asked += 1
        return not self._ended.is_set()

    def awaitTermination(self) -> None:
        self._ended.wait()

    def stop(self) -> None:
        self._ended.set()


def read(query: SparkQuery, after: int) -> list[int]:
    return [report.batchId for report in query.reports(after)]


def test_only_new_reports_are_fetched_oldest_first() -> None:
    java = JavaQuery([JavaReport(batch, batch) for batch in range(20)])
    query = SparkQuery(cast(Any, PythonQuery(java)))
    assert read(query, -1) == list(range(20))
    java.kept = [*java.kept[2:], JavaReport(20, 20), JavaReport(21, 21)]
    assert read(query, 19) == [20, 21]
    assert {report.texts for report in java.kept} == {1}, "one was fetched twice"


def test_without_a_new_report_none_is_fetched() -> None:
    java = JavaQuery()
    query = SparkQuery(cast(Any, PythonQuery(java)))
    assert read(query, -1) == []
    java.kept.append(JavaReport(0, 0))
    assert read(query, -1) == [0]
    assert read(query, 0) == []
    assert java.asked_for_all == 0


def test_what_was_not_taken_comes_again_with_the_next_report() -> None:
    java = JavaQuery([JavaReport(0, 0), JavaReport(1, 1)])
    query = SparkQuery(cast(Any, PythonQuery(java)))
    assert read(query, -1) == [0, 1]  # and taking 1 fails
    java.kept.append(JavaReport(2, 2))
    assert read(query, 0) == [1, 2]


def test_a_report_without_a_batch_has_the_number_of_the_next_one() -> None:
    java = JavaQuery([JavaReport(0, 0), JavaReport(1, 10, has_run=False)])
    query = SparkQuery(cast(Any, PythonQuery(java)))
    assert read(query, 0) == [1]
    java.kept.append(JavaReport(1, 12))
    reports = query.reports(0)
    assert [report.durationMs for report in reports] == [{"addBatch": 5}]


def test_the_report_of_the_next_batch_is_fetched_alone() -> None:
    java = JavaQuery([JavaReport(0, 0)])
    query = SparkQuery(cast(Any, PythonQuery(java)))
    assert read(query, -1) == [0]
    java.kept.append(JavaReport(1, 1))
    assert read(query, 0) == [1]
    assert java.asked_for_all == 0


def test_that_a_query_runs_is_known_without_asking_and_its_end_at_once() -> None:
    java = PythonQuery(JavaQuery())
    query = SparkQuery(cast(Any, java))
    assert query.is_active
    assert java.asked == 0
    java.stop()  # from outside
    deadline = time.monotonic() + 10
    while query.is_active and time.monotonic() < deadline:
        time.sleep(0.001)
    assert not query.is_active


def test_a_query_that_was_stopped_is_not_active() -> None:
    query = SparkQuery(cast(Any, PythonQuery(JavaQuery())))
    query.stop()
    assert not query.is_active

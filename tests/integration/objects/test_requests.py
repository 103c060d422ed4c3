"""What the batches of file sinks cost in requests to a real object store, as the guide says."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from drivetrain.api import sinks
from drivetrain.config import Config
from drivetrain.connectors.files import file_sink
from drivetrain.connectors.opening import open_sink
from drivetrain.spark.connector.sink import SinkContext
from drivetrain.spark.measure import small_batches
from object_store import S3Server
from store_faults import Fault, FaultyStore

sys.path.insert(0, str(Path(__file__).parents[2] / "unit" / "spark" / "sinks"))
from arrow_frame import ArrowFrame, frame

BATCHES, PARTITIONS = 40, 4


OTHERS_ARE_COUNTED = pytest.mark.nightly("the requests of other sinks are counted by day")


@pytest.mark.parametrize(
    ("how", "looks_s", "cost"),
    [
        ({}, 10.0, {"PUT": 1}),
        pytest.param(
            {"partition_by": "p"}, 10.0, {"PUT": 1 + PARTITIONS, "POST": 1}, marks=OTHERS_ARE_COUNTED
        ),
        pytest.param({"roll": "1 h"}, 600.0, {"PUT": 1}, marks=OTHERS_ARE_COUNTED),
        ({"roll": "1 h"}, 0.0, {"PUT": 1, "LIST": 2}),
    ],
    ids=["each", "partitioned", "waiting", "looked at"],
)
def test_a_batch_costs_as_many_requests_as_the_guide_says(
    s3: S3Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    how: dict[str, Any],
    looks_s: float,
    cost: dict[str, float],
) -> None:
    monkeypatch.setattr(small_batches, "small_table", ArrowFrame.toArrow)
    monkeypatch.setattr(file_sink, "STORE_LOOK_S", looks_s)
    place = f"s3://{s3.bucket('requests').name}/{tmp_path.name}"
    requests: Counter[str] = Counter()

    def count(method: str, path: str) -> Fault:
        requests["LIST" if "list-type" in path else method] += 1
        return Fault.NONE

    with FaultyStore(s3.endpoint) as counting:
        counting.plan = count
        context = SinkContext("app-1", "a", str(tmp_path), Config.load(None, {}, s3.sets(counting.endpoint)))
        sink: Any = open_sink(sinks.parquet(place, **how), context)
        sink.validate()
        for number in range(4):
            sink.write(batch(number), number)
        requests.clear()
        for number in range(4, 4 + BATCHES):
            sink.write(batch(number), number)
    assert {name: n / BATCHES for name, n in requests.items()} == cost


def batch(number: int) -> ArrowFrame:
    ids = range(number * PARTITIONS, (number + 1) * PARTITIONS)
    made: ArrowFrame = frame(id=pa.array(ids, pa.int64()), p=pa.array([str(id % PARTITIONS) for id in ids]))
    return made

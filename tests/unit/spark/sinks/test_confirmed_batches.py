"""Batches that Redis has confirmed: how long they are kept, and what is known of those that are not."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pytest
from arrow_frame import ArrowFrame

from drivetrain.api import sinks
from drivetrain.connectors.opening import open_sink
from drivetrain.connectors.outbox import Outbox, PreparedBatch
from drivetrain.connectors.redis import confirmed_batches
from drivetrain.connectors.redis.confirmed_batches import ConfirmedBatches
from drivetrain.core.checkpoint.publication import NONE, Publication
from drivetrain.errors import MissingDependencyError
from drivetrain.runtime.channel.columns import TS
from drivetrain.runtime.channel.segments import write_segment
from drivetrain.spark.connector.sink import SinkContext


def prepare(outbox: Outbox, batch: int) -> None:
    timed = ArrowFrame(pa.table({"id": [batch]})).withColumn(TS, None).toArrow()
    outbox.prepare(PreparedBatch(batch, (write_segment(outbox._files, "test", timed.to_batches()),)))


def test_batches_are_dropped_when_they_were_confirmed_long_enough_ago(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(confirmed_batches.time, "monotonic", lambda: now[0])
    outbox = Outbox(str(tmp_path), "out")
    confirmed = ConfirmedBatches(outbox, keep_ms=60_000)
    for batch in range(4):
        prepare(outbox, batch)
        confirmed.confirm(Publication("token", batch))
        confirmed.tidy()
        now[0] += 19
    now[0] = 1080
    assert outbox.batches() == [0, 1, 2, 3]
    assert confirmed.settled() == NONE
    confirmed.tidy()
    assert outbox.batches() == [2, 3]
    assert confirmed.settled() == 1
    again = ConfirmedBatches(Outbox(str(tmp_path), "out"), keep_ms=60_000)
    again.recall(3)
    now[0] += 59
    again.tidy()
    assert outbox.batches() == [2, 3]
    now[0] += 11
    again.tidy()
    assert outbox.batches() == []
    assert again.settled() == 3


def test_a_batch_that_waits_to_be_confirmed_is_not_dropped(tmp_path: Path) -> None:
    outbox = Outbox(str(tmp_path), "out")
    for batch in range(3):
        prepare(outbox, batch)
    confirmed = ConfirmedBatches(outbox, keep_ms=0)
    confirmed.recall(1)
    confirmed.tidy()
    assert outbox.batches() == [2]
    confirmed.forget()
    assert confirmed.settled() == NONE


def test_redis_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(MissingDependencyError) as caught:
        open_sink(sinks.redis("redis://cache", key="k"), SinkContext("app-1", "t", str(tmp_path)))
    assert caught.value.remedy == "pip install 'drivetrain[redis]'"

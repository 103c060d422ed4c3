"""The parts that the benchmark of a hop measures are there: it wraps functions by their names."""

from __future__ import annotations

import pytest
from benchmarks.hop_latency import Parts, measured_parts

from drivetrain.runtime.channel.store import ChannelStore
from drivetrain.spark.batch import spark_branches
from drivetrain.spark.batch.query_progress import QueryProgress


def test_calls_that_write_a_channel_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    written = spark_branches.write_segments
    for owner, name in (
        (spark_branches, "write_segments"),
        (ChannelStore, "append"),
        (QueryProgress, "read"),
    ):
        monkeypatch.setattr(owner, name, getattr(owner, name))  # to be as before after the test
    assert isinstance(measured_parts("seen"), Parts)
    assert spark_branches.write_segments is not written

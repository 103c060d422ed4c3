"""One batch, step by step, with parts that need no Spark: what a batch that fails leaves in the counts."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS
from drivetrain.errors import DiskFullError
from drivetrain.spark.batch.batch import Batch, BranchResult, ignore_begun
from drivetrain.spark.batch.fragment_query import FragmentQuery
from drivetrain.spark.batch.message_counts import Counts
from drivetrain.spark.batch.pipeline import BatchPipeline


class Full:
    """Branches that emit three messages; the disk is full when they are first appended to the channel."""

    nodes = (SimpleNamespace(operation=SimpleNamespace(hears_end=True)),)

    def __init__(self) -> None:
        self.is_full = True
        self.clocks: list[int | None] = []

    def run(self, _batch: Batch, _begun: object) -> BranchResult:
        counts = Counts()
        counts.add(counts.out, "orders", 3)
        return BranchResult(counts=counts)

    def empty(self) -> None:
        """No messages."""

    def append(self, _batch_id: int, _written: BranchResult, clock_ms: int | None) -> None:
        if self.is_full:
            self.is_full = False
            raise DiskFullError("there is no space left")
        self.clocks.append(clock_ms)


def pipeline_of(branches: Any, directory: Path) -> BatchPipeline:
    plan: Any = SimpleNamespace(delivery="exactly-once")
    trunk: Any = SimpleNamespace(only_at_end=False, skipping=())
    inputs = SimpleNamespace(taken=lambda _offsets: {"events": 30}, bytes_of=lambda _taken: 0)
    steps: Any = SimpleNamespace(
        inputs=inputs,
        clock=SimpleNamespace(observed_in_trunk=lambda _query: {}),
        check_partitions=lambda: None,
        check_sources=lambda _offsets: None,
        observe=lambda *_: None,
        clock_after=lambda _offsets, watermark_ms: watermark_ms,
    )
    flow: Any = SimpleNamespace(appended=lambda: None)
    return BatchPipeline(plan, trunk, directory, steps, branches, flow, lambda: None)


def query_of(pipeline: BatchPipeline, batch: Batch) -> Any:
    query: Any = FragmentQuery.__new__(FragmentQuery)
    query.counts, query.inputs, query.clock_ms, query.batches = Counts(), SimpleNamespace(), None, 0
    query.run = lambda: query._take(pipeline.run(batch, ignore_begun))
    return query


def test_a_batch_that_fails_at_its_channel_and_runs_again_is_counted_once(tmp_path: Path) -> None:
    frame: Any = None
    query = query_of(pipeline_of(Full(), tmp_path), Batch(frame, 7, 500, ("12",), 900))
    with pytest.raises(DiskFullError):
        query.run()
    assert query.counts.out == {}, "its subscribers have none of it"
    query.run()
    assert query.counts.out == {"orders": 3}
    assert (query.batch_id, query.clock_ms, query.inputs.offsets) == (7, 900, ["12"])


def test_an_outcome_has_what_the_batch_took_and_a_clock_that_never_moves_back(tmp_path: Path) -> None:
    branches, frame = Full(), None
    branches.is_full = False
    batch: Any = Batch(frame, 7, 5_000, ("12",), 900)
    outcome = pipeline_of(branches, tmp_path).run(batch, ignore_begun)
    assert (outcome.clock_ms, outcome.taken, outcome.has_input) == (5_000, {"events": 30}, True)
    assert branches.clocks == [5_000]


def test_the_final_batch_is_counted_and_appends_the_final_clock(tmp_path: Path) -> None:
    branches = Full()
    branches.is_full = False
    counts = pipeline_of(branches, tmp_path).run_final(8)
    assert counts.out == {"orders": 3}
    assert branches.clocks == [FINAL_CLOCK_MS]

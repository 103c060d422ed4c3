"""Finds the late messages of a batch by reading its input once more, apart from the fragment's own query.

Problem: Spark drops late messages within its stateful operator, where they cannot be seen; it only counts
them. Carrying them along would slow down every batch of every application, though most have none.

Design: when a batch had late messages, a query that has the fragment's trunk up to the stateful processor,
and no state, is started on a copy of the checkpoint that ends before the batch, as for a repair
(`rerun_batch`). So Spark reads exactly the batch's input again; what is late at the batch's clock is taken
out, up to a limit.

A message is late by the rule of its processor: if one of its windows had ended, or, without windows, if it
was older than the clock. The functions before the state run again, for this batch.

Called by `late_sampler`.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from drivetrain.api.graphs.graph import Node
from drivetrain.api.operations import Process
from drivetrain.api.windows import Window
from drivetrain.core.plan.plan import Fragment
from drivetrain.errors import UnavailableError
from drivetrain.runtime.channel.columns import TS
from drivetrain.runtime.late_samples import LONGEST
from drivetrain.spark.batch.query_engine import QueryEngine, RunningQuery
from drivetrain.spark.compile.frame import Frame
from drivetrain.spark.compile.surroundings import StatefulPlan
from drivetrain.spark.prepare.compile_context import CompileContext
from drivetrain.spark.prepare.fragment import TrunkCompiler
from drivetrain.spark.repair.rerun_batch import cut_back
from drivetrain.spark.repair.steps import Steps
from drivetrain.spark.session.spark_errors import translated
from drivetrain.spark.session.spark_text import quoted

_MESSAGE: Final = "message"
_AT: Final = "at_us"


@dataclass(frozen=True)
class LateRecord:
    """A late message: its columns as JSON (the first `LONGEST` + 1 characters), and its timestamp."""

    message: str
    timestamp_ms: int


class LateBatch:
    """The late messages (up to `most`) of batch `batch_id` of `fragment`, whose clock is `clock_ms`.

    Everything is in the directory `aside`, which is deleted before and after.
    """

    def __init__(
        self,
        context: CompileContext,
        engine: QueryEngine,
        fragment: Fragment,
        batch_id: int,
        clock_ms: int,
        most: int,
        aside: Path,
    ) -> None:
        self._name: Final = f"{context.plan.application}/{fragment.id}, late messages of batch {batch_id}"
        self._engine: Final = engine
        self._batch_id: Final = batch_id
        self._most: Final = most
        self._aside: Final = aside
        self._error: BaseException | None = None
        self._found: list[LateRecord] | None = None
        shutil.rmtree(aside, ignore_errors=True)
        own = context.rundir.fragment(fragment.id) / "checkpoint"
        cut_back(own, aside / "checkpoint", batch_id, with_state=False)
        self._trunk: Final = _LateTrunk(context, fragment, aside, clock_ms).compile()

    def found(self) -> Steps[Sequence[LateRecord]]:
        """Run the query, in steps. Raises the query's error, and UnavailableError when it was stopped."""
        query: RunningQuery | None = None
        try:
            query = self._engine.start(self._trunk, self._name, self._aside / "checkpoint", self._take)
            while query.is_active:
                yield
            if self._found is None:
                raise translated(
                    self._error or query.exception() or UnavailableError("Spark stopped the query")
                )
            return self._found
        finally:
            if query is not None:
                query.stop()
            shutil.rmtree(self._aside, ignore_errors=True)

    def _take(self, df: DataFrame, batch_id: int) -> None:
        try:
            if batch_id == self._batch_id:
                rows = df.limit(self._most).collect()
                self._found = [LateRecord(row[_MESSAGE] or "", row[_AT] // 1_000) for row in rows]
        except BaseException as error:  # noqa: BLE001 - raised by the generator that waits for the query
            self._error = error
        raise RuntimeError(f"batch {self._batch_id} is read")  # the query must not plan another one


class _LateTrunk(TrunkCompiler):
    """Compiles a trunk that ends with the late messages instead of the stateful processor."""

    def __init__(self, context: CompileContext, fragment: Fragment, aside: Path, clock_ms: int) -> None:
        super().__init__(context.apart(), fragment, aside)
        self._clock_ms = clock_ms

    def _stateful(self, node: Node) -> StatefulPlan:
        inputs = [self._input(node, i) for i in range(len(node.inputs))]
        parts = [_late_of(frame, node, self._clock_ms) for frame in inputs if frame.timed]
        late = parts[0]
        for part in parts[1:]:
            late = late.union(part)
        return StatefulPlan(late)


def _late_of(frame: Frame, node: Node, clock_ms: int) -> DataFrame:
    """The late messages of one input, as text, with their timestamps."""
    df = frame.resolved().df
    late = df.where(missed(node, clock_ms))
    data = [quoted(name) for name in df.columns if not name.startswith("__")]
    text = F.to_json(F.struct(*data)) if data else F.lit("{}")
    return late.select(F.substring(text, 1, LONGEST + 1).alias(_MESSAGE), F.unix_micros(TS).alias(_AT))


def missed(node: Node, clock_ms: int) -> Column:
    """Whether, at `clock_ms`, a message's first window had ended, or its own time had passed."""
    window, ts = node.operation.grouping_window, F.unix_micros(TS)
    if isinstance(node.operation, Process) and node.operation.persistent is not None:
        state = node.operation.persistent.state
        window = state.window
        if window is None and state.step_ms is not None:
            clock_ms -= clock_ms % state.step_ms
    if window is None:
        return ts < F.lit(clock_ms * 1000)
    if window.kind == "global":
        return F.lit(value=False)
    return _first_end(window, ts) <= F.lit(clock_ms * 1000)


def _first_end(window: Window, ts: Column) -> Column:
    """The end of the first window that has a timestamp (both in µs)."""
    size, step = window.size_ms * 1000, window.step_ms * 1000
    if window.kind == "session":
        return ts + size
    since = F.pmod(ts, F.lit(step))  # the start of its last window
    earlier = F.ceil((F.lit(size) - since) / F.lit(step)) - 1  # windows that began before that one
    return ts - since - earlier * step + size

"""Sums of what fragments have counted, over their attempts and as of their last reports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from drivetrain.cluster.app_master.stream.stream_progress import StreamProgress
from drivetrain.cluster.messages.executing import ExecutorReport, FragmentProgress
from drivetrain.core.job.fragment_execution import ExecutionState
from drivetrain.core.job.fragment_figures import Counters, FragmentFigures


@dataclass
class RunningExecution:
    fragment: str = "hourly"
    attempt: int = 1
    executor: str = "executor-1"
    is_terminal: bool = False
    state: ExecutionState = ExecutionState.RUNNING


class OneFragment:
    """A job whose only fragment runs."""

    def __init__(self) -> None:
        self.executions = [RunningExecution()]

    def execution(self, _: str) -> RunningExecution:
        return self.executions[0]


def report(attempt: int, rows: int) -> ExecutorReport:
    figures = FragmentFigures(Counters(batches=rows))
    progress = FragmentProgress(
        "hourly", attempt, 1, rows, 0.0, 1, None, None, skipped=rows, lost=rows, figures=figures
    )
    return ExecutorReport("executor-1", 1, (progress,), {})


def test_a_status_has_the_sums_of_the_last_report_and_of_earlier_attempts() -> None:
    job = OneFragment()
    progress = StreamProgress(cast(Any, job))

    def sums() -> tuple[int, int, int, int]:
        (view,) = progress.views(lambda _: None, lambda _: (0, None))
        return progress.skipped(), progress.lost(), view.rows_total, view.figures.counters.batches

    assert sums() == (0, 0, 0, 0)
    for attempt, rows, expected in ((1, 3, 3), (1, 5, 5), (2, 1, 6), (2, 4, 9)):
        if job.executions[0].attempt != attempt:
            progress.close("hourly", 1)
            job.executions[0].attempt = attempt
        progress.take(report(attempt, rows))
        assert sums() == (expected,) * 4
        assert sums() == (expected,) * 4, "asked for again"

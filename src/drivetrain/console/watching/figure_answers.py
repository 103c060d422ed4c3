"""Makes the console's answers from the figures of fragments, and from the history of an application.

Called by `console.watching.status_answers` and `console.handlers.applications`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from drivetrain.console.answers.figures import (
    Batch,
    BatchTotals,
    FragmentFigures,
    FragmentHistory,
    History,
    PhaseHistory,
    Phases,
)
from drivetrain.core.job import fragment_figures as core
from drivetrain.core.job import history as kept

T = TypeVar("T")


def figures_of(figures: core.FragmentFigures) -> FragmentFigures:
    """The figures of a fragment as its executor measured them."""
    return FragmentFigures(
        last_batch=_batch(figures.last),
        totals=_totals(figures.counters),
        cores=figures.cores,
        trigger_ms=figures.trigger_ms,
        state_rows=figures.state_rows,
        state_bytes=figures.state_bytes,
        state_partitions=figures.state_partitions,
        latency_p50_ms=figures.latency_p50_ms,
        latency_p99_ms=figures.latency_p99_ms,
        latency_batches=figures.latency_batches,
        blocked_now_ms=figures.blocked_now_ms,
        alignment_txid=None if figures.alignment_txid < 0 else figures.alignment_txid,
        alignment_ms=figures.alignment_ms,
    )


def _batch(last: core.LastBatch) -> Batch | None:
    if last.batch_id < 0:
        return None
    return Batch(
        batch_id=last.batch_id,
        messages=last.rows,
        phases=_phases(last.phases),
        sinks_ms=last.sinks_ms,
        python_ms=last.python_ms,
        python_longest_ms=last.python_longest_ms,
        python_tasks=last.python_tasks,
        state_ms=last.state_ms,
    )


def _totals(counters: core.Counters) -> BatchTotals:
    return BatchTotals(
        batches=counters.batches,
        phases=_phases(counters.phases),
        python_ms=counters.python_ms,
        state_ms=counters.state_ms,
        aligning_ms=counters.aligning_ms,
        blocked_ms=counters.blocked_ms,
    )


def _phases(phases: core.Phases) -> Phases:
    return Phases(**{name: getattr(phases, name) for name in phases.__struct_fields__})


def history_of(app_id: str, history: kept.History) -> History:
    """The history of an application, in columns."""
    moments = history.moments
    names = dict.fromkeys(name for moment in moments for name in moment.fragments)
    return History(
        app_id=app_id,
        at_ms=tuple(moment.at_ms for moment in moments),
        clock_ms=tuple(moment.clock_ms for moment in moments),
        late=tuple(moment.late for moment in moments),
        dead_letters=tuple(moment.dead_lettered for moment in moments),
        disk_free_bytes=tuple(moment.disk_free for moment in moments),
        fragments={name: _columns([moment.fragments.get(name) for moment in moments]) for name in names},
    )


def _columns(moments: Sequence[kept.FragmentMoment | None]) -> FragmentHistory:
    def column(of: Callable[[kept.FragmentMoment], T]) -> tuple[T | None, ...]:
        return tuple(None if moment is None else of(moment) for moment in moments)

    def phase(name: str) -> tuple[int | None, ...]:
        return column(lambda moment: int(getattr(moment.phases, name)))

    return FragmentHistory(
        attempt=column(lambda moment: moment.attempt),
        batches=column(lambda moment: moment.batches),
        messages=column(lambda moment: moment.rows_total),
        batch_ms=column(lambda moment: moment.batch_ms),
        lag_messages=column(lambda moment: moment.lag_rows),
        clock_ms=column(lambda moment: moment.clock_ms),
        clock_delay_ms=column(lambda moment: moment.clock_delay_ms),
        state_rows=column(lambda moment: moment.state_rows),
        state_bytes=column(lambda moment: moment.state_bytes),
        latency_p50_ms=column(lambda moment: moment.latency_p50_ms),
        latency_p99_ms=column(lambda moment: moment.latency_p99_ms),
        blocked_ms=column(lambda moment: moment.blocked_ms),
        phases=PhaseHistory(**{name: phase(name) for name in core.Phases.__struct_fields__}),
    )

"""The progress of an attempt, as its executor reports it.

Called by `fragment_attempt`.
"""

from __future__ import annotations

from drivetrain.cluster.messages.executing import FragmentProgress
from drivetrain.spark.batch.fragment_query import FragmentQuery


def progress_of(fragment: str, attempt: int, query: FragmentQuery) -> FragmentProgress:
    """The progress of attempt `attempt` of a fragment, whose query is `query`."""
    out, into, late, dead = query.counts.copied()
    taken, total = 0, 0 if query.trunk.sources else None
    for source in query.trunk.sources:
        position = query.inputs.position(source)
        taken += position.done
        total = None if position.total is None or total is None else total + position.total
    progress = query.progressed()
    return FragmentProgress(
        fragment=fragment,
        attempt=attempt,
        batch_id=progress.batch_id,
        rows_total=progress.rows_total,
        rows_per_s=progress.rows_per_s,
        batch_ms=progress.batch_ms,
        lag_rows=progress.lag_rows,
        clock_ms=progress.clock_ms,
        out=out,
        into=into,
        late=late,
        dead=dead,
        taken=taken,
        total=total,
        skipped=query.counts.skipped_rows,
        lost=query.counts.lost_rows,
        channels=progress.channels,
        watermark_delay_ms=progress.watermark_delay_ms,
        settled_clock_ms=query.settled_clock_ms,
        waiting_for=query.waiting_for(),
        blocked_by=progress.blocked_by,
        left_out=progress.left_out,
        figures=progress.figures,
    )

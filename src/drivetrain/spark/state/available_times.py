"""Computes the application times for which a fragment's directory has exact states.

Problem: the answer follows from the clock of a committed batch and from the pictures that still exist. The
fragment itself needs it when it is saved; so do state queries, of the fragment's directory or of a snapshot
of it.

Design: the last time is the last step that the clock has passed. The first is the newest picture's time minus
the period for which pictures are kept.

Called by `spark.state.state_query` and `spark.checkpoints.participation`.
"""

from __future__ import annotations

from pathlib import Path

from drivetrain.api.operations import Operation, Process
from drivetrain.core.clock.time_bounds import NO_CLOCK_MS
from drivetrain.core.state.paged_state import BUCKETS
from drivetrain.core.state.picture_times import PictureTimes, times_between
from drivetrain.runtime.state_pictures import Pictures
from drivetrain.spark.channel.watermark import clock_of
from drivetrain.spark.session.offset_log import read_offsets


def clock_at(fragment: Path, batch: int) -> int:
    """The clock that a committed batch ran with, in ms; `NO_CLOCK_MS` before the first batch (-1)."""
    if batch < 0:
        return NO_CLOCK_MS
    metadata, _ = read_offsets(fragment / "checkpoint" / "offsets" / str(batch))
    clock_ms = clock_of(int(metadata.get("batchWatermarkMs", 0)))
    return NO_CLOCK_MS if clock_ms is None else clock_ms


def kept_times(fragment: Path, operation: Operation | None, batch: int) -> PictureTimes | None:
    """The times for which the states after a committed batch are available; None if no pictures are taken."""
    persistent = operation.persistent if isinstance(operation, Process) else None
    if persistent is None or persistent.state.step_ms is None:
        return None
    clock_ms, step_ms = clock_at(fragment, batch), persistent.state.step_ms
    every = times_between(NO_CLOCK_MS + 1, clock_ms, step_ms)
    newest = [pictures[-1] for b in range(BUCKETS) if (pictures := _taken(fragment, b, every.last_ms))]
    if not newest:
        return every
    return times_between(max(every.first_ms, max(newest) - persistent.state.keep_ms), clock_ms, step_ms)


def _taken(fragment: Path, bucket: int, until_ms: int) -> list[int]:
    return [at_ms for at_ms in Pictures(fragment, bucket).times() if at_ms <= until_ms]

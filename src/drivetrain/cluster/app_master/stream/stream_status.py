"""The status of a streaming application for followers, and what it waits for.

Called by `stream_app_master` once the application is loaded.
"""

from __future__ import annotations

import msgspec

from drivetrain.cluster.app_master import waiting_reasons
from drivetrain.cluster.app_master.app_master import ApplicationMaster
from drivetrain.cluster.app_master.stream.application_duties import Duties
from drivetrain.cluster.app_master.stream.checkpoint_relay import CheckpointTraffic
from drivetrain.cluster.app_master.stream.running_job import RunningJob
from drivetrain.cluster.messages.following import FragmentView, JobStatus
from drivetrain.cluster.messages.following import JobState as ShownState
from drivetrain.core.job.history import FragmentMoment, Moment, late_and_dead
from drivetrain.core.job.job_events import JobState


def status_of(
    owner: ApplicationMaster, running: RunningJob, duties: Duties, checkpoints: CheckpointTraffic
) -> JobStatus:
    """The status of the application of `owner`."""
    prepared, progress = duties.errands.prepared, running.progress
    return msgspec.structs.replace(
        owner.base_status(ShownState(running.job.state.value)),
        life=1 if prepared is None else prepared.life,
        replay_from_ms=None if prepared is None else prepared.replay_from_ms,
        skipped=progress.skipped(),
        lost=progress.lost(),
        fragments=progress.views(owner.pool.find, running.clock.stall),
        outputs=progress.outputs(),
        counts=progress.counts(),
        accumulators=progress.accumulators(),
        fraction=progress.fraction(),
        printed=duties.errands.printed,
        checkpoints=checkpoints.figures,
        checkpoints_now_ms=owner.now_ms,
        disk_free=progress.disk_free,
        disk_total=progress.disk_total,
    )


def moment_of(status: JobStatus) -> Moment:
    """What of a status is kept for trends and curves."""
    late, dead_lettered = late_and_dead(status.counts)
    return Moment(
        status.now_ms,
        status.clock_ms,
        late,
        dead_lettered,
        status.disk_free,
        {fragment.fragment: _fragment_moment(fragment) for fragment in status.fragments},
    )


def _fragment_moment(view: FragmentView) -> FragmentMoment:
    figures = view.figures
    return FragmentMoment(
        view.attempt,
        figures.counters.batches,
        view.rows_total,
        view.batch_ms,
        view.lag_rows,
        view.clock_ms,
        figures.state_rows,
        figures.state_bytes,
        figures.latency_p50_ms,
        figures.latency_p99_ms,
        sum(figures.counters.blocked_ms.values()),
        figures.counters.phases,
        view.watermark_delay_ms,
    )


def waiting_for(owner: ApplicationMaster, running: RunningJob, duties: Duties) -> str | None:
    """What the application waits for before it can process or end; None while it processes."""
    job, errands = running.job, duties.errands
    match job.state:
        case JobState.RESTARTING:
            return waiting_reasons.RESTART
        case JobState.FAILING | JobState.CANCELLING:
            return waiting_reasons.fragments([e for e in job.executions if not e.is_terminal])
    if errands.is_under_way:
        return errands.waiting_for()
    if errands.prepared is None or not owner.pool.ready:
        return waiting_reasons.executors(owner.pool)
    if not job.executions or job.is_open:
        return None
    return waiting_reasons.NOTED if job.state is JobState.CREATED else waiting_reasons.executors(owner.pool)
